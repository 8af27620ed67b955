package aggregates

// index finds the place that belongs to a key: a hash table with open addressing. Keys are above 0.
type index struct {
	slots []slot
	shift uint
	used  int
}

type slot struct {
	key   uint64
	place int
}

func newIndex(bits uint) index { return index{slots: make([]slot, 1<<bits), shift: 64 - bits} }

// place returns the place of a key; one that is new gets the number of those before it.
func (x *index) place(key uint64) (place int, fresh bool) {
	mask := uint64(len(x.slots) - 1)
	for i := key * 0x9E3779B97F4A7C15 >> x.shift; ; i = (i + 1) & mask {
		s := &x.slots[i]
		if s.key == key {
			return s.place, false
		}
		if s.key == 0 {
			*s = slot{key, x.used}
			x.used++
			if place = s.place; 2*x.used > len(x.slots) {
				x.grow()
			}
			return place, true
		}
	}
}

func (x *index) grow() {
	old := x.slots
	x.slots, x.shift = make([]slot, 2*len(old)), x.shift-1
	mask := uint64(len(x.slots) - 1)
	for _, s := range old {
		if s.key == 0 {
			continue
		}
		i := s.key * 0x9E3779B97F4A7C15 >> x.shift
		for x.slots[i].key != 0 {
			i = (i + 1) & mask
		}
		x.slots[i] = s
	}
}

func (x *index) reset() {
	clear(x.slots)
	x.used = 0
}

// sorted sorts keys by their digits; the result is one of the two slices, which must be of one length.
func sorted(keys, scratch []uint32) []uint32 {
	const bits, mask = 11, 1<<11 - 1
	var count [3][1 << bits]uint32
	for _, k := range keys {
		count[0][k&mask]++
		count[1][k>>bits&mask]++
		count[2][k>>(2*bits)]++
	}
	for pass := range count {
		digits, shift := &count[pass], uint(pass*bits)
		if len(keys) == 0 || digits[keys[0]>>shift&mask] == uint32(len(keys)) {
			continue
		}
		var place uint32
		for d := range digits {
			digits[d], place = place, place+digits[d]
		}
		for _, k := range keys {
			d := k >> shift & mask
			scratch[digits[d]] = k
			digits[d]++
		}
		keys, scratch = scratch, keys
	}
	return keys
}

package cells

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

package keyset

// Flights says which numbers have a request under way: as many as there are workers, never as many as there are
// objects. It is not safe for concurrent use.
type Flights struct {
	slots []flight // open addressing, linear probing; number 0: free
	count int
}

type flight struct {
	number  int64
	readers int32
	writer  bool
}

// NewFlights has room for so many numbers at once, and grows beyond that.
func NewFlights(atOnce int) *Flights {
	size := 8
	for size < 2*atOnce {
		size *= 2
	}
	return &Flights{slots: make([]flight, size)}
}

// Len is how many numbers have a request under way.
func (f *Flights) Len() int { return f.count }

// Reading tells whether a read is under way.
func (f *Flights) Reading(number int64) bool { return f.slots[f.find(number)].readers > 0 }

// Writing tells whether a PUT or DELETE is under way.
func (f *Flights) Writing(number int64) bool { return f.slots[f.find(number)].writer }

// Read says that a read begins.
func (f *Flights) Read(number int64) { f.take(number).readers++ }

// Write says that a PUT or DELETE begins.
func (f *Flights) Write(number int64) { f.take(number).writer = true }

// Done ends what Read or Write began.
func (f *Flights) Done(number int64, write bool) {
	at := f.find(number)
	if f.slots[at].number == 0 {
		return
	}
	if write {
		f.slots[at].writer = false
	} else {
		f.slots[at].readers--
	}
	if f.slots[at].readers > 0 || f.slots[at].writer {
		return
	}
	f.count--
	// what stands behind it moves up, so that no probe meets a hole before its number
	mask := len(f.slots) - 1
	for next := (at + 1) & mask; f.slots[next].number != 0; next = (next + 1) & mask {
		if home := f.home(f.slots[next].number); (next-home)&mask >= (next-at)&mask {
			f.slots[at] = f.slots[next]
			at = next
		}
	}
	f.slots[at] = flight{}
}

func (f *Flights) home(number int64) int {
	return int(uint64(number) * 0x9E3779B97F4A7C15 >> 32 & uint64(len(f.slots)-1))
}

func (f *Flights) find(number int64) int {
	at := f.home(number)
	for f.slots[at].number != number && f.slots[at].number != 0 {
		at = (at + 1) & (len(f.slots) - 1)
	}
	return at
}

func (f *Flights) take(number int64) *flight {
	at := f.find(number)
	if f.slots[at].number == 0 {
		if 4*(f.count+1) > 3*len(f.slots) {
			old := f.slots
			f.slots = make([]flight, 2*len(old))
			for _, flight := range old {
				if flight.number != 0 {
					f.slots[f.find(flight.number)] = flight
				}
			}
			at = f.find(number)
		}
		f.slots[at].number = number
		f.count++
	}
	return &f.slots[at]
}

package aggregates

import "encoding/binary"

// names numbers texts in the order in which they come. Neighbouring rows have few different ones, so a small table that
// is asked first saves nearly every look-up in the map.
type names struct {
	all    []string
	number map[string]int
	recent [64]recent
}

type recent struct {
	text   string
	number int
}

func newNames() names { return names{number: map[string]int{}} }

func (s *names) of(text []byte) int {
	slot := &s.recent[slotOf(text)]
	if slot.text == string(text) && len(s.all) > 0 && s.all[slot.number] == slot.text {
		return slot.number
	}
	number, known := s.number[string(text)]
	if !known {
		number = len(s.all)
		s.all = append(s.all, string(text))
		s.number[s.all[number]] = number
	}
	*slot = recent{s.all[number], number}
	return number
}

func slotOf(text []byte) uint64 {
	var word uint64
	if n := len(text); n >= 16 {
		word = binary.LittleEndian.Uint64(text[n-8:]) ^ binary.LittleEndian.Uint64(text[n-16:])*3
	} else {
		for _, c := range text {
			word = word*31 + uint64(c)
		}
	}
	return word * 0x9E3779B97F4A7C15 >> 58
}

func (s *names) reset() {
	s.all = s.all[:0]
	clear(s.number)
	clear(s.recent[:])
}

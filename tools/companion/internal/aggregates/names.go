package aggregates

import (
	"encoding/binary"
	"regexp"
	"strings"
	"unicode/utf8"
)

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

const (
	mostMessages = 1000
	longestText  = 200
	// so many messages as they came, with their addresses and object names, are remembered
	mostRaw, longestRaw = 4096, 512
	other               = "other"
)

// what differs between two errors of one kind: the address of the request, and object names
var quoted = regexp.MustCompile(`"[^"]*"`)

// messages numbers the kinds of errors.
type messages struct {
	all    []string
	number map[string]int
	raw    map[string]int
}

func newMessages() messages { return messages{number: map[string]int{}, raw: map[string]int{}} }

func (m *messages) of(text []byte) int {
	if number, known := m.raw[string(text)]; known {
		return number
	}
	number := m.kind(kindOf(string(text)))
	if len(m.raw) >= mostRaw {
		clear(m.raw)
	}
	if len(text) <= longestRaw {
		m.raw[string(text)] = number
	}
	return number
}

func (m *messages) kind(kind string) int {
	number, known := m.number[kind]
	if !known {
		if len(m.all) >= mostMessages && kind != other {
			return m.kind(other)
		}
		number = len(m.all)
		m.all = append(m.all, kind)
		m.number[kind] = number
	}
	return number
}

func (m *messages) reset() {
	m.all = m.all[:0]
	clear(m.number)
	clear(m.raw)
}

// kindOf is a message without what stands in quotes, at most 200 characters of it.
func kindOf(text string) string {
	text = quoted.ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "...")
	if utf8.RuneCountInString(text) <= longestText {
		return text
	}
	return string([]rune(text)[:longestText])
}

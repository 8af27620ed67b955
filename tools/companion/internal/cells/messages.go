package cells

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

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

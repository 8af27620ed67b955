package aggregates

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

// messages numbers the messages of errors.
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
	number := m.numberOf(messageOf(string(text)))
	if len(m.raw) >= mostRaw {
		clear(m.raw)
	}
	if len(text) <= longestRaw {
		m.raw[string(text)] = number
	}
	return number
}

func (m *messages) numberOf(message string) int {
	number, known := m.number[message]
	if !known {
		if len(m.all) >= mostMessages && message != other {
			return m.numberOf(other)
		}
		number = len(m.all)
		m.all = append(m.all, message)
		m.number[message] = number
	}
	return number
}

func (m *messages) reset() {
	m.all = m.all[:0]
	clear(m.number)
	clear(m.raw)
}

// messageOf is the text of an error without what stands in quotes, at most 200 characters of it.
func messageOf(text string) string {
	text = quoted.ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "...")
	if utf8.RuneCountInString(text) <= longestText {
		return text
	}
	return string([]rune(text)[:longestText])
}

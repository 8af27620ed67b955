package rowtext

import "bytes"

// a quoted error message that goes on for longer than this has lost its end
const longest = 1 << 16

// records puts lines together that one quoted message spreads over.
type records struct {
	columns *Columns
	open    []byte // what waits for its closing quote
	lines   int    // in open
}

// add takes the next line. It returns a whole record, nil while its end has not come, and how many records it gave up.
func (s *records) add(line []byte) (record []byte, bad int) {
	if s.lines == 0 {
		if bytes.Count(line, []byte{'"'})%2 == 0 {
			return bytes.TrimSuffix(line, []byte{'\r'}), 0
		}
		s.open, s.lines = append(s.open[:0], line...), 1
		return nil, 0
	}
	if s.columns.plain(line) { // a whole row inside a message: the message was torn
		s.lines = 0
		return line, 1
	}
	s.open = append(append(s.open, '\n'), line...)
	s.lines++
	if bytes.Count(line, []byte{'"'})%2 == 1 {
		s.lines = 0
		return bytes.TrimSuffix(s.open, []byte{'\r'}), 0
	}
	if len(s.open) >= longest {
		s.lines = 0
		return nil, 1
	}
	return nil, 0
}

// plain tells a row by its looks: without quotes, with all columns, and beginning with two numbers and an operation.
func (c *Columns) plain(line []byte) bool {
	rest, ok := line, false
	for n := 0; n < 2; n++ {
		if rest, ok = behind(rest, '0', '9', '0'); !ok {
			return false
		}
	}
	if _, ok = behind(rest, 'A', 'Z', '_'); !ok {
		return false
	}
	return bytes.Count(line, []byte{'\t'}) == c.width-1 && bytes.IndexByte(line, '"') < 0
}

// behind cuts off a field that consists of low..high and other.
func behind(b []byte, low, high, other byte) ([]byte, bool) {
	at := bytes.IndexByte(b, '\t')
	if at < 1 {
		return nil, false
	}
	for _, c := range b[:at] {
		if (c < low || c > high) && c != other {
			return nil, false
		}
	}
	return b[at+1:], true
}

// Cut finds a large part of a text that ends with a record, so that what follows can be read without it. The text begins
// with a record. 0: there is no such place.
func (c *Columns) Cut(text []byte) int {
	end := bytes.LastIndexByte(text, '\n') + 1
	for back, tries := end, 0; back > 0 && tries < 16; tries++ {
		begin := bytes.LastIndexByte(text[:back-1], '\n') + 1
		if c.plain(text[begin : back-1]) { // no open quote goes beyond a plain row
			return back
		}
		back = begin
	}
	s, closed := records{columns: c}, 0
	for i := 0; i < end; {
		length := bytes.IndexByte(text[i:end], '\n')
		s.add(text[i : i+length])
		if i += length + 1; s.lines == 0 {
			closed = i
		}
	}
	return closed
}

// unquote splits a record at its tabs as Python's csv module does; false: a line break stands outside of quotes.
func unquote(record []byte, fields [][]byte) ([][]byte, bool) {
	const (
		begin = iota
		bare
		quoted
		quote // in a quoted field: its end, or the first of two
	)
	state, field := begin, []byte{}
	for _, c := range record {
		switch {
		case state == quoted && c == '"':
			state = quote
		case state == quoted:
			field = append(field, c)
		case c == '\t':
			fields, field, state = append(fields, field), []byte{}, begin
		case c == '\n':
			return nil, false
		case c == '"' && state == begin:
			state = quoted
		case c == '"' && state == quote:
			field, state = append(field, c), quoted
		default:
			field, state = append(field, c), bare
		}
	}
	return append(fields, field), true
}

package rows

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Columns tells where each column stands in a row: warp 0.6.9 has no `cat`, 1.5.0 has `last_byte` before `end`; the first
// ones had no `endpoint` and no `first_byte`.
type Columns struct {
	Header string // the line that names them
	width  int
	// positions
	thread, op, objects, bytes, err, start, end, duration int
	client, endpoint, first                               int // -1: there is none
	// skipped columns between first byte and end, when the order is warp's; -1: it is not
	between int
}

// OfHeader finds the columns by their names; the error says which are missing.
func OfHeader(line string) (*Columns, error) {
	line = strings.TrimSuffix(line, "\r")
	names := strings.Split(line, "\t")
	c := &Columns{Header: line, width: len(names)}
	var missing []string
	for _, want := range []struct {
		name string
		at   *int
	}{
		{"thread", &c.thread}, {"op", &c.op}, {"n_objects", &c.objects}, {"bytes", &c.bytes}, {"error", &c.err},
		{"start", &c.start}, {"end", &c.end}, {"duration_ns", &c.duration},
	} {
		if *want.at = slices.Index(names, want.name); *want.at < 0 {
			missing = append(missing, want.name)
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("no column %s in its header", strings.Join(missing, ", "))
	}
	c.client, c.endpoint, c.first = slices.Index(names, "client_id"), slices.Index(names, "endpoint"), slices.Index(names, "first_byte")
	c.between = -1
	usual := c.thread == 1 && c.op == 2 && c.client == 3 && c.objects == 4 && c.bytes == 5 && c.endpoint == 6 && c.err == 8 && c.start == 9
	if usual && c.first == 10 && c.end > 10 && c.duration == c.end+1 {
		c.between = c.end - c.first - 1
	}
	return c, nil
}

// Of finds the columns by the first line that is a header or a row; what may stand before it (a comment, a message, an
// empty line) says nothing. header tells whether text begins with a header, hasLine whether there was such a line at all:
// without one the columns are those of Header.
func Of(text []byte) (columns *Columns, header, hasLine bool, err error) {
	for rest, more := text, true; more; {
		var line []byte
		at := rest
		line, rest, more = bytes.Cut(rest, []byte{'\n'})
		if !more { // its end has not come
			break
		}
		if bytes.HasPrefix(line, []byte("idx\t")) || bytes.Equal(line, []byte("idx")) {
			columns, err = OfHeader(string(line))
			return columns, len(at) == len(text), true, err
		}
		if !begins(line) {
			continue
		}
		tabs, complete := tabs(at[:min(len(at), longest)])
		if !complete && len(at) < longest { // an error's text of several lines
			break
		}
		for _, names := range headers {
			if columns, _ = OfHeader(names); complete && columns.width == tabs+1 {
				return columns, false, true, nil
			}
		}
	}
	columns, err = OfHeader(Header)
	return columns, false, false, err
}

// of all versions, whose rows differ in their numbers of columns: 14, 13 and 15
var headers = []string{
	Header, strings.TrimSuffix(Header, "\tcat"), strings.Replace(Header, "\tend\t", "\tlast_byte\tend\t", 1),
}

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
	return begins(line) && bytes.Count(line, []byte{'\t'}) == c.width-1 && bytes.IndexByte(line, '"') < 0
}

// begins tells whether a line begins as a row does: two numbers and an operation, perhaps of a work.
func begins(line []byte) bool {
	rest, ok := line, false
	for n := 0; n < 2; n++ {
		if rest, ok = behind(rest, '0', '9', '0'); !ok {
			return false
		}
	}
	op, _, ok := bytes.Cut(rest, []byte{'\t'})
	work, own := work(op)
	for _, c := range work {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	_, named := behind(append(own[:len(own):len(own)], '\t'), 'A', 'Z', '_')
	return ok && named
}

// work divides an operation of cbt-load's works, readers:GET; others have no work.
func work(op []byte) (work, own []byte) {
	at := bytes.LastIndexByte(op, ':')
	if at < 0 {
		return nil, op
	}
	return op[:at], op[at+1:]
}

// tabs counts those of a text's first record that are not quoted, and tells whether its end is there.
func tabs(text []byte) (n int, complete bool) {
	quoted := false
	for _, c := range text {
		switch {
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '\t':
			n++
		case c == '\n':
			return n, true
		}
	}
	return n, false
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

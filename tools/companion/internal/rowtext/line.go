package rowtext

import "bytes"

// Row is what the aggregates need of one finished request. The slices point into the text that was read.
type Row struct {
	Op, Endpoint []byte
	Err          []byte // empty: it succeeded
	Thread       int64
	Objects      int64 // LIST: 1
	Bytes        int64
	End          int64 // ns since the epoch, on the clock of the node
	Duration     int64 // ns
	FirstByte    int64 // ns from start to first byte; -1: there was none
}

var list = []byte("LIST")

// line reads rows one by one.
type line struct {
	columns *Columns
	clock   clock
	scratch []byte
}

// usual reads a row that begins at b[i] and has warp's order of columns, no quoted error and nothing else that is odd. It
// returns the place behind its line end; -1: this line has to be looked at again, field by field.
func (l *line) usual(b []byte, i int, r *Row) int {
	begin := i
	var at int
	if _, i = number(b, i); i <= begin || b[i] != '\t' {
		return -1
	}
	if r.Thread, at = number(b, i+1); at <= i+1 || b[at] != '\t' {
		return -1
	}
	i = at + 1
	for at = i; b[at] > ' '; at++ {
	}
	if r.Op = b[i:at:at]; b[at] != '\t' {
		return -1
	}
	if i = control(b, at+1); b[i] != '\t' { // client
		return -1
	}
	if r.Objects, at = number(b, i+1); at <= i+1 || b[at] != '\t' {
		return -1
	}
	i = at
	if r.Bytes, at = number(b, i+1); at <= i+1 || b[at] != '\t' {
		return -1
	}
	i = at + 1
	if at = control(b, i); b[at] != '\t' {
		return -1
	}
	r.Endpoint = b[i:at:at]
	if i = control(b, at+1); b[i] != '\t' { // file
		return -1
	}
	i++
	if at = i; b[at] != '\t' {
		if at = control(b, i); b[i] == '"' || b[at] != '\t' {
			return -1
		}
	}
	r.Err = b[i:at:at]
	return l.times(b, at+1, r)
}

// times is the second half of usual: from start on.
func (l *line) times(b []byte, i int, r *Row) int {
	start, i := l.clock.at(b, i)
	if i < 0 || b[i] != '\t' {
		return -1
	}
	i++
	r.FirstByte = -1
	if b[i] != '\t' {
		var first int64
		if first, i = l.clock.at(b, i); i < 0 || b[i] != '\t' {
			return -1
		}
		r.FirstByte = max(0, first-start)
	}
	for n := l.columns.between; n > 0; n-- {
		if i = control(b, i+1); b[i] != '\t' {
			return -1
		}
	}
	i++
	if r.End, i = l.clock.at(b, i); i < 0 || b[i] != '\t' {
		return -1
	}
	var at int
	if r.Duration, at = number(b, i+1); at <= i+1 {
		return -1
	}
	for n := l.columns.width - l.columns.duration - 1; n > 0; n-- {
		if b[at] != '\t' {
			return -1
		}
		at = control(b, at+1)
	}
	if b[at] != '\n' {
		return -1
	}
	if len(r.Op) == 4 && bytes.Equal(r.Op, list) {
		r.Objects = 1
	}
	return at + 1
}

// fields reads a row that was cut at its tabs; false: it has no valid numbers.
func (l *line) fields(f [][]byte, r *Row) bool {
	c := l.columns
	r.Op, r.Endpoint, r.Err = f[c.op], f[c.endpoint], f[c.err]
	var good [5]bool
	r.Thread, good[0] = l.number(f[c.thread])
	r.Objects, good[1] = l.number(f[c.objects])
	r.Bytes, good[2] = l.number(f[c.bytes])
	r.Duration, good[3] = l.number(f[c.duration])
	r.End, good[4] = l.time(f[c.end])
	if good != [5]bool{true, true, true, true, true} {
		return false
	}
	if bytes.Equal(r.Op, list) {
		r.Objects = 1
	}
	r.FirstByte = -1
	if len(f[c.first]) > 0 {
		start, good := l.time(f[c.start])
		first, also := l.time(f[c.first])
		if !good || !also {
			return false
		}
		r.FirstByte = max(0, first-start)
	}
	return true
}

func (l *line) number(text []byte) (int64, bool) {
	v, end := number(l.padded(text), 0)
	return v, len(text) > 0 && end == len(text)
}

func (l *line) time(text []byte) (int64, bool) {
	v, end := l.clock.at(l.padded(text), 0)
	return v, end == len(text)
}

// padded copies a field to where bytes may be loaded behind it.
func (l *line) padded(text []byte) []byte {
	if l.scratch == nil {
		l.scratch = make([]byte, 2*Room)
	}
	n := copy(l.scratch[:Room], text)
	clear(l.scratch[n:])
	return l.scratch
}

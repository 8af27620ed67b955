package rows

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"time"
)

// Row is what the aggregates need of a request. The slices point into the text that was read.
type Row struct {
	Op, Endpoint []byte
	Client       []byte // of several warp clients whose rows are in one file
	Err          []byte // empty: it succeeded
	Thread       int64
	Objects      int64 // LIST: 1
	Bytes        int64
	End          int64 // ns since the epoch, on the clock of the node
	Duration     int64 // ns
	FirstByte    int64 // ns from start to first byte; -1: there was none
	Sum          *Sum  // nil: one request
}

// Sum is what a generator says that tells of many requests at once: Bytes and Duration of the row are sums of the good ones.
type Sum struct {
	N, Failed int64
	Min, Max  int64 // durations of the good ones, ns
}

// Counts are the good and the failed requests of a row.
func (r *Row) Counts() (good, failed int64) {
	switch {
	case r.Sum != nil:
		return r.Sum.N, r.Sum.Failed
	case len(r.Err) > 0:
		return 0, 1
	}
	return 1, 0
}

// sumFields are those of a line of sums: sum, operation, endpoint, end, good, failed, bytes, total, shortest, longest, error.
const sumFields = 11

// sum reads a line of sums that was cut at its tabs; false: it has no valid numbers.
func (l *line) sum(f [][]byte, r *Row) bool {
	if len(f) != sumFields {
		return false
	}
	*r = Row{Op: f[1], Endpoint: f[2], Err: f[10], FirstByte: -1, Sum: &Sum{}}
	var ok bool
	if r.End, ok = l.time(f[3]); !ok {
		return false
	}
	for i, to := range []*int64{&r.Sum.N, &r.Sum.Failed, &r.Bytes, &r.Duration, &r.Sum.Min, &r.Sum.Max} {
		if *to, ok = l.number(f[4+i]); !ok {
			return false
		}
	}
	r.Objects = r.Sum.N
	return r.Sum.N+r.Sum.Failed > 0
}

// listing tells a LIST, also one of a work: readers:LIST.
func listing(op []byte) bool {
	return len(op) >= 4 && op[len(op)-1] == 'T' && (string(op) == "LIST" || bytes.HasSuffix(op, []byte(":LIST")))
}

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
	begin = at + 1
	if i = control(b, begin); b[i] != '\t' {
		return -1
	}
	r.Client = b[begin:i:i]
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
	if listing(r.Op) {
		r.Objects = 1
	}
	return at + 1
}

// fields reads a row that was cut at its tabs; false: it has no valid numbers.
func (l *line) fields(f [][]byte, r *Row) bool {
	c := l.columns
	r.Op, r.Endpoint, r.Err, r.Client = f[c.op], nil, f[c.err], nil
	if c.endpoint >= 0 {
		r.Endpoint = f[c.endpoint]
	}
	if c.client >= 0 {
		r.Client = f[c.client]
	}
	var good [5]bool
	r.Thread, good[0] = l.number(f[c.thread])
	r.Objects, good[1] = l.number(f[c.objects])
	r.Bytes, good[2] = l.number(f[c.bytes])
	r.Duration, good[3] = l.number(f[c.duration])
	r.End, good[4] = l.time(f[c.end])
	if good != [5]bool{true, true, true, true, true} {
		return false
	}
	if listing(r.Op) {
		r.Objects = 1
	}
	r.FirstByte = -1
	if c.first >= 0 && len(f[c.first]) > 0 {
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

const (
	zeros = 0x3030303030303030 // "00000000"
	high  = 0x8080808080808080
)

// Room is how many bytes must follow the text of a chunk: zeros, so that words may be loaded anywhere and searches end.
const Room = 64

// notDigits marks the bytes of a word, xored with zeros, that are no digits; the lowest mark is right, others may not be.
func notDigits(word uint64) uint64 {
	return (word | (word + 0x7676767676767676)) & high
}

// eight is the number of eight digits, the first one lowest.
func eight(word uint64) int64 {
	word = word*10 + word>>8
	const mask, first, last = 0x000000FF000000FF, 0x000F424000000064, 0x0000271000000001
	return int64(((word&mask)*first + (word>>16&mask)*last) >> 32)
}

// control is the place of the first byte below space, from b[i] on. The zeros behind a chunk end the search.
func control(b []byte, i int) int {
	for {
		word := binary.LittleEndian.Uint64(b[i:])
		if found := (word - 0x2020202020202020) & ^word & high; found != 0 {
			return i + bits.TrailingZeros64(found)>>3
		}
		i += 8
	}
}

// number reads the digits at b[i], at most 18; the place behind them is i when there are none, -1 when there are too many.
func number(b []byte, i int) (int64, int) {
	word := binary.LittleEndian.Uint64(b[i:]) ^ zeros
	if other := notDigits(word); other != 0 {
		n := bits.TrailingZeros64(other) >> 3
		return eight(word << (64 - 8*n)), i + n
	}
	v, begin := eight(word), i
	for i += 8; b[i]-'0' <= 9; i++ {
		if i-begin >= 18 {
			return 0, -1
		}
		v = v*10 + int64(b[i]-'0')
	}
	return v, i
}

const (
	second = int64(time.Second)
	// what a time of day can be in int64 nanoseconds since the epoch
	latest = 9_200_000_000
	// so many bytes of a buffer must follow the place where a time begins
	timeRoom = 40
)

var scale = [...]int64{1e9, 1e8, 1e7, 1e6, 1e5, 1e4, 1e3, 1e2, 1e1}

// clock reads RFC 3339 times. It remembers the last minute: neighbours share it, and the calendar is the costly part.
type clock struct {
	high, low uint64 // "2026-11-21T07:10", as two words
	minute    int64  // ns since the epoch, were it UTC
}

// at reads the time that begins at b[i], "2026-11-21T07:10:47.14016431Z" or with a zone; b must go on for timeRoom bytes.
// It returns nanoseconds since the epoch and the place behind the time, -1 when there is none.
func (c *clock) at(b []byte, i int) (int64, int) {
	s := b[i : i+timeRoom : i+timeRoom]
	if binary.LittleEndian.Uint64(s) != c.high || binary.LittleEndian.Uint64(s[8:]) != c.low || s[16] != ':' {
		if !c.learn(s) {
			return 0, -1
		}
	}
	tens, ones := s[17]-'0', s[18]-'0'
	if tens > 5 || ones > 9 {
		return 0, -1
	}
	ns := c.minute + (int64(tens)*10+int64(ones))*second
	k := 19
	if s[19] == '.' {
		word := binary.LittleEndian.Uint64(s[20:]) ^ zeros
		if other := notDigits(word); other != 0 {
			n := bits.TrailingZeros64(other) >> 3
			ns += eight(word<<(64-8*n)) * scale[n]
			k = 20 + n
		} else {
			ns += eight(word) * 10
			if k = 28; s[28]-'0' <= 9 {
				ns += int64(s[28] - '0')
				for k = 29; k < 33 && s[k]-'0' <= 9; k++ { // finer than a nanosecond
				}
			}
		}
	}
	if s[k] == 'Z' {
		return ns, i + k + 1
	}
	return zoned(s, ns, i, k)
}

// zoned is the end of at for times like ...+02:00, whose zone begins at s[k].
func zoned(s []byte, ns int64, i, k int) (int64, int) {
	h1, h0, m1, m0 := s[k+1]-'0', s[k+2]-'0', s[k+4]-'0', s[k+5]-'0'
	if s[k] != '+' && s[k] != '-' || s[k+3] != ':' || h1 > 2 || h0 > 9 || h1 == 2 && h0 > 3 || m1 > 5 || m0 > 9 {
		return 0, -1
	}
	ahead := ((int64(h1)*10+int64(h0))*60 + int64(m1)*10 + int64(m0)) * 60 * second
	if s[k] == '+' {
		ahead = -ahead
	}
	return ns + ahead, i + k + 6
}

// learn takes over another minute.
func (c *clock) learn(s []byte) bool {
	at, err := time.Parse("2006-01-02T15:04:05", string(s[:17])+"00")
	if err != nil || at.Unix() < 0 || at.Unix() > latest {
		return false
	}
	c.high, c.low = binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[8:])
	c.minute = at.Unix() * second
	return true
}

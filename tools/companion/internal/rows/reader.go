package rows

import (
	"bytes"
)

// Reader reads the rows of a text that comes in chunks of whole lines.
type Reader struct {
	Bad     int64  // lines that were no rows, so far
	Command string // what the last line that begins with "# " says: warp's command line
	line    line
	records records
	fields  [][]byte
	row     Row
	sum     Row
}

// NewReader makes a reader for rows with these columns.
func NewReader(c *Columns) *Reader {
	return &Reader{line: line{columns: c}, records: records{columns: c}}
}

// Chunk reads b[:n], which are whole lines; at least Room zeros stand behind them. take gets each row, for as long as the
// call lasts. A record may go on in the next chunk.
func (r *Reader) Chunk(b []byte, n int, take func(*Row)) {
	usual := r.line.columns.between >= 0
	for i := 0; i < n; {
		if usual && r.records.lines == 0 {
			if next := r.line.usual(b, i, &r.row); next >= 0 {
				take(&r.row)
				i = next
				continue
			}
		}
		length := bytes.IndexByte(b[i:n], '\n')
		record, bad := r.records.add(b[i : i+length])
		r.Bad += int64(bad)
		if record != nil {
			r.record(record, take)
		}
		i += length + 1
	}
}

// End tells that no more chunks follow: what waits for a closing quote is bad, line by line.
func (r *Reader) End() {
	r.Bad += int64(r.records.lines)
	r.records.lines = 0
}

func (r *Reader) record(record []byte, take func(*Row)) {
	f, ok := r.fields[:0], true
	if bytes.IndexByte(record, '"') >= 0 {
		f, ok = unquote(record, f)
	} else {
		for rest, at := record, 0; at >= 0; {
			if at = bytes.IndexByte(rest, '\t'); at >= 0 {
				f, rest = append(f, rest[:at]), rest[at+1:]
			} else {
				f = append(f, rest)
			}
		}
	}
	switch {
	case ok && len(f) == r.line.columns.width && digits(f[0]):
		if r.line.fields(f, &r.row) {
			take(&r.row)
		} else {
			r.Bad++
		}
	case ok && string(f[0]) == "sum":
		if r.line.sum(f, &r.sum) {
			take(&r.sum)
		} else {
			r.Bad++
		}
	case len(record) == 0:
	case bytes.HasPrefix(record, []byte("# ")):
		r.Command = string(record[2:])
	case !ok || string(f[0]) != "idx":
		r.Bad++
	}
	r.fields = f[:0]
}

func digits(text []byte) bool {
	for _, c := range text {
		if c-'0' > 9 {
			return false
		}
	}
	return len(text) > 0
}

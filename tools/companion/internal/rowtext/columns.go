// Package rowtext reads request rows: tab separated text of warp 0.6.9 and later, and of cbt-load.
//
// It keeps to the rules of cbt_plugins/analysis/rows.py and reduce.py: what is a row, what is torn, what is bad.
package rowtext

import (
	"bytes"
	"fmt"
	"strings"

	"cbt-plugins/companion/internal/row"
)

// Columns tells where each column stands in a row: warp 0.6.9 has no `cat`, 1.5.0 has `last_byte` before `end`.
type Columns struct {
	Header string // the line that names them
	width  int
	// positions
	thread, op, objects, bytes, endpoint, err, start, first, end, duration int
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
		{"thread", &c.thread}, {"op", &c.op}, {"n_objects", &c.objects}, {"bytes", &c.bytes}, {"endpoint", &c.endpoint},
		{"error", &c.err}, {"start", &c.start}, {"first_byte", &c.first}, {"end", &c.end}, {"duration_ns", &c.duration},
	} {
		*want.at = -1
		for i, name := range names {
			if name == want.name {
				*want.at = i
				break
			}
		}
		if *want.at < 0 {
			missing = append(missing, want.name)
		}
	}
	if missing != nil {
		return nil, fmt.Errorf("no column %s in its header", strings.Join(missing, ", "))
	}
	c.between = -1
	usual := c.thread == 1 && c.op == 2 && c.objects == 4 && c.bytes == 5 && c.endpoint == 6 && c.err == 8 && c.start == 9
	if usual && c.first == 10 && c.end > 10 && c.duration == c.end+1 {
		c.between = c.end - c.first - 1
	}
	return c, nil
}

// Of finds the columns by the first line of a text; header tells whether this line is one, and no row.
func Of(first []byte) (columns *Columns, header bool, err error) {
	if bytes.HasPrefix(first, []byte("idx\t")) || bytes.Equal(first, []byte("idx")) {
		columns, err = OfHeader(string(first))
		return columns, true, err
	}
	names := row.Columns
	if bytes.Count(first, []byte("\t")) == 12 {
		names = strings.TrimSuffix(names, "\tcat")
	}
	columns, err = OfHeader(names)
	return columns, false, err
}

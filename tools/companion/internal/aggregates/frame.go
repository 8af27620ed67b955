package aggregates

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
)

// Version of the format.
const Version = 3

const (
	magic = "CBTF"
	// frames of this version have buckets in place of steps
	oldest  = 2
	packing = 1 // zlib
	prefix  = 4 + 1 + 1 + 4 + 4
	// more than this in one frame is no frame of ours
	largest = 1 << 28
)

// Kinds of frames.
const (
	KindCounts = "counts"
	KindEnd    = "end"
)

// Source is whose rows they are.
type Source struct {
	Job    string `json:"job"`
	Driver string `json:"driver"`
	Node   string `json:"node"`
	Phase  string `json:"phase"`
}

// Totals are what the rows of one source came to; times are nanoseconds on the head's clock.
type Totals struct {
	Source     int     `json:"source"`
	Rows       int64   `json:"rows"`
	Errors     int64   `json:"errors"`
	Bad        int64   `json:"bad"`
	Torn       *string `json:"torn"`
	FirstStart int64   `json:"first_start"`
	LastEnd    int64   `json:"last_end"`
	// of rows that warp's own files hold
	Clients []string `json:"clients,omitempty"`
	Command string   `json:"command,omitempty"`
}

// Header describes a frame.
type Header struct {
	Kind      string     `json:"kind"`
	Bits      int        `json:"bits"`
	Block     int64      `json:"block"`
	Sources   []Source   `json:"sources"`
	Ops       []string   `json:"ops"`
	Endpoints []string   `json:"endpoints"`
	Errors    []string   `json:"errors"`
	Tables    []TableDef `json:"tables"`
	Totals    []Totals   `json:"totals,omitempty"`
}

// TableDef is a table's line in the header.
type TableDef struct {
	Name    string      `json:"name"`
	Rows    int         `json:"rows"`
	Columns [][2]string `json:"columns"` // name, type
}

// Frame is one frame of a file. A column of Columns[t] holds the little endian numbers of a column of Tables[t].
type Frame struct {
	Header
	Columns [][][]byte
}

// NewFrame makes an empty frame.
func NewFrame(kind string, block int64, sources []Source) *Frame {
	return &Frame{Header: Header{
		Kind: kind, Bits: bucketBits, Block: block, Sources: sources,
		Ops: []string{}, Endpoints: []string{}, Errors: []string{}, Tables: []TableDef{},
	}}
}

// Table adds an empty table of so many rows, and returns its columns to be filled in.
func (f *Frame) Table(name string, rows int) Table {
	def := TableDef{Name: name, Rows: rows, Columns: written(name)}
	data, columns := make([][]byte, len(def.Columns)), make(Table, len(def.Columns))
	for i, column := range def.Columns {
		data[i] = make([]byte, rows*width(column[1]))
		columns[i] = Column{data[i], width(column[1])}
	}
	f.Tables, f.Columns = append(f.Tables, def), append(f.Columns, data)
	return columns
}

// width is the size of a type in bytes, 0 for one that is not known.
func width(kind string) int {
	switch kind {
	case "u1":
		return 1
	case "u2":
		return 2
	case "u4":
		return 4
	case "i8":
		return 8
	}
	return 0
}

// Column is one column of a table.
type Column struct {
	data  []byte
	width int
}

// Table are the columns of a table, in the order of its definition in this version.
type Table []Column

// Set fills in row i.
func (t Table) Set(i int, values ...int64) {
	for k, v := range values {
		t[k].Set(i, v)
	}
}

// Data are the bytes of a column.
func (c Column) Data() []byte { return c.data }

// At is the number in row i.
func (c Column) At(i int) int64 {
	switch c.width {
	case 1:
		return int64(c.data[i])
	case 2:
		return int64(binary.LittleEndian.Uint16(c.data[2*i:]))
	case 4:
		return int64(binary.LittleEndian.Uint32(c.data[4*i:]))
	}
	return int64(binary.LittleEndian.Uint64(c.data[8*i:]))
}

// Set puts a number into row i.
func (c Column) Set(i int, v int64) {
	switch c.width {
	case 1:
		c.data[i] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(c.data[2*i:], uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(c.data[4*i:], uint32(v))
	default:
		binary.LittleEndian.PutUint64(c.data[8*i:], uint64(v))
	}
}

// Of returns a table by its name, and its number of rows. A table that is not there has no rows; a column that is not
// there is an error, and so is an index that points nowhere.
func (f *Frame) Of(name string) (Table, int, error) {
	for t, def := range f.Tables {
		if def.Name != name {
			continue
		}
		table := make(Table, len(tables[name]))
		for i, want := range tables[name] {
			column, ok := f.column(t, want[0])
			if !ok && want[0] == "bucket" {
				if column, ok = f.column(t, "step"); ok {
					column = summed(column, def.Rows)
				}
			}
			if !ok {
				return nil, 0, fmt.Errorf("table %s has no column %s", name, want[0])
			}
			table[i] = column
		}
		return table, def.Rows, f.check(name, table, def.Rows)
	}
	return nil, 0, nil
}

// column returns a column of the t-th table.
func (f *Frame) column(t int, name string) (Column, bool) {
	def := f.Tables[t]
	at := slices.IndexFunc(def.Columns, func(c [2]string) bool { return c[0] == name })
	if at < 0 {
		return Column{}, false
	}
	return Column{f.Columns[t][at], width(def.Columns[at][1])}, true
}

// summed makes the buckets of steps: a bucket is the sum of all steps up to its row, modulo 1<<16.
func summed(steps Column, rows int) Column {
	buckets, bucket := Column{make([]byte, 2*rows), 2}, int64(0)
	for i := range rows {
		bucket += steps.At(i)
		buckets.Set(i, bucket)
	}
	return buckets
}

// check makes sure that the indexes in a table have something to point at.
func (f *Frame) check(name string, columns Table, rows int) error {
	limits := map[string]int{
		"source": len(f.Sources), "op": len(f.Ops), "endpoint": len(f.Endpoints), "error": len(f.Errors), "bucket": 1 << 16,
	}
	for _, def := range f.Tables {
		if def.Name == TableCounts {
			limits["group"] = def.Rows
		}
	}
	for i, column := range columns {
		limit, is := limits[tables[name][i][0]]
		if !is {
			if tables[name][i][0] != "group" {
				continue
			}
			limit = 0
		}
		for k := 0; k < rows; k++ {
			if v := column.At(k); v < 0 || v >= int64(limit) {
				return fmt.Errorf("table %s: %s %d in row %d points nowhere", name, tables[name][i][0], v, k)
			}
		}
	}
	return nil
}

// Encode makes the bytes of a frame.
func (f *Frame) Encode() ([]byte, error) {
	header, err := json.Marshal(f.Header)
	if err != nil {
		return nil, err
	}
	size := 4 + len(header)
	for _, table := range f.Columns {
		for _, column := range table {
			size += len(column)
		}
	}
	if size > largest {
		return nil, errors.New("a frame that is too large")
	}
	p := newPacker(append(make([]byte, 0, size/4+1024), make([]byte, prefix)...))
	p.text(append(binary.LittleEndian.AppendUint32(nil, uint32(len(header))), header...))
	for t, table := range f.Columns {
		for i, column := range table {
			p.column(f.Tables[t].Columns[i][0], column)
		}
	}
	data, err := p.finish()
	if err != nil {
		return nil, err
	}
	copy(data, magic)
	data[4], data[5] = Version, packing
	binary.LittleEndian.PutUint32(data[6:], uint32(len(data)-prefix))
	binary.LittleEndian.PutUint32(data[10:], crc32.ChecksumIEEE(data[prefix:]))
	return data, nil
}

// Names of the tables.
const (
	TableCounts  = "counts"
	TableLatency = "latency"
	TableTTFB    = "ttfb"
	TableFailed  = "failed"
	TableSeconds = "seconds"
	TableErrors  = "errors"
	TableThreads = "threads"
)

var (
	histogram = [][2]string{{"group", "u4"}, {"bucket", "u4"}, {"count", "u4"}}
	// steps are small and compress well
	writtenHistogram = [][2]string{{"group", "u4"}, {"step", "u2"}, {"count", "u4"}}
)

// written are the columns of a table as a frame has them.
func written(name string) [][2]string {
	switch name {
	case TableLatency, TableTTFB, TableFailed:
		return writtenHistogram
	}
	return tables[name]
}

// Places of the columns that this package reads, in `tables`.
const (
	countsSource, countsOp, countsN, countsFailed, countsObjects, countsBytes = 1, 2, 5, 6, 7, 8
	countsTotal, countsMin, countsMax                                         = 9, 10, 11
	countsKeys                                                                = 5 // the first columns
	histogramGroup, histogramBucket, histogramCount                           = 0, 1, 2
	secondsSource, secondsOp, secondsN, secondsFirst, secondsLast             = 1, 2, 3, 9, 10
	threadsSource, threadsThread, threadsLastEnd                              = 0, 1, 2
)

// tables are the columns of every table of this version, keys first.
var tables = map[string][][2]string{
	TableCounts: {
		{"block", "i8"}, {"source", "u2"}, {"op", "u1"}, {"endpoint", "u2"}, {"size", "u1"},
		{"n", "u4"}, {"failed", "u4"}, {"objects", "i8"}, {"bytes", "i8"},
		{"total", "i8"}, {"min", "i8"}, {"max", "i8"},
		{"failed_total", "i8"}, {"failed_min", "i8"}, {"failed_max", "i8"},
		{"ttfb_n", "u4"}, {"ttfb_total", "i8"}, {"ttfb_min", "i8"}, {"ttfb_max", "i8"},
	},
	TableLatency: histogram,
	TableTTFB:    histogram,
	TableFailed:  histogram,
	TableSeconds: {
		{"second", "i8"}, {"source", "u2"}, {"op", "u1"}, {"n", "u4"}, {"failed", "u4"}, {"objects", "i8"}, {"bytes", "i8"},
		{"total", "i8"}, {"max", "i8"}, {"first", "i8"}, {"last", "i8"}, {"busy", "i8"}, {"crossing", "u4"},
	},
	TableErrors: {
		{"block", "i8"}, {"source", "u2"}, {"op", "u1"}, {"endpoint", "u2"}, {"error", "u2"}, {"count", "u4"},
	},
	TableThreads: {{"source", "u2"}, {"thread", "u4"}, {"last_end", "i8"}},
}

package aggregates

import (
	"bufio"
	"encoding/csv"
	"io"
	"strconv"
)

// Exportable tells whether there is such a table to export.
func Exportable(table string) bool {
	switch table {
	case TableCounts, TableLatency, TableTTFB, TableFailed, TableSeconds, TableErrors:
		return true
	}
	return false
}

// what stands in the place of an index
var (
	ofSource = []string{"job", "driver", "node", "phase"}
	ofGroup  = []string{"block", "job", "driver", "node", "phase", "op", "endpoint", "size"}
	ofBucket = []string{"bucket", "low", "high"}
)

// Export writes a table of all files as CSV with a header. Names stand in the place of indexes, and a histogram's rows
// carry the key of their group, and the bounds of their bucket in nanoseconds (low <= duration < high).
func Export(to io.Writer, table string, paths []string) error {
	buffered := bufio.NewWriterSize(to, 1<<16)
	w := csv.NewWriter(buffered)
	var names []string
	for _, column := range tables[table] {
		switch column[0] {
		case "source":
			names = append(names, ofSource...)
		case "group":
			names = append(names, ofGroup...)
		case "bucket":
			names = append(names, ofBucket...)
		default:
			names = append(names, column[0])
		}
	}
	if err := w.Write(names); err != nil {
		return err
	}
	for _, path := range paths {
		_, err := each(path, func(f *Frame, _ []byte) error { return f.export(w, table) })
		if err != nil {
			return err
		}
	}
	w.Flush()
	if err := w.Error(); err != nil {
		return err
	}
	return buffered.Flush()
}

func (f *Frame) export(w *csv.Writer, name string) error {
	table, rows, err := f.Of(name)
	if err != nil {
		return err
	}
	counts, _, err := f.Of(TableCounts)
	if err != nil {
		return err
	}
	var line []string
	for i := range rows {
		line = line[:0]
		for k, column := range tables[name] {
			line = f.text(line, column[0], table[k].At(i), counts)
		}
		if err := w.Write(line); err != nil {
			return err
		}
	}
	return nil
}

// text adds what a number stands for to a line.
func (f *Frame) text(line []string, column string, v int64, counts Table) []string {
	switch column {
	case "source":
		s := f.Sources[v]
		return append(line, s.Job, s.Driver, s.Node, s.Phase)
	case "op":
		return append(line, f.Ops[v])
	case "endpoint":
		return append(line, f.Endpoints[v])
	case "error":
		return append(line, f.Errors[v])
	case "group":
		for k, key := range tables[TableCounts][:countsKeys] {
			line = f.text(line, key[0], counts[k].At(int(v)), nil)
		}
		return line
	case "bucket":
		low, high := bucketBounds(uint32(v))
		return append(line, strconv.FormatInt(v, 10), strconv.FormatInt(low, 10), strconv.FormatInt(high, 10))
	}
	return append(line, strconv.FormatInt(v, 10))
}

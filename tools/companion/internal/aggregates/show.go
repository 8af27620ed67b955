package aggregates

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
)

// opSum is one operation over all groups.
type opSum struct {
	n, failed, objects, bytes, total, min, max int64
	first, last                                int64 // ends of the first and last success
	counts                                     Histogram
}

// Show prints a table of the operations of all files together.
func Show(out io.Writer, paths []string) error {
	to := bufio.NewWriter(out) // it keeps the first error of writing
	sums, end := map[string]*opSum{}, newEnding()
	for _, path := range paths {
		cut, err := each(path, func(f *Frame, _ []byte) error {
			if f.Kind == KindEnd {
				return end.frame(f)
			}
			return f.show(sums)
		})
		if err != nil {
			return errors.Join(err, to.Flush())
		}
		if cut {
			fmt.Fprintf(to, "%s: %s\n", path, cutOff)
		}
	}
	fmt.Fprintf(to, "%-10s %12s %9s %10s %10s %10s %10s %10s %10s %10s %10s  (latencies in ms)\n", "op", "n", "errors", "obj/s",
		"MiB/s", "mean", "p50", "p90", "p99", "p99.9", "max")
	var first, last int64
	for _, s := range sums {
		if s.n > 0 && (first == 0 || s.first < first) {
			first = s.first
		}
		last = max(last, s.last)
	}
	took := max(float64(last-first)/1e9, 1e-9)
	for _, op := range slices.Sorted(maps.Keys(sums)) {
		s := sums[op]
		fmt.Fprintf(to, "%-10s %12d %9d %10.1f %10.2f %10.3f", op, s.n, s.failed, float64(s.objects)/took,
			float64(s.bytes)/took/(1<<20), float64(s.total)/float64(max(s.n, 1))/1e6)
		for _, q := range []float64{0.5, 0.9, 0.99, 0.999} {
			fmt.Fprintf(to, " %10.3f", s.counts.Quantile(q, s.min, s.max)/1e6)
		}
		fmt.Fprintf(to, " %10.3f\n", float64(s.max)/1e6)
	}
	for _, number := range slices.Sorted(maps.Keys(end.totals)) {
		t, source := end.totals[number], end.sources[number]
		if t.Bad > 0 {
			fmt.Fprintf(to, "%s/%s: %d lines that are not rows\n", source.Node, source.Job, t.Bad)
		}
		if t.Torn != nil {
			fmt.Fprintf(to, "%s/%s: %s\n", source.Node, source.Job, *t.Torn)
		}
	}
	return to.Flush()
}

func (f *Frame) show(sums map[string]*opSum) error {
	counts, rows, err := f.Of(TableCounts)
	if err != nil {
		return err
	}
	of := make([]*opSum, rows)
	for i := range rows {
		op := f.Ops[counts[countsOp].At(i)]
		if sums[op] == nil {
			sums[op] = &opSum{counts: Histogram{}}
		}
		s := sums[op]
		of[i] = s
		if n := counts[countsN].At(i); n > 0 {
			if low := counts[countsMin].At(i); s.n == 0 || low < s.min {
				s.min = low
			}
			s.max = max(s.max, counts[countsMax].At(i))
			s.n += n
			s.objects += counts[countsObjects].At(i)
			s.bytes += counts[countsBytes].At(i)
			s.total += counts[countsTotal].At(i)
		}
		s.failed += counts[countsFailed].At(i)
	}
	latency, rows, err := f.Of(TableLatency)
	for i := 0; i < rows && err == nil; i++ {
		of[latency[histogramGroup].At(i)].counts[uint32(latency[histogramBucket].At(i))] += latency[histogramCount].At(i)
	}
	if err != nil {
		return err
	}
	seconds, rows, err := f.Of(TableSeconds)
	for i := 0; i < rows && err == nil; i++ {
		s := sums[f.Ops[seconds[secondsOp].At(i)]]
		if s == nil || seconds[secondsN].At(i) == 0 {
			continue
		}
		if first := seconds[secondsFirst].At(i); s.first == 0 || first < s.first {
			s.first = first
		}
		s.last = max(s.last, seconds[secondsLast].At(i))
	}
	return err
}

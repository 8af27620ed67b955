package aggregates

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

const cutOff = "the aggregates were cut off: they have no end"

// ending adds up what the end frames of several files say.
type ending struct {
	block   int64
	sources []Source
	number  map[Source]int
	totals  map[int]*Totals
	threads map[[2]int64]int64 // source, thread -> last end
}

func newEnding() *ending {
	return &ending{number: map[Source]int{}, totals: map[int]*Totals{}, threads: map[[2]int64]int64{}}
}

func (e *ending) source(s Source) int {
	number, known := e.number[s]
	if !known {
		number = len(e.sources)
		e.number[s], e.sources = number, append(e.sources, s)
	}
	return number
}

func (e *ending) add(source Source, t Totals) {
	number := e.source(source)
	sum := e.totals[number]
	if sum == nil {
		t.Source = number
		e.totals[number] = &t
		return
	}
	if t.Rows > 0 {
		if sum.Rows == 0 || t.FirstStart < sum.FirstStart {
			sum.FirstStart = t.FirstStart
		}
		sum.LastEnd = max(sum.LastEnd, t.LastEnd)
	}
	sum.Clients = slices.Compact(slices.Sorted(slices.Values(slices.Concat(sum.Clients, t.Clients))))
	sum.Command = max(sum.Command, t.Command)
	sum.Rows += t.Rows
	sum.Errors += t.Errors
	sum.Bad += t.Bad
	if t.Torn != nil {
		texts := []string{*t.Torn}
		if sum.Torn != nil && !slices.Contains(strings.Split(*sum.Torn, "; "), *t.Torn) {
			texts = []string{*sum.Torn, *t.Torn}
		}
		text := strings.Join(texts, "; ")
		sum.Torn = &text
	}
}

func (e *ending) frame(f *Frame) error {
	for _, t := range f.Totals {
		e.add(f.Sources[t.Source], t)
	}
	threads, rows, err := f.Of(TableThreads)
	for i := 0; i < rows && err == nil; i++ {
		key := [2]int64{int64(e.source(f.Sources[threads[threadsSource].At(i)])), threads[threadsThread].At(i)}
		e.threads[key] = max(e.threads[key], threads[threadsLastEnd].At(i))
	}
	return err
}

// JoinFiles makes one file of several: all of their frames, and one end. A file that was cut off adds what it holds; the totals
// of its sources say so.
func JoinFiles(out string, paths []string) error {
	file, err := os.CreateTemp(dirOf(out), ".merge-*")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	end := newEnding()
	for _, path := range paths {
		if err := mergeOne(file, path, end); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	f := NewFrame(KindEnd, end.block, end.sources)
	for _, number := range slices.Sorted(maps.Keys(end.totals)) {
		f.Totals = append(f.Totals, *end.totals[number])
	}
	table := f.Table(TableThreads, len(end.threads))
	keys := slices.SortedFunc(maps.Keys(end.threads), func(a, b [2]int64) int { return slices.Compare(a[:], b[:]) })
	for i, key := range keys {
		table.Set(i, key[0], key[1], end.threads[key])
	}
	data, err := f.Encode()
	if err == nil {
		_, err = file.Write(data)
	}
	if err = errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), out)
}

// mergeOne copies the frames of a file, without its end.
func mergeOne(to *os.File, path string, end *ending) error {
	sums := map[Source]*Totals{}
	cut, err := each(path, func(f *Frame, raw []byte) error {
		end.block = cmp.Or(end.block, f.Block)
		if f.Kind == KindEnd {
			return end.frame(f)
		}
		if _, err := to.Write(raw); err != nil {
			return err
		}
		return f.sum(sums)
	})
	if err != nil || !cut {
		return err
	}
	text := cutOff
	if len(sums) == 0 {
		return fmt.Errorf("%s: no frame is complete", path)
	}
	for source, sum := range sums {
		sum.Torn = &text
		end.add(source, *sum)
	}
	return nil
}

// sum makes totals of a frame's counts, for a file without an end: the start of its first request is not known, nor are bad
// lines.
func (f *Frame) sum(sums map[Source]*Totals) error {
	counts, rows, err := f.Of(TableCounts)
	if err != nil {
		return err
	}
	seconds, ticks, err := f.Of(TableSeconds)
	for i := 0; i < rows; i++ {
		source := f.Sources[counts[countsSource].At(i)]
		if sums[source] == nil {
			sums[source] = &Totals{}
		}
		sums[source].Rows += counts[countsN].At(i) + counts[countsFailed].At(i)
		sums[source].Errors += counts[countsFailed].At(i)
	}
	for i := 0; i < ticks && err == nil; i++ {
		if sum := sums[f.Sources[seconds[secondsSource].At(i)]]; sum != nil && seconds[secondsN].At(i) > 0 {
			if first := seconds[secondsFirst].At(i); sum.FirstStart == 0 || first < sum.FirstStart {
				sum.FirstStart = first
			}
			sum.LastEnd = max(sum.LastEnd, seconds[secondsLast].At(i))
		}
	}
	return err
}

func dirOf(path string) string {
	if at := strings.LastIndexByte(path, '/'); at >= 0 {
		return path[:at+1]
	}
	return "."
}

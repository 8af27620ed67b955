package aggregates

import (
	"bytes"
	"errors"
	"hash/adler32"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// sample is a frame with a row in every table.
func sampleFrame(kind string) *Frame {
	f := NewFrame(kind, 1, []Source{{"job", "warp", "node", "phase"}})
	if kind == KindEnd {
		torn := "why"
		f.Totals = []Totals{{Rows: 3, Errors: 1, Bad: 2, Torn: &torn, FirstStart: 5, LastEnd: 9}}
		f.Table(TableThreads, 1).Set(0, 0, 1<<31, 9)
		return f
	}
	f.Ops, f.Endpoints, f.Errors = []string{"GET"}, []string{"http://rgw1"}, []string{"refused"}
	f.Table(TableCounts, 1).Set(0, 1795251988, 0, 0, 0, 13, 2, 1, 2, 8192, 3000, 1000, 2000, 7, 7, 7, 1, 500, 500, 500)
	latency := f.Table(TableLatency, 2)
	latency.Set(0, 0, 1000, 1)
	latency.Set(1, 0, 2000, 1)
	f.Table(TableTTFB, 1).Set(0, 0, 500, 1)
	f.Table(TableFailed, 1).Set(0, 0, 7, 1)
	f.Table(TableSeconds, 1).Set(0, 1795251988, 0, 0, 2, 1, 2, 8192, 3000, 2000, 1795251988000000001, 1795251988000000009, 3007, 0)
	f.Table(TableErrors, 1).Set(0, 1795251988, 0, 0, 0, 0, 1)
	return f
}

func encodedFrames(t testing.TB, frames ...*Frame) []byte {
	t.Helper()
	var all []byte
	for _, f := range frames {
		data, err := f.Encode()
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data...)
	}
	return all
}

func TestFramesComeBackAsTheyWere(t *testing.T) {
	counts, end := sampleFrame(KindCounts), sampleFrame(KindEnd)
	r := NewReader(bytes.NewReader(encodedFrames(t, counts, end)))
	for _, want := range []*Frame{counts, end} {
		got, err := r.Next()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v\n%+v\n%+v", err, got, want)
		}
	}
	if _, err := r.Next(); err != io.EOF {
		t.Fatalf("after the last frame: %v", err)
	}
}

func TestTornAtEveryByte(t *testing.T) {
	one := encodedFrames(t, sampleFrame(KindCounts))
	data := append(bytes.Clone(one), encodedFrames(t, sampleFrame(KindEnd))...)
	for cut := range data {
		r := NewReader(bytes.NewReader(data[:cut]))
		_, err := r.Next()
		if cut >= len(one) {
			if err != nil {
				t.Fatal(err)
			}
			_, err = r.Next()
		}
		if atBorder := cut == 0 || cut == len(one); atBorder && err != io.EOF || !atBorder && !errors.Is(err, ErrTorn) {
			t.Fatalf("cut at %d of %d: %v", cut, len(data), err)
		}
	}
}

func TestDamageIsNoticed(t *testing.T) {
	data := encodedFrames(t, sampleFrame(KindCounts), sampleFrame(KindEnd))
	for i := range encodedFrames(t, sampleFrame(KindCounts)) {
		damaged := bytes.Clone(data)
		damaged[i] ^= 0x10
		if _, err := NewReader(bytes.NewReader(damaged)).Next(); err == nil {
			t.Fatalf("a damaged byte %d was not noticed", i)
		}
	}
}

func TestIndexesThatPointNowhere(t *testing.T) {
	for name, at := range map[string]int{TableCounts: 2, TableLatency: 0, TableSeconds: 1, TableErrors: 4} {
		f := sampleFrame(KindCounts)
		for i, def := range f.Tables {
			if def.Name == name {
				Column{f.Columns[i][at], width(def.Columns[at][1])}.Set(0, 1)
			}
		}
		if _, _, err := f.Of(name); err == nil || !strings.Contains(err.Error(), "points nowhere") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestChecksumOfParts(t *testing.T) {
	data := make([]byte, 200000)
	rand.New(rand.NewSource(1)).Read(data)
	for _, cut := range []int{0, 1, 65520, 65521, 65522, 131042, len(data)} {
		got := combine(adler32.Checksum(data[:cut]), adler32.Checksum(data[cut:]), len(data)-cut)
		if want := adler32.Checksum(data); got != want {
			t.Errorf("cut at %d: %x, not %x", cut, got, want)
		}
	}
}

func TestJoinFiles(t *testing.T) {
	folder := t.TempDir()
	var paths []string
	for i, frames := range [][]*Frame{{sampleFrame(KindCounts), sampleFrame(KindEnd)}, {sampleFrame(KindCounts)}} {
		paths = append(paths, filepath.Join(folder, string(rune('a'+i))))
		if err := os.WriteFile(paths[i], encodedFrames(t, frames...), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	out := filepath.Join(folder, "out")
	if err := JoinFiles(out, paths); err != nil {
		t.Fatal(err)
	}
	var frames []*Frame
	cut, err := each(out, func(f *Frame, _ []byte) error { frames = append(frames, f); return nil })
	if err != nil || cut || len(frames) != 3 {
		t.Fatal(err, cut, len(frames))
	}
	total := frames[2].Totals[0]
	if total.Rows != 6 || total.Errors != 2 || total.Bad != 2 || *total.Torn != "why; "+cutOff || total.FirstStart != 5 {
		t.Errorf("%+v, %s", total, *total.Torn)
	}
	if left, _ := filepath.Glob(filepath.Join(folder, ".merge*")); left != nil {
		t.Errorf("left behind: %v", left)
	}
	if err := JoinFiles(out, []string{filepath.Join(folder, "none")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.WriteFile(paths[0], []byte("idx\tthread\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := JoinFiles(out, paths); err == nil || !strings.Contains(err.Error(), "not an aggregates file") {
		t.Errorf("rows are no aggregates: %v", err)
	}
	if err := os.WriteFile(paths[0], []byte("CBTF\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := JoinFiles(out, paths); err == nil || !strings.Contains(err.Error(), "older version") {
		t.Errorf("an older file: %v", err)
	}
}

// full is a disk without room.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, syscall.ENOSPC }

func TestATableThatCannotBeWrittenIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "aggregates.bin")
	if err := os.WriteFile(path, encodedFrames(t, sampleFrame(KindCounts), sampleFrame(KindEnd)), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, err := range map[string]error{
		"show":   Show(full{}, []string{path}),
		"export": Export(full{}, TableCounts, []string{path}),
	} {
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	data := encodedFrames(f, sampleFrame(KindCounts), sampleFrame(KindEnd))
	f.Add(data, false)
	f.Add([]byte("\x1e\x00\x00\x00{\"bits\":11,\"tables\":[{\"rows\":9}]}"), true)
	f.Fuzz(func(t *testing.T, data []byte, payload bool) {
		var frames []*Frame
		if payload {
			if frame, err := parse(data); err == nil {
				frames = append(frames, frame)
			}
		} else {
			r := NewReader(bytes.NewReader(data))
			for frame, err := r.Next(); err == nil; frame, err = r.Next() {
				frames = append(frames, frame)
			}
		}
		path := filepath.Join(t.TempDir(), "x")
		for _, frame := range frames {
			again, err := frame.Encode()
			if err != nil {
				continue
			}
			if err := os.WriteFile(path, again, 0o666); err != nil {
				t.Fatal(err)
			}
			Show(io.Discard, []string{path})
			for name := range tables {
				Export(io.Discard, name, []string{path})
			}
			JoinFiles(path+"m", []string{path})
		}
	})
}

func TestBucketsOfBothVersionsAreTheSame(t *testing.T) {
	want := []int64{7, 50_000, 3, 40_000}
	steps, buckets := sampleFrame(KindCounts), sampleFrame(KindCounts)
	for f, columns := range map[*Frame][][2]string{steps: writtenHistogram, buckets: histogram} {
		at := slices.IndexFunc(f.Tables, func(def TableDef) bool { return def.Name == TableLatency })
		f.Tables[at] = TableDef{TableLatency, len(want), columns}
		size, before := width(columns[1][1]), int64(0)
		data := [][]byte{make([]byte, 4*len(want)), make([]byte, size*len(want)), make([]byte, 4*len(want))}
		for i, bucket := range want {
			value := bucket
			if f == steps {
				value = bucket - before
			}
			Column{data[1], size}.Set(i, value)
			before = bucket
		}
		f.Columns[at] = data
		raw := encodedFrames(t, f)
		if f == buckets {
			raw[4] = oldest
		}
		got, err := NewReader(bytes.NewReader(raw)).Next()
		if err != nil {
			t.Fatal(err)
		}
		table, rows, err := got.Of(TableLatency)
		if err != nil || rows != len(want) {
			t.Fatal(err, rows)
		}
		for i, bucket := range want {
			if table[histogramBucket].At(i) != bucket {
				t.Errorf("version %d: bucket %d is %d, not %d", raw[4], i, table[histogramBucket].At(i), bucket)
			}
		}
	}
}

package reduce

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"cbt-plugins/companion/internal/aggregates"
	"cbt-plugins/companion/internal/rows"
)

// rowsText is rows with some errors, a few of them over several lines.
func rowsText(n int) string {
	var b strings.Builder
	chance := rand.New(rand.NewSource(1))
	b.WriteString(rows.Header + "\n")
	for i := range n {
		failed := ""
		if chance.Intn(20) == 0 {
			failed = []string{"503 SlowDown", "\"Put \"\"http://a\"\": refused\"", "\"two\nlines\""}[chance.Intn(3)]
		}
		end := 10_000_000_000 + i*1_000_000 + chance.Intn(1e8)
		fmt.Fprintf(&b, "%d\t%d\tGET\t\t1\t4096\thttp://rgw%d:7480\ta/%d\t%s\t2026-11-21T09:06:08Z\t\t2026-11-21T09:%02d:%02d.%09dZ\t%d\t0\n", i,
			i%7, i%3, i, failed, 6+end/60e9, end/1e9%60, end%1e9, 1+chance.Intn(1e9))
	}
	return b.String()
}

func packed(t *testing.T, rows string) []byte {
	t.Helper()
	packer, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	return packer.EncodeAll([]byte(rows), nil)
}

func put(t *testing.T, name string, data []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o666); err != nil {
		t.Fatal(err)
	}
	return path
}

// table is what one exported table of a file says, and its totals.
func table(t *testing.T, path, name string) string {
	t.Helper()
	var b bytes.Buffer
	if err := aggregates.Export(&b, name, []string{path}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func options(t *testing.T) *Options {
	return &Options{Block: 1, Out: filepath.Join(t.TempDir(), "out.aggregates")}
}

// slowly gives a few bytes at a time.
type slowly struct{ from io.Reader }

func (s slowly) Read(p []byte) (int, error) { return s.from.Read(p[:min(len(p), 1+rand.Intn(5000))]) }

func TestAStreamIsReducedAsAFile(t *testing.T) {
	rows := rowsText(3000)
	file, stream := options(t), options(t)
	stream.Keep, stream.Beat = filepath.Join(t.TempDir(), "kept.csv.zst"), true
	if err := Files([]string{put(t, "rows.csv.zst", packed(t, rows))}, file); err != nil {
		t.Fatal(err)
	}
	var counts bytes.Buffer
	if err := Stream(slowly{strings.NewReader(rows)}, &counts, stream); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"counts", "latency", "seconds", "errors"} {
		if table(t, file.Out, name) != table(t, stream.Out, name) {
			t.Errorf("another table %s", name)
		}
	}
	lines := strings.Split(strings.TrimSpace(counts.String()), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, `"rows":3000`) || !strings.Contains(last, `"end":true`) {
		t.Errorf("the last line of counts: %s", last)
	}
	again := options(t)
	if err := Files([]string{stream.Keep}, again); err != nil {
		t.Fatal(err)
	}
	if table(t, file.Out, "latency") != table(t, again.Out, "latency") {
		t.Error("the kept text are other ones")
	}
}

// Whoever reads the counts can say why nothing succeeds.
func TestCountsHaveTheFirstError(t *testing.T) {
	text := strings.ReplaceAll(rowsText(50), "503 SlowDown", "\"\"")
	first := strings.Index(text, "\t1\t4096\t")
	failed := text[:first] + strings.Replace(text[first:], "\t\t2026", "\t403 AccessDenied\t2026", 1)
	o := options(t)
	o.Beat = true
	var counts bytes.Buffer
	if err := Stream(strings.NewReader(failed), &counts, o); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(counts.String(), `"error":"403 AccessDenied"`) {
		t.Errorf("the first error is missing: %s", counts.String())
	}
}

// Many chunks and frames, of a text and of its two halves.
func TestManyChunks(t *testing.T) {
	text := rowsText(6000)
	whole, halves := options(t), options(t)
	if err := Files([]string{put(t, "text.csv", []byte(text))}, whole); err != nil {
		t.Fatal(err)
	}
	cut := len(text)/2 + strings.Index(text[len(text)/2:], "\t0\n") + 3
	paths := []string{put(t, "one", []byte(text[:cut])), put(t, "two", packed(t, rows.Header+"\n"+text[cut:]))}
	if err := files(paths, halves, sizes{5000, 3}); err != nil {
		t.Fatal(err)
	}
	if want, got := total(t, whole.Out), total(t, halves.Out); !maps.Equal(want, got) {
		t.Errorf("halves are not the whole: %d and %d keys", len(got), len(want))
	}
	if strings.Count(table(t, halves.Out, "seconds"), "\n") <= strings.Count(table(t, whole.Out, "seconds"), "\n") {
		t.Error("there was one frame only")
	}
}

// total adds up the histogram of latencies, whose frames may have the same keys.
func total(t *testing.T, path string) map[string]int {
	t.Helper()
	sums := map[string]int{}
	for _, line := range strings.Split(table(t, path, "latency"), "\n")[1:] {
		at := strings.LastIndexByte(line, ',') + 1
		n, _ := strconv.Atoi(line[at:])
		sums[line[:at]] += n
	}
	return sums
}

func TestLinesWithoutEnd(t *testing.T) {
	rows, garbage := rowsText(10), bytes.Repeat([]byte("x"), 3*longestLine)
	o := options(t)
	first := strings.LastIndex(rows[:len(rows)-1], "\t0\n") + 3
	data := append(append(append([]byte(rows[:first]), garbage...), '\n'), rows[first:]...)
	for name, live := range map[string]bool{"file": false, "stream": true} {
		var err error
		if live {
			err = Stream(bytes.NewReader(data), io.Discard, o)
		} else {
			err = Files([]string{put(t, "rows", data)}, o)
		}
		end := endOf(t, o.Out)
		if err != nil || end.Rows != 10 || end.Bad != 1 || end.Torn != nil {
			t.Errorf("%s: %v, %+v", name, err, end)
		}
	}
}

func endOf(t *testing.T, path string) aggregates.Totals {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for r := aggregates.NewReader(file); ; {
		f, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if f.Kind == aggregates.KindEnd {
			return f.Totals[0]
		}
	}
}

func TestAFailingInputIsNamedAndItsRowsCount(t *testing.T) {
	o := options(t)
	from := io.MultiReader(strings.NewReader(rowsText(100)), broken{})
	err := Stream(from, io.Discard, o)
	if !errors.Is(err, ErrInput) || endOf(t, o.Out).Rows != 100 {
		t.Errorf("%v, %+v", err, endOf(t, o.Out))
	}
	err = Files([]string{"/nowhere/rows.csv", t.TempDir(), put(t, "rows", []byte(rowsText(7)))}, o)
	if !errors.Is(err, ErrInput) || endOf(t, o.Out).Rows != 7 {
		t.Errorf("%v, %+v", err, endOf(t, o.Out))
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("a broken pipe of some kind") }

func TestAFullDiskDoesNotStopTheStream(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	var counts bytes.Buffer
	err := Stream(strings.NewReader(rowsText(1000)), &counts, &Options{Block: 1, Out: "/dev/full", Keep: "/dev/full", Beat: true})
	if !errors.Is(err, ErrOutput) || !strings.Contains(counts.String(), `"rows":1000`) {
		t.Errorf("%v, %s", err, counts.String())
	}
}

func TestAFullDiskIsToldWhileRowsCome(t *testing.T) {
	if _, err := os.Stat("/dev/full"); err != nil {
		t.Skip("there is no /dev/full")
	}
	from, generator := io.Pipe()
	told, counts := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- Stream(from, counts, &Options{Block: 1, Out: filepath.Join(t.TempDir(), "out"), Keep: "/dev/full", Beat: true})
		counts.Close()
	}()
	for line := range strings.Lines(rowsText(10)) {
		if _, err := io.WriteString(generator, line); err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewScanner(told)
	for i := 0; i < 5 && lines.Scan() && !strings.Contains(lines.Text(), "no space left"); i++ {
	}
	if !strings.Contains(lines.Text(), `"lost":"cannot write: write /dev/full: no space left on device"`) {
		t.Errorf("while rows come it says %s", lines.Text())
	}
	generator.Close()
	for lines.Scan() {
	}
	if err := <-ended; !errors.Is(err, ErrOutput) {
		t.Error(err)
	}
}

// Each byte, or with -short every ninth and the last.
func step() int {
	if testing.Short() {
		return 9
	}
	return 1
}

// A record counts with its line end only: whatever a torn one holds may lack a digit.
func TestTornAtEveryByteOfTheLastRecord(t *testing.T) {
	line := "0\t1\tPUT\t\t1\t5\thttp://a\tf\t%s\t2026-11-21T09:06:08Z\t\t2026-11-21T09:06:09.5Z\t250000000\t0\n"
	for _, message := range []string{"", "plain", "\"a \"\"quoted\"\" tab\there\"", "\"two\nlines\"", "\"all\t\"\"of\nit\"\"\""} {
		before, last := rows.Header+"\n"+fmt.Sprintf(line, "")+fmt.Sprintf(line, "\"x\ty\""), fmt.Sprintf(line, message)
		for cut := 0; cut <= len(last); cut += min(step(), max(1, len(last)-cut)) {
			o := options(t)
			if err := Files([]string{put(t, "rows", []byte(before+last[:cut]))}, o); err != nil {
				t.Fatal(err)
			}
			want, whole := int64(2), cut == 0 || last[cut-1] == '\n'
			if cut == len(last) {
				want = 3
			}
			if end := endOf(t, o.Out); end.Rows != want || (end.Torn == nil) != whole {
				t.Fatalf("%q: %+v", last[:cut], end)
			}
		}
	}
}

func TestGzipCutAtEveryByteGivesOnlyWholeRows(t *testing.T) {
	var data bytes.Buffer
	packer := gzip.NewWriter(&data)
	for _, line := range strings.SplitAfter(rowsText(6), "\n") {
		packer.Write([]byte(line))
		packer.Flush()
	}
	packer.Close()
	before := int64(0)
	for cut := 2; cut < data.Len(); cut += min(step(), max(1, data.Len()-1-cut)) {
		o := options(t)
		if err := Files([]string{put(t, "rows", data.Bytes()[:cut])}, o); err != nil {
			t.Fatal(err)
		}
		end := endOf(t, o.Out)
		if end.Rows < before || end.Torn == nil {
			t.Fatalf("%d bytes: %+v", cut, end)
		}
		before = end.Rows
	}
	if before != 6 {
		t.Errorf("%d rows", before)
	}
}

func TestRowsOfOneClient(t *testing.T) {
	text := strings.Replace(rowsText(40), "GET\t\t", "GET\tone\t", 11) + "# warp get\nno row\n"
	path := put(t, "rows", []byte(text))
	for name, want := range map[string]int64{"one": 11, "": 29} {
		o := options(t)
		o.Client = &name
		if err := Files([]string{path}, o); err != nil {
			t.Fatal(err)
		}
		if end := endOf(t, o.Out); end.Rows != want || end.Bad != 1 || end.Command != "warp get" {
			t.Errorf("%q: %+v", name, end)
		}
	}
	o := options(t)
	if err := Files([]string{path}, o); err != nil {
		t.Fatal(err)
	}
	if end := endOf(t, o.Out); end.Rows != 40 || strings.Join(end.Clients, ",") != ",one" {
		t.Errorf("%+v", end)
	}
}

func TestLinesOfSumsAddUpWithoutHistograms(t *testing.T) {
	o := options(t)
	o.Beat = true
	text := rows.Header + "\n" +
		"sum\tGET\thttp://r1\t2026-11-21T09:06:08.5Z\t10\t2\t40960\t50000000\t1000000\t9000000\tNoSuchKey\n" +
		"sum\tGET\thttp://r1\t2026-11-21T09:06:08.7Z\t0\t1\t0\t0\t0\t0\tNoSuchKey\n" +
		"sum\tGET\thttp://r1\t2026-11-21T09:06:08.7Z\tx\t1\t0\t0\t0\t0\tNoSuchKey\n" +
		"sum\tGET\thttp://r1\t2026-11-21T09:06:08.7Z\t0\t0\t0\t0\t0\t0\t\n"
	var said bytes.Buffer
	if err := Stream(strings.NewReader(text), &said, o); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if last := lines[len(lines)-1]; !strings.Contains(last, `"rows":13`) || !strings.Contains(last, `"GET":[10,3,40960,50000000,`) {
		t.Error(last)
	}
	if counts := table(t, o.Out, "counts"); !strings.Contains(counts, ",13,10,2,10,40960,50000000,1000000,9000000,") {
		t.Error(counts)
	}
	if errors := table(t, o.Out, "errors"); !strings.Contains(errors, "NoSuchKey,3\n") {
		t.Error(errors)
	}
	if latency := table(t, o.Out, "latency"); strings.Count(latency, "\n") != 1 {
		t.Error("sums are in no histogram:", latency)
	}
	var show bytes.Buffer
	if err := aggregates.Show(&show, []string{o.Out}); err != nil || !strings.Contains(show.String(), "2 lines that are not rows") {
		t.Error(err, show.String())
	}
}

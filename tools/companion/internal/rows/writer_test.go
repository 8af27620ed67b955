package rows

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestTimesAreThoseOfTheLibrary(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	check := func(ns int64) {
		want := time.Unix(0, ns).UTC().Format("2006-01-02T15:04:05.000000000Z")
		if got := string(AppendTime(nil, ns)); got != want {
			t.Fatalf("%d: %s, want %s", ns, got, want)
		}
	}
	for range 20000 {
		check(random.Int64())
	}
	for day := int64(0); day < 100*366; day++ {
		check(day * 86400e9)
		check(day*86400e9 - 1 + 86400e9)
	}
}

func TestRowHasTheColumnsOfWarp(t *testing.T) {
	one := Request{Thread: 3, Op: "GET", Objects: 1, Bytes: 4096, Endpoint: "http://rgw1:7480", File: "cbt-load/01-4KiB/0000000017",
		Start: 1795251988059836645, First: 1795251988060000000, End: 1795251988096048237, Duration: 36211592}
	want := "17\t3\tGET\t\t1\t4096\thttp://rgw1:7480\tcbt-load/01-4KiB/0000000017\t\t2026-11-21T09:06:28.059836645Z\t" +
		"2026-11-21T09:06:28.060000000Z\t2026-11-21T09:06:28.096048237Z\t36211592\t0\n"
	if got := string(Append(nil, 17, &one)); got != want {
		t.Fatalf("%q\n%q", got, want)
	}
	if columns := strings.Count(Header, "\t"); strings.Count(want, "\t") != columns {
		t.Fatalf("%d tabs in the columns", columns)
	}
}

func TestNothingInARowBreaksIt(t *testing.T) {
	one := Request{Op: "GET", File: "a\tb\"c\nd\re", Err: "http: 503 \"slow\tdown\"\r\n"}
	got := string(Append(nil, 0, &one))
	if strings.Count(got, "\t") != 13 || strings.Count(got, "\n") != 1 || strings.ContainsAny(got, "\"\r") {
		t.Fatalf("%q", got)
	}
}

func TestEveryRowIsWrittenOnce(t *testing.T) {
	var out bytes.Buffer
	rows := NewWriter(&out, 8)
	var group sync.WaitGroup
	for worker := range 8 {
		group.Add(1)
		go func() {
			defer group.Done()
			for i := range 5000 {
				rows.Add(worker, &Request{Thread: uint32(worker), Op: "PUT", Bytes: int64(i)})
			}
		}()
	}
	group.Wait()
	if err := rows.Close(time.Minute); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	indexes := map[string]bool{}
	for line := range strings.Lines(out.String()) {
		fields := strings.Split(line, "\t")
		indexes[fields[0]] = true
		seen[fields[1]+" "+fields[5]] = true
	}
	if len(seen) != 40000 || len(indexes) != 40000 || !indexes["39999"] {
		t.Fatalf("%d rows, %d indexes", len(seen), len(indexes))
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestAClosedOutputIsSaid(t *testing.T) {
	rows := NewWriter(broken{}, 1)
	rows.Add(0, &Request{Op: "PUT"})
	<-rows.Broken()
	for range 100000 { // nobody waits for a reader that is gone
		rows.Add(0, &Request{Op: "PUT", File: strings.Repeat("x", 100)})
	}
	if err := rows.Close(time.Minute); err == nil {
		t.Fatal("no error")
	}
}

func TestAReaderThatStopsReadingHoldsUpNobodyForever(t *testing.T) {
	reader, writer := io.Pipe() // nobody reads
	defer reader.Close()
	rows := NewWriter(writer, 1)
	rows.Add(0, &Request{Op: "PUT"})
	if err := rows.Close(10 * time.Millisecond); err == nil {
		t.Fatal("no error")
	}
}

func TestSlowReaderGetsEverything(t *testing.T) {
	reader, writer := io.Pipe()
	rows := NewWriter(writer, 1)
	go func() {
		for range 60000 { // several times what may be unwritten
			rows.Add(0, &Request{Op: "PUT", File: strings.Repeat("x", 100)})
		}
		rows.Close(time.Minute)
		writer.Close()
	}()
	all, err := io.ReadAll(reader)
	if err != nil || bytes.Count(all, []byte("\n")) != 60000 {
		t.Fatal(err, bytes.Count(all, []byte("\n")))
	}
}

func BenchmarkAppend(b *testing.B) {
	one := Request{Thread: 3, Op: "GET", Objects: 1, Bytes: 4096, Endpoint: "http://rgw1:7480", File: "cbt-load/01-4KiB/0000000017",
		Start: 1795251988059836645, First: 1795251988060000000, End: 1795251988096048237, Duration: 36211592}
	buffer := make([]byte, 0, 512)
	b.ReportAllocs()
	for b.Loop() {
		buffer = Append(buffer[:0], 17, &one)
	}
}

package rows

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	get   = "17\t3\tGET\t\t1\t4096\thttp://rgw1:7480\ta/1\t\t2026-11-21T09:06:28.059836645Z\t2026-11-21T09:06:28.06Z\t2026-11-21T09:06:28.096048237Z\t36211601\t0\n"
	list1 = "18\t4\tLIST\tQxYz\t1000\t0\thttp://rgw1:7480\t\t\t2026-11-21T11:06:28.5+02:00\t2026-11-21T09:06:29Z\t2026-11-21T09:06:30Z\t1500000000\t0\n"
	bad   = "19\t5\tPUT\t\t1\t4096\thttp://rgw2:7480\ta/2\t\"Put \"\"http://a\"\": no\nroute\"\t2026-11-21T09:06:28Z\t\t2026-11-21T09:06:29Z\t1000000000\t0\n"
)

// read gives every row of a text as a string, and the number of bad lines.
func read(t testing.TB, c *Columns, text string) ([]string, int64) {
	t.Helper()
	r, rows := NewReader(c), []string{}
	end := strings.LastIndexByte(text, '\n') + 1
	chunk := append([]byte(text[:end]), make([]byte, Room)...)
	r.Chunk(chunk, end, func(r *Row) { rows = append(rows, r.String()) })
	r.End()
	return rows, r.Bad
}

func (r *Row) String() string {
	return fmt.Sprintf("%d %s %d %d %s %q %d %d %d", r.Thread, r.Op, r.Objects, r.Bytes, r.Endpoint, r.Err, r.End, r.Duration,
		r.FirstByte)
}

func columns(t testing.TB, header string) *Columns {
	t.Helper()
	c, err := OfHeader(header)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRows(t *testing.T) {
	rows, bad1 := read(t, columns(t, Header), get+list1+"# warp mixed\n\n"+Header+"\n"+bad+"warp: 1\t2\n")
	want := []string{
		`3 GET 1 4096 http://rgw1:7480 "" 1795251988096048237 36211601 163355`,
		`4 LIST 1 0 http://rgw1:7480 "" 1795251990000000000 1500000000 500000000`,
		`5 PUT 1 4096 http://rgw2:7480 "Put \"http://a\": no\nroute" 1795251989000000000 1000000000 -1`,
	}
	if !slices.Equal(rows, want) || bad1 != 1 {
		t.Errorf("%d bad lines, rows\n%s", bad1, strings.Join(rows, "\n"))
	}
}

// headers of all versions, with a row of each
func versions() map[string]string {
	without := strings.TrimSuffix(get, "\t0\n") + "\n"
	last := strings.Replace(get, "\t2026-11-21T09:06:28.096048237Z", "\t2026-11-21T09:06:28.09Z\t2026-11-21T09:06:28.096048237Z", 1)
	return map[string]string{
		Header:                              get,
		strings.TrimSuffix(Header, "\tcat"): without,
		strings.Replace(Header, "\tend\t", "\tlast_byte\tend\t", 1): last,
	}
}

func TestVersions(t *testing.T) {
	for header, line := range versions() {
		c := columns(t, header)
		rows, bad := read(t, c, line)
		if len(rows) != 1 || bad != 0 || rows[0] != `3 GET 1 4096 http://rgw1:7480 "" 1795251988096048237 36211601 163355` {
			t.Errorf("%s: %v, %d bad", header, rows, bad)
		}
		for _, before := range []string{"", "# warp get\n", "\n", "warp: <ERROR> a message\n\n", "1\t2\n", header + "\n"} {
			found, is, known, err := Of([]byte(before + line))
			if err != nil || is != strings.HasPrefix(before, "idx") || !known || found.width != c.width || found.end != c.end {
				t.Errorf("%q before a row of %d columns: found %d, %v, %v, %v", before, c.width, found.width, is, known, err)
			}
		}
	}
	for _, line := range versions() { // a first request that failed, as it comes from a generator
		failed := strings.Replace(line, "\t\t2026", "\t\"Put \"\"a\"\":\tno\nroute\"\t2026", 1)
		found, _, known, err := Of([]byte(failed))
		if want := strings.Count(line, "\t") + 1; failed == line || err != nil || !known || found.width != want {
			t.Errorf("%q: %d columns, %v, %v", failed, found.width, known, err)
		}
		if _, _, known, _ := Of([]byte(failed[:strings.Index(failed, "route")])); known {
			t.Errorf("%q: known before its end", failed)
		}
	}
	c := columns(t, "idx\tthread\top\tn_objects\tbytes\tfile\terror\tstart\tend\tduration_ns") // of November 2019
	rows, bad := read(t, c, "0\t12\tPUT\t1\t4096\ta/1\t\t2019-11-13T15:54:56.2349003+01:00\t2019-11-13T15:54:56.3478984+01:00\t112998100\n")
	if len(rows) != 1 || bad != 0 || rows[0] != `12 PUT 1 4096  "" 1573656896347898400 112998100 -1` {
		t.Errorf("%v, %d bad", rows, bad)
	}
	if _, err := OfHeader("idx\tthread\top"); err == nil || !strings.Contains(err.Error(), "n_objects, bytes") {
		t.Errorf("missing columns: %v", err)
	}
}

func TestTimes(t *testing.T) {
	for text, want := range map[string]int64{
		"1970-01-01T00:00:00Z": 0, "1970-01-01T00:00:00.000000001Z": 1, "2024-02-29T23:59:59.5Z": 1709251199500000000,
		"2026-11-21T07:10:47.14016431Z": 1795245047140164310, "2026-11-21T08:10:47.1401643109+01:00": 1795245047140164310,
		"2026-11-21T01:40:47.12345678-05:30": 1795245047123456780, "2026-11-21T07:10:47.Z": 1795245047000000000,
		"2026-02-29T00:00:00Z": -1, "2026-11-21T07:10:60Z": -1, "2026-11-21T07:60:00Z": -1, "2026-11-21T24:00:00Z": -1,
		"2026-11-21 07:10:00Z": -1, "2026-11-21T07:10:47": -1, "2026-11-21T07:10:47.5": -1, "2026-11-21T07:10:47+1:00": -1,
		"1969-12-31T23:59:59Z": -1, "2262-01-01T00:00:00Z": -1, "2026-11-21T07:10:47,5Z": -1, "2026-11-21T07:10:4xZ": -1,
		"2026-11-21T07:10:47+24:00": -1, "2026-11-21T07:10:47.5ZZ": -1, "": -1,
	} {
		l := line{}
		got, ok := l.time([]byte(text))
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q is %d, %v", text, got, ok)
		}
	}
}

func TestNumbers(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "7": 7, "12345678": 12345678, "123456789": 123456789, "999999999999999999": 999999999999999999,
		"1000000000000000000": -1, "": -1, "-1": -1, "+1": -1, "1x": -1, "1 ": -1,
	} {
		l := line{}
		if got, ok := l.number([]byte(text)); ok != (want >= 0) || ok && got != want {
			t.Errorf("%q is %d, %v", text, got, ok)
		}
	}
}

// Rows of works are known by their looks from the first one on, and a LIST is one object in them, too.
func TestRowsOfWorks(t *testing.T) {
	for op, is := range map[string]bool{
		"readers:GET": true, "a-2:LIST": true, "GET": true, "Readers:GET": false, "a b:GET": false, "a:get": false, "a:": false, ":GET": true,
	} {
		line := strings.Replace(get, "\tGET\t", "\t"+op+"\t", 1)
		if _, _, found, _ := Of([]byte(line)); found != is {
			t.Errorf("%s: found %v", op, found)
		}
	}
	for _, op := range []string{"LIST", "readers:LIST"} {
		text := strings.Replace(list1, "\tLIST\t", "\t"+op+"\t", 1)
		chunk := append([]byte(text), make([]byte, Room)...)
		NewReader(columns(t, Header)).Chunk(chunk, len(text), func(r *Row) {
			if string(r.Op) != op || r.Objects != 1 {
				t.Errorf("%s has %d objects", r.Op, r.Objects)
			}
		})
	}
}

func TestCutWhereNoRecordIsOpen(t *testing.T) {
	c := columns(t, Header)
	quotes := strings.Repeat(bad, 20)
	for text, want := range map[string]int{
		get + list1 + get[:30]: len(get + list1), "": 0, "17\t3": 0, get + bad[:80]: len(get), get + quotes: len(get + quotes),
		quotes + bad[:100]: len(quotes), "warp: x\n" + get[:9]: 8, get + bad + bad[:strings.IndexByte(bad, '\n')+1]: len(get),
		bad + bad[:strings.IndexByte(bad, '\n')+1]: len(bad),
	} {
		if got := c.Cut([]byte(text)); got != want {
			t.Errorf("cut at %d, not %d: %q", got, want, text)
		}
	}
}

func FuzzChunks(f *testing.F) {
	for header, line := range versions() {
		f.Add(header, line+line, 3)
	}
	f.Add(Header, get+list1+bad+get, 100)
	f.Add(Header, strings.Repeat(bad, 3)+"# warp\n\"\n"+get, 200)
	f.Add(Header, bad[:80]+"\n"+get+bad+"warp: 1\n\r\n", 150)
	f.Fuzz(func(t *testing.T, header, text string, at int) {
		c, err := OfHeader(header)
		if err != nil {
			return
		}
		rows, bad := read(t, c, text)
		slow := *c
		slow.between = -1 // every line field by field
		again, badAgain := read(t, &slow, text)
		if !strings.Contains(text, `"`) && (!slices.Equal(rows, again) || bad != badAgain) {
			t.Fatalf("%d bad, %d when read slowly; rows\n%v\n%v", bad, badAgain, rows, again)
		}
		// in two chunks, each read without the other
		cut := c.Cut([]byte(text[:min(max(at, 0), len(text))]))
		if cut > 0 {
			first, badFirst := read(t, c, text[:cut])
			second, badSecond := read(t, c, text[cut:])
			if !slices.Equal(rows, append(first, second...)) || bad != badFirst+badSecond {
				t.Fatalf("cut at %d: %d+%d bad, not %d; rows\n%v\n%v", cut, badFirst, badSecond, bad, rows, append(first, second...))
			}
		}
	})
}

func FuzzTime(f *testing.F) {
	f.Add("2026-11-21T07:10:47.14016431Z")
	f.Add("2026-11-21T07:10:47.5+01:00")
	f.Fuzz(func(t *testing.T, text string) {
		l := line{}
		got, ok := l.time([]byte(text))
		if want, err := time.Parse(time.RFC3339Nano, text); ok && err == nil && want.UnixNano() != got {
			t.Fatalf("%q is %d, not %d", text, got, want.UnixNano())
		} else if ok && err != nil && !strings.Contains(text, ".Z") && !strings.Contains(text, ".+") && !strings.Contains(text, ".-") {
			t.Fatalf("%q is no time: %v", text, err)
		}
	})
}

func BenchmarkRows(b *testing.B) {
	text := bytes.Repeat([]byte(get+strings.Replace(get, "rgw1", "rgw2", 1)), 1000)
	text = append(text, make([]byte, Room)...)
	r := NewReader(columns(b, Header))
	b.SetBytes(int64(len(text) - Room))
	for b.Loop() {
		r.Chunk(text, len(text)-Room, func(*Row) {})
	}
}

package drive

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"cbt-plugins/companion/internal/s3"
)

// times are the rows' starts, in seconds since the run's, and durations.
func times(t *testing.T, got *outcome) (starts, durations []float64) {
	t.Helper()
	for _, fields := range got.rows {
		at, err := time.Parse(time.RFC3339Nano, fields[9])
		if err != nil {
			t.Fatal(err)
		}
		ns, err := strconv.ParseInt(fields[12], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		starts = append(starts, epoch(at)-got.end.Began)
		durations = append(durations, float64(ns)/1e9)
	}
	return starts, durations
}

// Two workers of 20 ms each make 100 a second: of 200 a second half must wait, and their latency says so.
func TestOpenLoopCountsFromTheIntendedStart(t *testing.T) {
	v := newServer()
	state := fill(t, v, 100)
	v.delay = func() time.Duration { return 20 * time.Millisecond }
	got := run(t, v, fmt.Sprintf(`"workers":2,"rate":200,"arrivals":"even","duration":1,"state_in":%q,%s"ops":[{"op":"GET","spaces":["a"]}]`, state, oneSpace))
	starts, durations := times(t, got)
	slices.Sort(starts)
	slices.Sort(durations)
	for i := range starts {
		// the schedule alone says when: k/200 s after the first
		offset := (starts[i] - starts[0]) * 200
		if whole := float64(int(offset + 0.5)); offset-whole > 0.01 || whole-offset > 0.01 {
			t.Fatalf("request %d starts at %v", i, starts[i])
		}
	}
	n := len(starts)
	if n > 110 || n+int(got.end.Works[0].Unstarted) != 200 {
		t.Fatalf("%d issued, %d not started", n, got.end.Works[0].Unstarted)
	}
	if durations[n-1] < 0.3 || got.end.Works[0].Latest < 0.3 {
		t.Fatalf("the last one waited long: %v, %v", durations[n-1], got.end.Works[0].Latest)
	}
}

// The server takes no time, so what there is of delay is the hashing of 16 MiB: in the delay of the start, not in the latency.
func TestOpenLoopLeavesHashingOutOfLatencies(t *testing.T) {
	v := newServer()
	v.before = func(*s3.Request, *s3.Result) bool { return true }
	space := `"spaces":[{"name":"a","bucket":"b","prefix":"p/","sizes":[[16777216,16777216,1]]}],`
	got := run(t, v, `"workers":1,"rate":1,"arrivals":"even","duration":1,`+space+`"ops":[{"op":"PUT","spaces":["a"]}]`)
	_, durations := times(t, got)
	if latest := got.end.Works[0].Latest; len(durations) != 1 || durations[0] >= latest {
		t.Fatalf("latencies %v, the start was %v s late", durations, latest)
	}
}

// The parts of an upload are hashed between its requests.
func TestHashingOfPartsIsNotInLatencies(t *testing.T) {
	v := newServer()
	v.before = func(_ *s3.Request, result *s3.Result) bool {
		result.Hashing = time.Hour
		return false
	}
	got := run(t, v, `"workers":1,"objects":1,`+oneSpace+`"ops":[{"op":"MULTIPART","spaces":["a"]}]`)
	if _, durations := times(t, got); len(durations) != 1 || durations[0] >= 0 {
		t.Fatal(durations)
	}
}

func TestOpenLoopKeepsItsRate(t *testing.T) {
	v := newServer()
	state := fill(t, v, 100)
	for arrivals, tolerance := range map[string]int{"even": 1, "poisson": 150} {
		got := run(t, v, fmt.Sprintf(`"workers":8,"rate":1000,"arrivals":%q,"duration":1,"state_in":%q,%s"ops":[{"op":"GET","spaces":["a"]}]`, arrivals, state, oneSpace))
		if n := len(got.rows) + int(got.end.Works[0].Unstarted); n < 1000-tolerance || n > 1000+tolerance {
			t.Errorf("%s: %d in a second", arrivals, n)
		}
	}
}

// Works run at once, each with its own workers, mix and loop; what one waits for is in no other's latency.
func TestWorksAreSideBySide(t *testing.T) {
	v := newServer()
	state := fill(t, v, 1000)
	v.before = func(r *s3.Request, _ *s3.Result) bool { // one PUT of 20 ms at a time makes 50 a second
		if r.Op == s3.Put {
			time.Sleep(20 * time.Millisecond)
		}
		return false
	}
	v.delay = func() time.Duration { return time.Millisecond }
	got := run(t, v, fmt.Sprintf(`"duration":1,"state_in":%q,"state_out":%q,
		"spaces":[{"name":"a","bucket":"b","prefix":"p/","sizes":[[0,100,1],[5000,5000,1]]},{"name":"n","bucket":"b","prefix":"n/","sizes":[[9,9,1]],"rebuild":true}],
		"works":[{"name":"readers","workers":3,"ops":[{"op":"GET","share":3,"spaces":["a"]},{"op":"DELETE","share":1,"spaces":["a"]}]},
		{"name":"late","workers":1,"rate":100,"arrivals":"even","ops":[{"op":"PUT","spaces":["n"]}]},
		{"name":"lists","workers":2,"rate":40,"arrivals":"even","ops":[{"op":"LIST","spaces":["a"]}]}]`, state, state))
	issued := got.end.Issued
	if gets, deletes := issued["readers:GET"], issued["readers:DELETE"]; gets < 100 || gets > 3*deletes+500 || gets < 3*deletes-500 {
		t.Fatalf("%v", issued)
	}
	if column := got.column(columnOp); column["late:PUT"] != int(issued["late:PUT"]) || len(column) != 4 {
		t.Fatalf("%v", column)
	}
	threads := map[string]string{}
	for _, fields := range got.rows {
		work, _, _ := strings.Cut(fields[columnOp], ":")
		if threads[fields[1]] == "" {
			threads[fields[1]] = work
		}
		if threads[fields[1]] != work {
			t.Fatalf("worker %s is of %s and of %s", fields[1], work, threads[fields[1]])
		}
	}
	if len(threads) != 6 {
		t.Fatalf("%v", threads)
	}
	late, lists := got.end.Works[1], got.end.Works[2]
	if issued["late:PUT"] > 55 || issued["late:PUT"]+late.Unstarted != 100 || late.Latest < 0.3 {
		t.Fatalf("%v %+v", issued, late)
	}
	if issued["lists:LIST"]+lists.Unstarted != 40 || lists.Latest > late.Latest {
		t.Fatalf("%v %+v", issued, lists)
	}
	if s := got.space(t, "a"); s.Live != 1000-issued["readers:DELETE"] || v.misses.Load() != 0 {
		t.Fatalf("%+v", s)
	}
	agrees(t, v, state)
}

func TestWorkersJoinOneAfterTheOther(t *testing.T) {
	v := newServer()
	state := fill(t, v, 100)
	v.delay = func() time.Duration { return time.Hour }
	got := run(t, v, fmt.Sprintf(`"workers":10,"ramp":0.5,"duration":0.6,"grace":0,"state_in":%q,%s"ops":[{"op":"GET","spaces":["a"]}]`, state, oneSpace))
	starts, _ := times(t, got)
	if len(starts) != 10 {
		t.Fatalf("%d rows", len(starts))
	}
	for i, fields := range got.rows {
		worker, _ := strconv.Atoi(fields[1])
		if starts[i] < float64(worker)*0.05-0.0001 {
			t.Errorf("worker %d joined at %v", worker, starts[i])
		}
	}
}

func TestNothingIsIssuedBeforeGoOrAfterTheEnd(t *testing.T) {
	v := newServer()
	state := fill(t, v, 100)
	v.delay = little
	at := time.Now().Add(200 * time.Millisecond)
	got := run(t, v, fmt.Sprintf(`"workers":8,"duration":0.2,"state_in":%q,%s"ops":[{"op":"GET","spaces":["a"]}]`, state, oneSpace),
		func(o *Options) { o.Go = func(<-chan struct{}) (time.Time, bool) { return at, true } })
	starts, _ := times(t, got)
	for _, start := range starts { // a microsecond is what a float of seconds since 1970 can tell apart
		if start < -1e-6 || start > 0.2+1e-6 {
			t.Fatalf("a request at %v", start)
		}
	}
	if began := got.end.Began - epoch(at); began < -1e-6 || began > 1e-6 {
		t.Fatalf("began %v s after go", began)
	}
}

// nothing is a server that answers at once and needs no memory for it.
type nothing struct{}

func (nothing) Do(r *s3.Request, result *s3.Result) {
	now := time.Now()
	*result = s3.Result{Endpoint: "http://fake", Status: 200, Sent: now, FirstByte: now, End: now, Objects: 1}
}

// BenchmarkLogic is what a request costs beside the client: choosing, accounts, rows.
func BenchmarkLogic(b *testing.B) {
	for _, workers := range []int{1, 64} {
		b.Run(strconv.Itoa(workers), func(b *testing.B) {
			state := fill(b, newServer(), 10000)
			v := newServer()
			b.ReportAllocs()
			b.ResetTimer()
			got := run(b, v, fmt.Sprintf(`"workers":%d,"objects":%d,"payload":"unsigned","state_in":%q,%s
				"ops":[{"op":"GET","share":60,"spaces":["a"]},{"op":"PUT","share":20,"spaces":["a"]},{"op":"STAT","share":10,"spaces":["a"]},{"op":"DELETE","share":10,"spaces":["a"]}]`,
				workers, b.N/5+1, state, oneSpace), discard, func(o *Options) { o.Client = nothing{} })
			if got.status != 0 {
				b.Fatal(got.text)
			}
		})
	}
}

func TestEventsAreLines(t *testing.T) {
	var out bytes.Buffer
	events := NewEvents(&out)
	events.Write(map[string]int{"a": 1})
	events.Say("hello")
	if got := out.String(); got != "{\"a\":1}\nhello\n" {
		t.Fatal(fmt.Sprintf("%q", got))
	}
}

func TestAStepOfTheClockDoesNotChangeTheLengthOfARun(t *testing.T) {
	base := time.Now()
	ended := base.Add(10 * time.Second)
	// the wall clock alone, as a step moves it: the seconds of a time that has both clocks are above its 30 bits of nanoseconds
	*(*uint64)(unsafe.Pointer(&ended)) += 3600 << 30
	if ended.Sub(base) != 10*time.Second || ended.Unix()-base.Unix() < 3600 {
		t.Fatalf("another form of time.Time: %v", ended.Sub(base))
	}
	e := &engine{Options: Options{Hosts: func() []s3.HostState { return nil }}, ended: ended}
	if end := e.summary(base); end.Began != epoch(base) || math.Abs(end.Ended-end.Began-10) > 1e-3 {
		t.Fatalf("%v", end.Ended-end.Began)
	}
}

package drive

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cbt-plugins/companion/internal/keyset"
	"cbt-plugins/companion/internal/s3"
)

// little is a short random time that a request takes.
func little() time.Duration { return time.Duration(rand.Int64N(int64(300 * time.Microsecond))) }

// fill writes so many objects and returns the state.
func fill(t testing.TB, v *server, objects int) string {
	t.Helper()
	state := filepath.Join(t.TempDir(), "state")
	got := run(t, v, fmt.Sprintf(`"workers":8,"objects":%d,"sets_n":true,"state_out":%q,%s
		"ops":[{"op":"PUT","spaces":["a"]}]`, objects, state, oneSpace))
	if got.status != 0 || got.end.Reason != "objects" {
		t.Fatalf("%d %s", got.status, got.text)
	}
	return state
}

// agrees compares a state with what the server has.
func agrees(t *testing.T, v *server, state string) *keyset.State {
	t.Helper()
	known, err := keyset.Load(state)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, space := range known.Spaces {
		for number := space.Live.Next(1); number != 0; number = space.Live.Next(number + 1) {
			if _, ok := v.objects[space.Bucket+"/"+string(appendKey(nil, space.Prefix, number))]; !ok {
				t.Fatalf("%s %d is in the state and not there", space.Name, number)
			}
			total++
		}
	}
	if total != len(v.objects) {
		t.Fatalf("%d objects in the state, %d there", total, len(v.objects))
	}
	return known
}

func TestFillMakesExactlySoMany(t *testing.T) {
	v := newServer()
	v.delay = little
	var n atomic.Int64
	v.before = func(_ *s3.Request, result *s3.Result) bool {
		if n.Add(1)%7 == 0 { // refused: the next PUT takes the number
			result.Status, result.Kind, result.Message = 403, s3.KindHTTP, "403 AccessDenied"
			return true
		}
		return false
	}
	state := filepath.Join(t.TempDir(), "state")
	got := run(t, v, fmt.Sprintf(`"workers":32,"objects":500,"sets_n":true,"state_out":%q,
		"spaces":[{"name":"a","bucket":"b","prefix":"p/","sizes":[[1,1,1]]},{"name":"c","bucket":"b","prefix":"q/","sizes":[[2,2,1]]}],
		"ops":[{"op":"PUT","spaces":["a","c"]}]`, state))
	for _, name := range []string{"a", "c"} {
		if s := got.space(t, name); s.Created != 500 || s.Live != 500 || s.N != 500 || s.Used != 500 {
			t.Fatalf("%+v", s)
		}
	}
	if got.status != 0 || got.end.Reason != "objects" || len(v.objects) != 1000 || len(got.end.Warnings) != 0 {
		t.Fatalf("%d objects: %s", len(v.objects), got.text)
	}
	agrees(t, v, state)
}

// What may have been carried out is not given back; a key that is never taken does not keep the fill from its end.
func TestAFillUsesUpOnlyWhatItMust(t *testing.T) {
	v := newServer()
	var lost atomic.Int64
	v.before = func(r *s3.Request, result *s3.Result) bool {
		if r.Op == s3.Stat {
			return false
		}
		switch number := numberOf(r.Key, "p/"); {
		case number == 3:
			result.Status, result.Kind, result.Message = 400, s3.KindHTTP, "400 InvalidArgument"
		case number%10 == 0 && lost.Add(1) > 0:
			result.Status, result.Kind, result.Message = 500, s3.KindHTTP, "500 InternalError"
		default:
			return false
		}
		return true
	}
	got := run(t, v, `"workers":4,"objects":500,"sets_n":true,`+oneSpace+`"ops":[{"op":"PUT","spaces":["a"]}]`)
	refused := got.column(columnFile)["p/0000000003"]
	if s := got.space(t, "a"); s.Created != 500 || s.N != 500+lost.Load()+1 || s.Unknown != 0 || refused != mostRefusals+1 {
		t.Fatalf("%+v, %d lost, %d refused", s, lost.Load(), refused)
	}
	if len(got.end.Warnings) != 1 || got.end.Warnings[0][0] != "out-of-reach" {
		t.Fatal(got.text)
	}
}

func TestASpaceMayHaveAGoalOfItsOwn(t *testing.T) {
	v := newServer()
	got := run(t, v, `"workers":8,"objects":300,
		"spaces":[{"name":"a","bucket":"b","prefix":"p/","sizes":[[1,1,1]]},{"name":"c","bucket":"b","prefix":"q/","objects":20,"sizes":[[2,2,1]]}],
		"ops":[{"op":"PUT","spaces":["a","c"]}]`)
	if a, c := got.space(t, "a"), got.space(t, "c"); a.Created != 300 || c.Created != 20 || got.end.Reason != "objects" {
		t.Fatalf("%+v %+v", a, c)
	}
}

// 64 workers on few objects meet each other all the time.
func TestNothingIsReadThatWasDeleted(t *testing.T) {
	v := newServer()
	state := fill(t, v, 200)
	v.delay = little
	got := run(t, v, fmt.Sprintf(`"workers":64,"duration":2,"grace":30,"deadline":30,"state_in":%q,"state_out":%q,"list_keys":10,%s
		"ops":[{"op":"GET","share":30,"spaces":["a"]},{"op":"STAT","share":9,"select":"u(1,N)","spaces":["a"]},
		{"op":"PUT","share":15,"spaces":["a"]},{"op":"PUT","share":10,"select":"u(1,N)","spaces":["a"]},
		{"op":"MULTIPART","share":5,"select":"s(1,2N)","spaces":["a"]},
		{"op":"DELETE","share":20,"spaces":["a"]},{"op":"DELETE","share":10,"select":"u(1,4N)","absent":true,"spaces":["a"]},
		{"op":"LIST","share":1,"spaces":["a"]}]`, state, state, oneSpace))
	if misses := v.misses.Load(); misses != 0 {
		t.Fatalf("%d requests for what is not there", misses)
	}
	if errors := got.column(columnError); len(errors) != 1 || len(got.rows) < 1000 {
		t.Fatalf("%v", errors)
	}
	s := got.space(t, "a")
	if s.Created == 0 || s.Overwritten == 0 || s.Removed == 0 || s.Absent == 0 || 200+s.Created-s.Removed != s.Live || s.Unknown != 0 {
		t.Fatalf("%+v", s)
	}
	agrees(t, v, state)
}

// Shares hold for what is issued, up to the cycle that was not ended.
func TestMixIsIssuedAsItIsAsked(t *testing.T) {
	v := newServer()
	state := fill(t, v, 5000)
	got := run(t, v, fmt.Sprintf(`"workers":4,"duration":0.5,"state_in":%q,%s
		"ops":[{"op":"GET","share":45,"spaces":["a"]},{"op":"PUT","share":35,"spaces":["a"]},
		{"op":"STAT","share":15,"spaces":["a"]},{"op":"DELETE","share":5,"spaces":["a"]}]`, state, oneSpace))
	total := 0.0
	for _, n := range got.end.Issued {
		total += float64(n)
	}
	for op, share := range map[string]float64{"GET": 0.45, "PUT": 0.35, "STAT": 0.15, "DELETE": 0.05} {
		if n := float64(got.end.Issued[op]); n < total*share-500 || n > total*share+500 {
			t.Errorf("%s: %v of %v", op, n, total)
		}
	}
	if len(got.end.Dry) != 0 || int(total) != len(got.rows) {
		t.Errorf("%v rows, %s", len(got.rows), got.text)
	}
}

func TestEachOnce(t *testing.T) {
	v := newServer()
	state := fill(t, v, 3000)
	v.delay = little
	got := run(t, v, fmt.Sprintf(`"workers":16,"state_in":%q,"state_out":%q,%s
		"ops":[{"op":"GET","select":"r(1,2N)","share":3,"spaces":["a"]},{"op":"DELETE","select":"r(1,N)","share":1,"spaces":["a"]}]`,
		state, state, oneSpace))
	if got.end.Reason != "exhausted" || len(v.objects) != 0 || v.misses.Load() != 0 {
		t.Fatalf("%d left, %d misses: %s", len(v.objects), v.misses.Load(), got.text)
	}
	seen := map[string]int{}
	for _, fields := range got.rows {
		seen[fields[columnOp]+fields[columnFile]]++
		if seen[fields[columnOp]+fields[columnFile]] > 1 {
			t.Fatalf("%v twice", fields)
		}
	}
	if got.end.Issued["DELETE"] != 3000 {
		t.Fatal(got.text)
	}
	if s := agrees(t, v, state).Spaces[0]; s.N != 3000 || s.Used != 3000 {
		t.Fatalf("%+v", s)
	}
}

func TestSequentialRisesAndWraps(t *testing.T) {
	v := newServer()
	state := fill(t, v, 300)
	got := run(t, v, fmt.Sprintf(`"workers":1,"duration":0.3,"state_in":%q,%s
		"ops":[{"op":"STAT","select":"s(101,N)","spaces":["a"]}]`, state, oneSpace))
	for i, fields := range got.rows {
		if want := string(appendKey(nil, "p/", int64(101+i%200))); fields[columnFile] != want {
			t.Fatalf("row %d is of %s, want %s", i, fields[columnFile], want)
		}
	}
	if len(got.rows) < 250 {
		t.Fatalf("%d rows", len(got.rows))
	}
}

func TestUniformStaysInsideAndIsUniform(t *testing.T) {
	v := newServer()
	state := fill(t, v, 1000)
	got := run(t, v, fmt.Sprintf(`"workers":2,"duration":0.5,"state_in":%q,%s
		"ops":[{"op":"GET","select":"u(401,N)","spaces":["a"]}]`, state, oneSpace))
	files := got.column(columnFile)
	mean := float64(len(got.rows)) / 600
	for number := int64(1); number <= 1000; number++ {
		n := float64(files[string(appendKey(nil, "p/", number))])
		if number <= 400 && n > 0 || number > 400 && mean > 20 && (n < mean/4 || n > mean*2.5) {
			t.Fatalf("number %d was read %v times, on average %v", number, n, mean)
		}
	}
	if mean < 1 {
		t.Fatalf("%d rows", len(got.rows))
	}
}

func TestDoubtsAreSettled(t *testing.T) {
	v := newServer()
	state := fill(t, v, 500)
	v.delay = little
	var n atomic.Int64
	v.after = func(r *s3.Request, result *s3.Result) { // carried out, and the answer is lost
		if (r.Op == s3.Put || r.Op == s3.Delete) && n.Add(1)%5 == 0 {
			result.Status, result.Kind, result.Message = 0, s3.KindReset, "lost"
		}
	}
	v.before = func(r *s3.Request, result *s3.Result) bool { // or not carried out
		if (r.Op == s3.Put || r.Op == s3.Delete) && n.Add(1)%5 == 0 {
			result.Status, result.Kind, result.Message = 500, s3.KindHTTP, "500 InternalError"
			return true
		}
		return false
	}
	got := run(t, v, fmt.Sprintf(`"workers":16,"duration":0.5,"state_in":%q,"state_out":%q,%s
		"ops":[{"op":"GET","share":40,"spaces":["a"]},{"op":"PUT","share":30,"spaces":["a"]},{"op":"PUT","share":10,"select":"u(1,N)","spaces":["a"]},
		{"op":"DELETE","share":15,"spaces":["a"]},{"op":"DELETE","share":5,"select":"u(1,2N)","absent":true,"spaces":["a"]}]`, state, state, oneSpace))
	if v.misses.Load() != 0 {
		t.Fatalf("%d requests for what is not there", v.misses.Load())
	}
	s := got.space(t, "a")
	if s.Unknown != 0 || s.Lost != 0 || 500+s.Created-s.Removed != s.Live || got.column(columnError)["http: 500 InternalError"] == 0 {
		t.Fatalf("%+v", s)
	}
	agrees(t, v, state)
}

func TestAServerThatMayStillBeAtItKeepsAnObjectUnknown(t *testing.T) {
	t.Run("no answer", func(t *testing.T) { keepsUnknown(t, s3.Result{Kind: s3.KindTimeout, Message: "no answer in time"}) })
	t.Run("answer of a proxy", func(t *testing.T) {
		keepsUnknown(t, s3.Result{Kind: s3.KindHTTP, Status: 504, Message: "504 Gateway Timeout"})
	})
}

func keepsUnknown(t *testing.T, late s3.Result) {
	v := newServer()
	state := fill(t, v, 50)
	v.before = func(r *s3.Request, result *s3.Result) bool { // it will be carried out after the run
		if r.Op != s3.Delete {
			return false
		}
		result.Kind, result.Status, result.Message = late.Kind, late.Status, late.Message
		return true
	}
	got := run(t, v, fmt.Sprintf(`"workers":4,"duration":0.2,"state_in":%q,"state_out":%q,%s
		"ops":[{"op":"DELETE","select":"r(1,10)","spaces":["a"]}]`, state, state, oneSpace))
	if s := got.space(t, "a"); s.Unknown != 10 || s.Live != 40 || s.Removed != 0 {
		t.Fatalf("%+v", s)
	}
	v.before = nil
	for i := 1; i <= 10; i++ {
		delete(v.objects, fmt.Sprintf("b/p/%010d", i))
	}
	got = run(t, v, fmt.Sprintf(`"workers":4,"duration":0.2,"state_in":%q,"state_out":%q,%s
		"ops":[{"op":"GET","spaces":["a"]}]`, state, state, oneSpace))
	if s := got.space(t, "a"); s.Unknown != 0 || s.Removed != 10 || s.Seen != 10 || v.misses.Load() != 0 {
		t.Fatalf("%+v, %d misses", s, v.misses.Load())
	}
	agrees(t, v, state)
}

// In a bucket that keeps versions an older one is there, whatever came of the PUT; and each try may have made another one.
func TestAVersionThatIsThereDoesNotSayWhetherAPutWasCarriedOut(t *testing.T) {
	for _, one := range []struct {
		versioned     bool
		retries, fail int   // tries after the first one, tries of each PUT that fail
		seen          int64 // of each PUT
	}{{true, 0, 1, 1}, {false, 0, 1, 0}, {true, 2, 3, 3}, {true, 2, 2, 2}, {false, 2, 2, 0}} {
		v := newServer()
		state := fill(t, v, 50)
		var mu sync.Mutex
		tries := map[string]int{}
		v.before = func(r *s3.Request, result *s3.Result) bool {
			mu.Lock()
			defer mu.Unlock()
			if r.Op != s3.Put || tries[r.Key] == one.fail {
				return false
			}
			tries[strings.Clone(r.Key)]++
			result.Kind, result.Status, result.Message = s3.KindHTTP, 500, "500 InternalError"
			return true
		}
		got := run(t, v, fmt.Sprintf(`"workers":4,"versioned":%v,"retries":%d,"state_in":%q,"state_out":%q,%s
			"ops":[{"op":"PUT","select":"r(1,10)","spaces":["a"]}]`, one.versioned, one.retries, state, state, oneSpace))
		if s := got.space(t, "a"); s.Overwritten != 10 || s.Seen != 10*one.seen || s.Unknown != 0 {
			t.Fatalf("%+v: %+v", one, s)
		}
	}
}

func TestALookUpOfNamesThatHangsLosesNoState(t *testing.T) {
	v := newServer()
	state := fill(t, v, 50)
	v.before = func(r *s3.Request, result *s3.Result) bool {
		result.Kind, result.Message = s3.KindReset, "down"
		return r.Op == s3.Delete
	}
	hang := make(chan struct{})
	defer close(hang)
	got := run(t, v, fmt.Sprintf(`"workers":4,"grace":0.1,"deadline":0.2,"state_in":%q,"state_out":%q,%s
		"ops":[{"op":"DELETE","select":"r(1,10)","spaces":["a"]}]`, state, state+".new", oneSpace),
		func(o *Options) {
			o.Second = func() Client { <-hang; return v }
		})
	if s := got.space(t, "a"); got.status != 0 || s.Unknown != 10 || s.Live != 40 {
		t.Fatalf("%d: %+v", got.status, s)
	}
	if _, err := os.Stat(state + ".new"); err != nil {
		t.Fatal(err)
	}
}

func TestWhatCannotBeSettledIsUnknownAndAskedForTheNextTime(t *testing.T) {
	v := newServer()
	state := fill(t, v, 50)
	down := func(r *s3.Request, result *s3.Result) bool {
		result.Kind, result.Message = s3.KindReset, "down"
		return true
	}
	v.before = down
	got := run(t, v, fmt.Sprintf(`"workers":4,"duration":0.2,"grace":0.1,"deadline":0.2,"state_in":%q,"state_out":%q,%s
		"ops":[{"op":"DELETE","select":"r(1,10)","spaces":["a"]}]`, state, state, oneSpace))
	if s := got.space(t, "a"); s.Unknown != 10 || s.Live != 40 || s.Removed != 0 {
		t.Fatalf("%+v", s)
	}
	v.before = nil
	delete(v.objects, "b/p/0000000003")
	got = run(t, v, fmt.Sprintf(`"workers":4,"duration":0.1,"state_in":%q,"state_out":%q,%s
		"ops":[{"op":"GET","spaces":["a"]}]`, state, state, oneSpace))
	if s := got.space(t, "a"); s.Unknown != 0 || s.Live != 49 || s.Removed != 1 || v.misses.Load() != 0 {
		t.Fatalf("%+v", s)
	}
	agrees(t, v, state)
}

func TestVerifyFindsWhatIsWrong(t *testing.T) {
	v := newServer()
	v.keep = true
	state := fill(t, v, 400)
	verify := fmt.Sprintf(`"workers":8,"verify":true,"state_in":%q,%s"ops":[{"op":"GET","select":"r(1,N)","spaces":["a"]}]`, state, oneSpace)
	if got := run(t, v, verify); got.end.Checksums != 0 || len(got.rows) != 400 || got.column(columnError)[""] != 400 {
		t.Fatal(got.text)
	}
	for key, data := range v.objects {
		if len(data) == 5000 {
			data[4321] ^= 1
			t.Log(key)
			break
		}
	}
	v.objects["b/p/0000000008"] = append([]byte{1}, v.objects["b/p/0000000008"]...)
	got := run(t, v, verify)
	if got.end.Checksums != 2 || got.column(columnError)["checksum: wrong byte at 4321"] != 1 {
		t.Fatalf("%s %v", got.text, got.column(columnError))
	}
}

func TestSignalCutsSettlesAndSaves(t *testing.T) {
	v := newServer()
	state := fill(t, v, 100)
	v.delay = func() time.Duration { return time.Hour }
	stop := make(chan struct{})
	begun := time.Now()
	go func() {
		for {
			v.mu.Lock()
			busy := v.busy
			v.mu.Unlock()
			if busy == 8 {
				close(stop)
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	got := run(t, v, fmt.Sprintf(`"workers":8,"duration":100,"grace":50,"deadline":60,"state_in":%q,"state_out":%q,%s
		"ops":[{"op":"PUT","share":1,"spaces":["a"]},{"op":"DELETE","share":1,"spaces":["a"]},{"op":"GET","share":1,"spaces":["a"]}]`,
		state, state, oneSpace), func(o *Options) { o.Stop = stop })
	if got.status != 0 || got.end.Reason != "signal" || got.column(columnError)["cut: the run ended"] != 8 || time.Since(begun) > 30*time.Second {
		t.Fatalf("%d %s", got.status, got.text)
	}
	// what was cut without an answer may still be carried out
	puts, deletes := 0, 0
	for _, fields := range got.rows {
		puts += strings.Count(fields[2], "PUT")
		deletes += strings.Count(fields[2], "DELETE")
	}
	if s := got.space(t, "a"); int(s.Unknown) != puts+deletes || int(s.Live) != 100-deletes {
		t.Fatalf("%+v after %d PUT and %d DELETE", s, puts, deletes)
	}
}

func TestRequestsUnderWayAtTheEndGetTheirGraceAndAreCut(t *testing.T) {
	v := newServer()
	state := fill(t, v, 100)
	v.delay = func() time.Duration { return time.Hour }
	got := run(t, v, fmt.Sprintf(`"workers":8,"duration":0.2,"grace":0.2,"deadline":60,"state_in":%q,%s"ops":[{"op":"GET","spaces":["a"]}]`, state, oneSpace))
	// on a busy machine a worker may begin too late for a request
	cut := got.column(columnError)["cut: the run ended"]
	if got.status != 0 || got.end.Reason != "duration" || cut < 1 || cut > 8 || len(got.rows) != cut {
		t.Fatalf("%v %s", got.column(columnError), got.text)
	}
	if lasted := got.end.T - got.end.Began; lasted < 0.4 {
		t.Fatalf("no grace: %v s", lasted)
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestAReaderThatIsGoneEndsTheRun(t *testing.T) {
	v := newServer()
	state := fill(t, v, 100)
	v.delay = little
	got := run(t, v, fmt.Sprintf(`"workers":8,"duration":100,"state_in":%q,"state_out":%q,%s"ops":[{"op":"PUT","spaces":["a"]}]`, state, state, oneSpace),
		func(o *Options) { o.Rows = brokenPipe{} })
	if got.status != 1 || got.end.Reason != "signal" || !strings.Contains(got.text, "broken pipe") {
		t.Fatalf("%d %s", got.status, got.text)
	}
	agrees(t, v, state)
}

func TestRetriesAreOneRow(t *testing.T) {
	v := newServer()
	state := fill(t, v, 10)
	var n atomic.Int64
	v.before = func(r *s3.Request, result *s3.Result) bool {
		if n.Add(1)%3 != 0 {
			result.Status, result.Kind, result.Message = 503, s3.KindHTTP, "503 SlowDown"
			return true
		}
		return false
	}
	got := run(t, v, fmt.Sprintf(`"workers":1,"retries":2,"state_in":%q,%s"ops":[{"op":"GET","select":"r(1,2)","spaces":["a"]}]`, state, oneSpace))
	if len(got.rows) != 2 || got.column(columnError)[""] != 2 || got.end.Retries != 4 {
		t.Fatal(got.text)
	}
}

func TestAFailedGetHasTheSizeOfItsObject(t *testing.T) {
	v := newServer()
	sized := `"spaces":[{"name":"a","bucket":"b","prefix":"p/","sizes":[[64,64,1],[5000,5000,1]]}],`
	state := filepath.Join(t.TempDir(), "state")
	fill := run(t, v, fmt.Sprintf(`"workers":1,"objects":100,"sets_n":true,"state_out":%q,%s"ops":[{"op":"PUT","spaces":["a"]}]`, state, sized))
	v.before = func(r *s3.Request, result *s3.Result) bool {
		result.Status, result.Kind, result.Message = 500, s3.KindHTTP, "500 InternalError"
		return true
	}
	got := run(t, v, fmt.Sprintf(`"workers":1,"state_in":%q,%s"ops":[{"op":"GET","select":"r(1,N)","spaces":["a"]}]`, state, sized))
	if want := fill.column(columnBytes); len(got.rows) != 100 || !maps.Equal(got.column(columnBytes), want) {
		t.Fatalf("%v, written were %v", got.column(columnBytes), want)
	}
}

// Workers that find nothing more to do do not end the retries of those that have the last objects.
func TestTheLastObjectsAreRetriedToo(t *testing.T) {
	v := newServer()
	state := fill(t, v, 10)
	var mu sync.Mutex
	tried := map[string]int{}
	v.before = func(r *s3.Request, result *s3.Result) bool {
		mu.Lock()
		defer mu.Unlock()
		tried[strings.Clone(r.Key)]++
		if tried[r.Key] <= 2 {
			result.Status, result.Kind, result.Message = 503, s3.KindHTTP, "503 SlowDown"
			return true
		}
		return false
	}
	got := run(t, v, fmt.Sprintf(`"workers":8,"retries":2,"state_in":%q,%s"ops":[{"op":"GET","select":"r(1,4)","spaces":["a"]}]`, state, oneSpace))
	if len(got.rows) != 4 || got.column(columnError)[""] != 4 || got.end.Retries != 8 || got.end.Reason != "exhausted" {
		t.Fatal(got.text)
	}
}

func TestTheLastRetriesHaveTimeForTheirPauses(t *testing.T) {
	v := newServer()
	state := fill(t, v, 10)
	var n atomic.Int64
	v.before = func(r *s3.Request, result *s3.Result) bool {
		if n.Add(1) <= 4 { // pauses of 0.1 + 0.2 + 0.4 + 0.8 s; grace is 1 s
			result.Status, result.Kind, result.Message = 503, s3.KindHTTP, "503 SlowDown"
			return true
		}
		return false
	}
	got := run(t, v, fmt.Sprintf(`"workers":2,"retries":4,"state_in":%q,%s"ops":[{"op":"GET","select":"r(1,1)","spaces":["a"]}]`, state, oneSpace),
		func(o *Options) { o.Spec.Deadline = 0.1 })
	if len(got.rows) != 1 || got.column(columnError)[""] != 1 {
		t.Fatal(got.text)
	}
}

func TestASignalEndsTheRetriesOfTheLastObjects(t *testing.T) {
	v := newServer()
	state := fill(t, v, 10)
	stop := make(chan struct{})
	var n atomic.Int64
	v.before = func(_ *s3.Request, result *s3.Result) bool {
		if n.Add(1) == 3*4 { // by now the other workers have found nothing to do
			close(stop)
		}
		result.Status, result.Kind, result.Message = 503, s3.KindHTTP, "503 SlowDown"
		return true
	}
	begun := time.Now()
	got := run(t, v, fmt.Sprintf(`"workers":8,"retries":1000,"state_in":%q,%s"ops":[{"op":"GET","select":"r(1,4)","spaces":["a"]}]`, state, oneSpace),
		func(o *Options) { o.Stop = stop })
	if len(got.rows) != 4 || got.status != 0 || time.Since(begun) > 30*time.Second {
		t.Fatalf("%v after %v: %s", got.rows, time.Since(begun), got.text)
	}
}

func TestReconnectsAreCountedAndManyAreTold(t *testing.T) {
	for each, warned := range map[int64]bool{100: true, 2000: false} {
		v := newServer()
		state := fill(t, v, 4000)
		var n atomic.Int64
		v.after = func(_ *s3.Request, result *s3.Result) { result.Resent = n.Add(1)%each == 0 }
		got := run(t, v, fmt.Sprintf(`"workers":4,"state_in":%q,%s"ops":[{"op":"GET","select":"r(1,N)","spaces":["a"]}]`, state, oneSpace))
		if got.end.Reconnects != 4000/each || (len(got.end.Warnings) == 1) != warned || warned && got.end.Warnings[0][0] != "resent" {
			t.Fatalf("%d: %s", each, got.text)
		}
	}
}

// The server may carry out the try that it never answered after a later request for the same object.
func TestATryWithoutAnAnswerMayStillBeCarriedOut(t *testing.T) {
	for tries, body := range map[string]string{
		"sent again by the client": `"workers":1,"duration":0.2,`,
		"retried":                  `"workers":1,"duration":0.2,"retries":1,`,
	} {
		v := newServer()
		state := fill(t, v, 50)
		var n atomic.Int64
		v.before = func(_ *s3.Request, result *s3.Result) bool {
			if tries == "retried" && n.Add(1) == 1 {
				result.Kind, result.Message = s3.KindReset, "the connection broke"
				return true
			}
			return false
		}
		v.after = func(_ *s3.Request, result *s3.Result) { result.Resent = tries != "retried" && n.Add(1) == 1 }
		got := run(t, v, fmt.Sprintf(`%s"state_in":%q,%s"ops":[{"op":"PUT","select":"r(1,N)","spaces":["a"]}]`, body, state, oneSpace))
		if s := got.space(t, "a"); s.Seen != 1 || s.Unknown != 0 || s.Live != 50 {
			t.Fatalf("%s: %+v", tries, s)
		}
	}
}

// A 503 is a refusal: the object stays as it was, and a closed loop waits before it asks again.
func TestAServerThatIsTooBusyIsNotPressed(t *testing.T) {
	v := newServer()
	state := fill(t, v, 50)
	v.before = func(_ *s3.Request, result *s3.Result) bool {
		result.Status, result.Kind, result.Message = 503, s3.KindHTTP, "503 SlowDown"
		return true
	}
	got := run(t, v, fmt.Sprintf(`"workers":2,"duration":0.5,"state_in":%q,"state_out":%q,%s
		"ops":[{"op":"DELETE","spaces":["a"]},{"op":"PUT","spaces":["a"]}]`, state, state, oneSpace))
	// pauses of 10, 20 ... 100 ms: 10 requests of each worker, not thousands
	if n := len(got.rows); n < 2 || n > 22 {
		t.Fatalf("%d requests", n)
	}
	if s := got.space(t, "a"); s.Unknown != 0 || s.Live != 50 || s.Seen != 0 {
		t.Fatalf("%+v", s)
	}
}

// A proxy without servers says 502 as fast as it is asked. Nobody knows what came of that, but it does not get more.
func TestAProxyWithoutServersIsNotPressed(t *testing.T) {
	v := newServer()
	state := fill(t, v, 50)
	v.before = func(r *s3.Request, result *s3.Result) bool {
		result.Status, result.Kind, result.Message = 502, s3.KindHTTP, "502 Bad Gateway"
		return r.Op == s3.Put
	}
	got := run(t, v, fmt.Sprintf(`"workers":2,"duration":0.5,"state_in":%q,"state_out":%q,%s
		"ops":[{"op":"PUT","spaces":["a"]}]`, state, state, oneSpace))
	if n := len(got.rows); n < 2 || n > 22 {
		t.Fatalf("%d requests", n)
	}
}

func TestDryIsCountedAndNotIssued(t *testing.T) {
	got := run(t, newServer(), `"workers":4,"duration":0.1,`+oneSpace+`"ops":[{"op":"GET","spaces":["a"]},{"op":"DELETE","select":"s(1,N)","spaces":["a"]}]`)
	if len(got.rows) != 0 || got.end.Dry["GET"] == 0 || got.end.Dry["DELETE"] == 0 || got.status != 0 {
		t.Fatal(got.text)
	}
	if got.end.Dry["GET"] > 20000 {
		t.Fatalf("workers with nothing to do must wait: %v", got.end.Dry)
	}
}

func TestOtherNamesAreReadAndNothingElse(t *testing.T) {
	v := newServer()
	for i := range 2500 {
		v.objects[fmt.Sprintf("b/keep/x%d", i)] = []byte("abc")
	}
	v.objects["b/keep/p/0000000001"] = []byte("d") // the driver's own, which it may delete
	got := run(t, v, `"workers":8,"duration":1,
		"spaces":[{"name":"old","bucket":"b","prefix":"keep/","numbered":false,"limit":2000},{"name":"a","bucket":"b","prefix":"keep/p/","sizes":[[1,1,1]],"rebuild":true}],
		"ops":[{"op":"GET","share":5,"spaces":["old","a"]},{"op":"DELETE","share":1,"spaces":["a"]},{"op":"LIST","share":1,"spaces":["old"]}]`)
	if s := got.space(t, "old"); s.Live != 2000 || s.N != 2000 || v.misses.Load() != 0 || len(v.objects) != 2500 || len(got.rows) < 20 {
		t.Fatalf("%+v, %d objects, %d misses", s, len(v.objects), v.misses.Load())
	}
	for file := range got.column(columnFile) {
		if !strings.HasPrefix(file, "keep/") {
			t.Fatal(file)
		}
	}
}

// Two benchmarks on the same bucket: what the first one has read may be in caches.
func TestTheSeedGivesTheOperationsAndNotTheObjects(t *testing.T) {
	v := newServer()
	for i := range 2500 {
		v.objects[fmt.Sprintf("b/x%d", i)] = []byte("abc")
	}
	var ops, files [2][]string
	for i := range ops {
		got := run(t, v, `"workers":1,"duration":0.1,"spaces":[{"name":"old","bucket":"b","numbered":false}],
			"ops":[{"op":"GET","spaces":["old"]},{"op":"STAT","spaces":["old"]}]`)
		for _, fields := range got.rows[:20] {
			ops[i], files[i] = append(ops[i], fields[columnOp]), append(files[i], fields[columnFile])
		}
	}
	if !slices.Equal(ops[0], ops[1]) || slices.Equal(files[0], files[1]) {
		t.Fatalf("%v\n%v", ops, files)
	}
}

func TestRebuildFindsTheNumbers(t *testing.T) {
	v := newServer()
	fill(t, v, 4000)
	for number := int64(1); number <= 4000; number += 3 {
		delete(v.objects, "b/"+string(appendKey(nil, "p/", number)))
	}
	v.objects["b/p/0000100000"] = nil // far beyond
	v.objects["b/p/readme"] = nil
	v.objects["b/p/00000000010"] = nil // eleven digits: not a number of ours
	state := filepath.Join(t.TempDir(), "state")
	got := run(t, v, fmt.Sprintf(`"workers":8,"state_out":%q,"spaces":[{"name":"a","bucket":"b","prefix":"p/","sizes":[[0,100,1],[5000,5000,1]],"rebuild":true}],
		"ops":[{"op":"STAT","select":"r(1,N)","spaces":["a"]}]`, state))
	if s := got.space(t, "a"); s.Live != int64(len(v.objects)-2) || s.N != 100000 || got.end.Issued["STAT"] != s.Live || v.misses.Load() != 0 {
		t.Fatalf("%+v, %d there, %s", s, len(v.objects), got.text)
	}
}

func TestStateOfOtherSpacesIsKept(t *testing.T) {
	v := newServer()
	state := fill(t, v, 100)
	run(t, v, fmt.Sprintf(`"workers":8,"objects":50,"state_in":%q,"state_out":%q,
		"spaces":[{"name":"z","bucket":"b","prefix":"z/","sizes":[[1,1,1]]}],"ops":[{"op":"PUT","spaces":["z"]}]`, state, state))
	if known := agrees(t, v, state); len(known.Spaces) != 2 || known.Runs != 2 {
		t.Fatalf("%+v", known)
	}
}

func TestAStateThatCannotBeWrittenIsRefusedBeforeTheLoad(t *testing.T) {
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{pipe, folder, filepath.Join(folder, "missing", "state")} {
		v := newServer()
		got := run(t, v, fmt.Sprintf(`"objects":5,"state_out":%q,%s"ops":[{"op":"PUT","spaces":["a"]}]`, path, oneSpace))
		if got.status != ExitFailed || len(v.objects) > 0 || !strings.Contains(got.text, "state_out: ") || !strings.Contains(got.text, folder) {
			t.Fatalf("%d, %d objects, %s", got.status, len(v.objects), got.text)
		}
	}
	if info, err := os.Lstat(pipe); err != nil || info.Mode().Type() != os.ModeNamedPipe {
		t.Fatalf("%v %v", info, err)
	}
	if left, _ := os.ReadDir(folder); len(left) != 1 {
		t.Fatalf("left behind: %v", left)
	}
}

func TestStateOfAnotherBucketOrNoStateIsRefused(t *testing.T) {
	v := newServer()
	state := fill(t, v, 100)
	other := `"workers":8,"duration":1,"spaces":[{"name":"a","bucket":"other","prefix":"p/","sizes":[[1,1,1]]}],"ops":[{"op":"GET","spaces":["a"]}],"state_in":%q`
	for _, path := range []string{state, state + ".missing"} {
		got := run(t, v, fmt.Sprintf(other, path))
		if got.status != 1 || len(got.events) != 1 || got.events[0]["event"] != "failed" || !strings.Contains(got.text, "state_in") {
			t.Fatalf("%d %s", got.status, got.text)
		}
	}
	os.WriteFile(state, []byte("CBTK"), 0o644)
	if got := run(t, v, fmt.Sprintf(other, state)); got.status != 1 {
		t.Fatal("a damaged state is taken")
	}
}

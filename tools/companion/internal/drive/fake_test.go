package drive

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"cbt-plugins/companion/internal/s3"
	"cbt-plugins/companion/internal/spec"
)

// server is an S3 server in memory that notices what must not happen.
type server struct {
	mu      sync.Mutex
	objects map[string][]byte
	writing map[string]bool // a PUT or DELETE is under way
	reading map[string]int
	faults  []string
	busy    int // requests under way
	busiest int
	seen    int // requests
	cut     chan struct{}
	once    sync.Once

	delay  func() time.Duration
	before func(r *s3.Request, result *s3.Result) bool // true: it has answered
	after  func(r *s3.Request, result *s3.Result)      // of what was carried out
	keep   bool                                        // contents, not only lengths
	misses atomic.Int64                                // 404
}

func newServer() *server {
	return &server{objects: map[string][]byte{}, writing: map[string]bool{}, reading: map[string]int{}, cut: make(chan struct{})}
}

func (v *server) Cut() { v.once.Do(func() { close(v.cut) }) }

func (v *server) fault(format string, args ...any) {
	v.faults = append(v.faults, fmt.Sprintf(format, args...))
}

func (v *server) enter(r *s3.Request, key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.busy++
	v.seen++
	v.busiest = max(v.busiest, v.busy)
	switch r.Op {
	case s3.Get, s3.Stat:
		v.reading[key]++
	case s3.Put, s3.Multipart, s3.Delete:
		if v.writing[key] {
			v.fault("%s of %s while another write is under way", r.Op, key)
		}
		if r.Op == s3.Delete && v.reading[key] > 0 {
			v.fault("DELETE of %s while it is read", key)
		}
		v.writing[key] = true
	}
}

func (v *server) leave(r *s3.Request, key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.busy--
	switch r.Op {
	case s3.Get, s3.Stat:
		v.reading[key]--
	case s3.Put, s3.Multipart, s3.Delete:
		delete(v.writing, key)
	}
}

func (v *server) Do(r *s3.Request, result *s3.Result) {
	key := strings.Clone(r.Bucket + "/" + r.Key)
	v.enter(r, key)
	defer v.leave(r, key)
	*result = s3.Result{Endpoint: "http://fake", Sent: time.Now(), Objects: 1, Keys: result.Keys[:0]}
	defer func() { result.End = time.Now() }()
	if v.before != nil && v.before(r, result) {
		return
	}
	if v.delay != nil {
		wait := v.delay()
		timer := time.NewTimer(min(wait, time.Until(r.Until)))
		defer timer.Stop()
		select {
		case <-timer.C:
			if time.Until(r.Until) <= 0 {
				result.Kind, result.Message = s3.KindTimeout, "deadline"
				return
			}
		case <-v.cut:
			result.Kind, result.Message = s3.KindCut, "the run ended"
			return
		}
	}
	v.carryOut(r, result, key)
	if v.after != nil {
		v.after(r, result)
	}
}

func (v *server) carryOut(r *s3.Request, result *s3.Result, key string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	result.Status, result.FirstByte = 200, time.Now()
	data, there := v.objects[key]
	switch r.Op {
	case s3.Get, s3.Stat:
		if !there {
			v.misses.Add(1)
			result.Status, result.Kind, result.Message = 404, s3.KindHTTP, "404 NoSuchKey"
			return
		}
		if r.Op == s3.Get {
			result.Bytes = int64(len(data))
			if r.Sink != nil {
				r.Sink.Write(data)
			}
		}
	case s3.Put, s3.Multipart:
		result.Bytes = r.Body.Size()
		var content bytes.Buffer
		if v.keep {
			r.Body.WriteTo(&content)
		}
		v.objects[key] = content.Bytes()
	case s3.Delete:
		delete(v.objects, key)
	case s3.List:
		v.list(r, result)
	}
}

func (v *server) list(r *s3.Request, result *s3.Result) {
	var keys []string
	for key := range v.objects {
		if name, ok := strings.CutPrefix(key, r.Bucket+"/"); ok && strings.HasPrefix(name, r.Key) && name > r.StartAfter {
			keys = append(keys, name)
		}
	}
	slices.Sort(keys)
	if r.Exists != "" && (len(keys) == 0 || keys[0] > r.Exists) {
		v.fault("LIST after %s, while %s does not exist", r.StartAfter, r.Exists)
	}
	result.Truncated = len(keys) > r.MaxKeys
	keys = keys[:min(len(keys), r.MaxKeys)]
	result.Objects = int64(len(keys))
	if r.WantKeys {
		result.Keys, result.Sizes, result.ETags = keys, nil, make([]uint64, len(keys))
		for _, key := range keys {
			result.Sizes = append(result.Sizes, int64(len(v.objects[r.Bucket+"/"+key])))
		}
	}
}

// locked is a buffer that several goroutines write to.
type locked struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *locked) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(data)
}

// outcome is what a run has said.
type outcome struct {
	status int
	rows   [][]string
	events []map[string]any
	end    summary
	text   string
}

func (o *outcome) space(t *testing.T, name string) spaceSummary {
	t.Helper()
	for _, one := range o.end.Spaces {
		if one.Name == name {
			return one
		}
	}
	t.Fatalf("no space %s: %s", name, o.text)
	return spaceSummary{}
}

// column is how many rows have which value.
func (o *outcome) column(column int) map[string]int {
	counts := map[string]int{}
	for _, fields := range o.rows {
		counts[fields[column]]++
	}
	return counts
}

const (
	columnOp    = 2
	columnBytes = 5
	columnFile  = 7
	columnError = 8
)

func parsed(t testing.TB, text string) *spec.Spec {
	t.Helper()
	head := `{"version":1,"hosts":["http://fake"],"grace":1,"deadline":5,`
	s, err := spec.Parse([]byte(head + text + "}"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const oneSpace = `"spaces":[{"name":"a","bucket":"b","prefix":"p/","sizes":[[0,100,1],[5000,5000,1]]}],`

// run makes a run against the server; change may alter its surroundings.
func run(t testing.TB, v *server, text string, change ...func(*Options)) *outcome {
	t.Helper()
	var rows, events locked
	o := Options{
		Spec: parsed(t, text), Client: v, Cut: v.Cut, Rows: &rows, Events: NewEvents(&events),
		Second: func() Client {
			return &server{objects: v.objects, writing: map[string]bool{}, reading: map[string]int{}, before: v.before}
		},
		Hosts: func() []s3.HostState { return []s3.HostState{{URL: "http://fake", InFlight: 1, Up: true}} },
		Stop:  make(chan struct{}),
	}
	for _, f := range change {
		f(&o)
	}
	got := &outcome{status: Run(o), text: events.String()}
	for line := range strings.Lines(rows.String()) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 14 {
			t.Fatalf("%d columns: %q", len(fields), line)
		}
		got.rows = append(got.rows, fields)
	}
	for line := range strings.Lines(got.text) {
		var event map[string]any
		if json.Unmarshal([]byte(line), &event) == nil {
			got.events = append(got.events, event)
			if event["event"] == "end" {
				json.Unmarshal([]byte(line), &got.end)
			}
		}
	}
	for _, fault := range v.faults {
		t.Error(fault)
	}
	return got
}

func discard(o *Options) { o.Rows = io.Discard }

package drive

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"time"

	"cbt-plugins/companion/internal/s3"
)

type ready struct {
	Event   string  `json:"event"`
	T       float64 `json:"t"`
	Live    int64   `json:"live"`
	Seconds float64 `json:"seconds"`
}

type failed struct {
	Event string `json:"event"`
	Text  string `json:"text"`
}

type beat struct {
	Event    string               `json:"event"`
	T        float64              `json:"t"`
	InFlight int                  `json:"in_flight"`
	Oldest   float64              `json:"oldest"` // request under way, seconds
	Ops      map[string][2]int64  `json:"ops"`    // good, failed
	Hosts    map[string]hostState `json:"hosts"`
	Dry      map[string]int64     `json:"dry"`
	Queued   int64                `json:"queued"`
}

type hostState struct {
	InFlight int  `json:"in_flight"`
	Up       bool `json:"up"`
}

type summary struct {
	Event      string           `json:"event"`
	T          float64          `json:"t"`
	Reason     string           `json:"reason"` // duration, objects, exhausted, signal
	Began      float64          `json:"began"`
	Ended      float64          `json:"ended"` // by the monotonic clock: a step of the wall clock changes no length
	Spaces     []spaceSummary   `json:"spaces"`
	Dry        map[string]int64 `json:"dry"`
	Issued     map[string]int64 `json:"issued"`
	Retries    int64            `json:"retries"`
	Reconnects int64            `json:"reconnects"`      // requests sent again: the server had closed the idle connection
	Checksums  int64            `json:"checksum_errors"` // objects that are not what was written, their lengths and ETags too
	Cut        int64            `json:"cut"`             // requests that the end of the run cut off
	Works      []workSummary    `json:"works"`
	Warnings   []warning        `json:"warnings"`
}

// warning is a code of cbt_plugins/warning_kinds.py and a text.
type warning [2]string

const (
	seldom     = 1000 // more than one request in so many that was sent again is told
	outOfReach = 0.05 // share of objects that were unknown at once, above which it is told
)

type workSummary struct {
	Name      string  `json:"name"`
	Latest    float64 `json:"latest_start"` // of an open loop: the worst delay
	Unstarted int64   `json:"unstarted"`    // arrivals that still waited for a worker at the end
}

type spaceSummary struct {
	Name        string `json:"name"`
	Bucket      string `json:"bucket"`
	N           int64  `json:"n"`
	Live        int64  `json:"live"`
	Created     int64  `json:"created"`
	Overwritten int64  `json:"overwritten"`
	Removed     int64  `json:"removed"`
	Absent      int64  `json:"absent"`
	Unknown     int64  `json:"unknown"`
	Seen        int64  `json:"seen"` // without a good answer, but seen at the object; or answered at a later try than the first; or failed tries of a bucket with versions
	Lost        int64  `json:"lost"` // found missing, while no DELETE of ours was carried out; or of the state, and not listed
	Used        int64  `json:"used"`
}

func epoch(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// beat says once a second what is under way.
func (e *engine) beat(over <-chan struct{}) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-over:
			return
		case now := <-ticker.C:
			e.Events.Write(e.beatNow(now))
		}
	}
}

func (e *engine) beatNow(now time.Time) beat {
	b := beat{Event: "beat", T: epoch(now), Ops: map[string][2]int64{}, Hosts: map[string]hostState{}, Dry: e.dry()}
	for _, load := range e.works {
		var counts [len(s3.Ops)][2]int64
		for _, w := range load.crew {
			if since := w.since.Load(); since != 0 {
				b.InFlight++
				b.Oldest = max(b.Oldest, (now.Sub(e.base) - time.Duration(since-1)).Seconds())
			}
			for k := range counts {
				counts[k][0] += w.counts[k].good.Load()
				counts[k][1] += w.counts[k].failed.Load()
			}
		}
		for _, o := range load.ops {
			b.Ops[o.name] = counts[o.index]
		}
		if load.pace != nil {
			b.Queued += load.pace.waiting()
		}
	}
	for _, host := range e.Hosts() {
		b.Hosts[host.URL] = hostState{host.InFlight, host.Up}
	}
	return b
}

// dry is by operation how often there was no object for it.
func (e *engine) dry() map[string]int64 {
	sum := map[string]int64{}
	for _, o := range e.ops {
		if n := o.dry.Load(); n > 0 {
			sum[o.name] += n
		}
	}
	return sum
}

func (e *engine) summary(base time.Time) summary {
	s := summary{
		Event: "end", T: epoch(time.Now()), Reason: e.reason, Began: epoch(base), Ended: epoch(base) + e.ended.Sub(base).Seconds(),
		Dry: e.dry(), Issued: map[string]int64{}, Retries: e.retries.Load(), Checksums: e.checksums.Load(), Cut: e.cuts.Load(),
		Reconnects: e.reconnects.Load(), Works: []workSummary{}, Spaces: []spaceSummary{}, Warnings: []warning{},
	}
	issued := int64(0)
	for op, counts := range e.beatNow(time.Now()).Ops {
		s.Issued[op] = counts[0] + counts[1]
		issued += s.Issued[op]
	}
	if s.Reconnects*seldom > issued {
		s.warn("resent", "%d of %d requests were sent again: the server had closed the idle connection", s.Reconnects, issued)
	}
	for _, w := range e.works {
		summary := workSummary{Name: w.spec.Name, Latest: time.Duration(w.latest.Load()).Seconds()}
		if w.pace != nil {
			summary.Unstarted = w.pace.leftOver(e.lasted(base))
		}
		s.Works = append(s.Works, summary)
	}
	for _, sp := range e.spaces {
		if !sp.numbered() && sp.listed.changed.Load() > 0 {
			s.warn("objects-changed", "space %s: others changed %d of %d objects after the LIST before the load: each was "+
				"listed again, and its answers compared with that", sp.spec.Name, sp.listed.changed.Load(), sp.n)
		}
		sp.mu.Lock()
		s.Spaces = append(s.Spaces, spaceSummary{
			Name: sp.spec.Name, Bucket: sp.spec.Bucket, N: sp.n, Live: sp.objects(), Created: sp.tally.created,
			Overwritten: sp.tally.overwritten, Removed: sp.tally.removed, Absent: sp.tally.absent,
			Unknown: int64(len(sp.unknown)), Seen: sp.tally.seen, Lost: sp.tally.lost, Used: sp.used,
		})
		if sp.gone > 0 {
			s.warn("gone-objects", "space %s: the LIST has not found %d objects of the last state: a broken-off run may have "+
				"deleted them", sp.spec.Name, sp.gone)
		}
		if float64(sp.most) > outOfReach*float64(sp.used) {
			s.warn("out-of-reach", "space %s: up to %d of %d objects were unknown: nothing used them until the end",
				sp.spec.Name, sp.most, sp.used)
		}
		sp.mu.Unlock()
	}
	return s
}

func (s *summary) warn(code, format string, args ...any) {
	s.Warnings = append(s.Warnings, warning{code, fmt.Sprintf(format, args...)})
}

// Events are JSON objects, one a line. That they cannot be written is no reason to stop.
type Events struct {
	mu  sync.Mutex
	out io.Writer
}

// NewEvents writes to `out`, which several goroutines may use through it.
func NewEvents(out io.Writer) *Events { return &Events{out: out} }

// Write says one event.
func (e *Events) Write(event any) {
	text, err := json.Marshal(event)
	if err != nil {
		return
	}
	e.line(text)
}

// Say writes a message for people.
func (e *Events) Say(message string) { e.line([]byte(message)) }

func (e *Events) line(text []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.out.Write(append(text, '\n'))
}

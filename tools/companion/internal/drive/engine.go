// Package drive is the load itself: workers that make requests on objects that exist, and know what they did to them.
package drive

import (
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cbt-plugins/companion/internal/rowout"
	"cbt-plugins/companion/internal/s3"
	"cbt-plugins/companion/internal/schedule"
	"cbt-plugins/companion/internal/spec"
)

// Exit statuses of a run.
const (
	ExitGood   = 0
	ExitFailed = 1
	ExitUsage  = 2
)

// Why a run ended.
const (
	endDuration  = "duration"
	endObjects   = "objects"
	endExhausted = "exhausted"
	endSignal    = "signal"
)

const (
	kinds = 6 // of operations, by name
	// how long after Cut a request may still take to return, and how long rows may take to be read
	patience = 5 * time.Second
	// for doubts, when somebody wants the process to end
	hurriedSettling = 1500 * time.Millisecond
)

var kindNames = [kinds]s3.Op{s3.Get, s3.Put, s3.Stat, s3.Delete, s3.List, s3.Multipart}

// Client makes requests.
type Client interface {
	Do(request *s3.Request, result *s3.Result)
}

// Options is a run and its surroundings.
type Options struct {
	Spec   *spec.Spec
	Client Client
	Cut    func()                // ends all requests of Client at once
	Second func() Client         // another client, for what is left to ask after Cut
	Hosts  func() []s3.HostState // what each host is doing
	Rows   io.Writer
	Events *rowout.Events
	// Go waits for the instant at which the load begins; false: `stop` came first. Nil: at once.
	Go func(stop <-chan struct{}) (time.Time, bool)
	// Stop is closed by SIGTERM and SIGINT.
	Stop <-chan struct{}
	// AtLast is told how long the rest of the run takes at most, when its end begins.
	AtLast func(time.Duration)
}

type engine struct {
	Options
	spec       *spec.Spec
	client     Client
	seed       uint64
	generation uint64
	kept       kept // the state's other spaces
	opened     bool // it is known what exists
	spaces     []*space
	ops        []*op
	mix        *schedule.Mix
	pace       *pace // nil: closed loop
	rows       *rowout.Rows
	crew       []*worker

	base   time.Time // the start
	last   time.Time // no request takes longer; zero: not known
	start  chan struct{}
	stop   chan struct{} // closed: nothing more is issued
	ending sync.Once
	reason string    // why it ended; set before stop is closed
	ended  time.Time // set before stop is closed
	closed atomic.Bool

	workers   sync.WaitGroup
	undone    atomic.Int64 // spaces that have not got their objects
	retries   atomic.Int64
	checksums atomic.Int64
	latest    atomic.Int64 // delay of a start, ns
}

// Run makes a run and returns the exit status of the process.
func Run(o Options) int {
	e := &engine{Options: o, spec: o.Spec, client: o.Client, start: make(chan struct{}), stop: make(chan struct{})}
	begun := time.Now()
	if err := e.openSpaces(); err != nil {
		if !e.stopped() {
			return e.fail(err.Error())
		}
		e.end(endSignal)
		return e.finish(time.Now(), false)
	}
	e.opened = true
	e.prepare()
	e.Events.Write(ready{Event: "ready", T: epoch(time.Now()), Live: e.liveObjects(), Seconds: time.Since(begun).Seconds()})
	base := time.Now()
	if o.Go != nil {
		at, ok := o.Go(o.Stop)
		if !ok {
			e.end(endSignal)
			return e.finish(time.Now(), false)
		}
		// an instant that has passed: now, or the first second would be a burst
		if base = at; time.Until(at) < 0 {
			base = time.Now()
		}
	}
	return e.load(base)
}

func (e *engine) fail(text string) int {
	e.Events.Write(failed{Event: "failed", Text: text})
	return ExitFailed
}

func (e *engine) stopped() bool {
	select {
	case <-e.Stop:
		return true
	default:
		return false
	}
}

// prepare makes what the workers share.
func (e *engine) prepare() {
	s := e.spec
	shares := make([]float64, len(s.Ops))
	for i := range s.Ops {
		shares[i] = s.Ops[i].Share
		o := newOp(&s.Ops[i], e.spaces)
		o.kind = slices.Index(kindNames[:], o.spec.Op)
		e.ops = append(e.ops, o)
	}
	for i, quota := range schedule.Quotas(shares) {
		if quota == 0 {
			e.ops[i].done.Store(true) // it never comes: nobody is to wait for it
		}
	}
	e.mix = schedule.NewMix(shares, e.seed)
	for _, one := range e.spaces {
		writes := func(o *op) bool {
			return !o.done.Load() && o.spec.Writes() && slices.ContainsFunc(o.spans, func(p span) bool { return p.space == one })
		}
		if s.Objects > 0 && slices.ContainsFunc(e.ops, writes) {
			one.goal = s.Objects
			e.undone.Add(1)
		}
	}
	if s.Rate > 0 {
		e.pace = newPace(e.arrivals())
	}
	for i := range s.Workers {
		e.crew = append(e.crew, newWorker(e, i))
	}
}

func (e *engine) arrivals() *schedule.Arrivals {
	return schedule.NewArrivals(e.spec.Rate, e.spec.Ramp, e.spec.Poisson, schedule.Mix64(e.seed+1))
}

// load is the run from its start to its end.
func (e *engine) load(base time.Time) int {
	e.base = base
	var over <-chan time.Time
	if e.spec.Duration > 0 {
		e.last = base.Add(seconds(e.spec.Duration + e.spec.Grace))
		timer := time.NewTimer(time.Until(base) + seconds(e.spec.Duration))
		defer timer.Stop()
		over = timer.C
	}
	e.rows = rowout.NewRows(e.Rows, e.spec.Workers)
	e.workers.Add(len(e.crew))
	for _, w := range e.crew {
		go w.run()
	}
	go precisely(func() {
		if sleepUntil(base, e.stop) {
			close(e.start)
			if e.pace != nil {
				e.pace.run(base, e.arrivals(), e.stop)
			}
		}
	})
	quiet := make(chan struct{})
	go func() {
		e.workers.Wait()
		close(quiet)
	}()
	beats := make(chan struct{})
	defer close(beats)
	go e.beat(beats)

	hurry := false
	select {
	case <-over:
		e.end(endDuration)
	case <-e.stop: // objects, exhausted
	case <-e.Stop:
		hurry = true
		e.end(endSignal)
	case <-e.rows.Broken():
		hurry = true
		e.end(endSignal)
	}
	hurry = e.drain(quiet, hurry)
	return e.finish(base, !hurry)
}

// drain waits for the requests under way, and cuts them in the end; it returns true when there is no time for more.
func (e *engine) drain(quiet <-chan struct{}, hurry bool) bool {
	if e.pace != nil {
		e.pace.close()
	}
	grace := seconds(e.spec.Grace)
	if e.reason == endExhausted {
		// each object was to be had once: the last of them too, if there is time
		grace = max(grace, seconds(e.spec.Deadline*float64(e.spec.Retries+1)))
		if !e.last.IsZero() {
			grace = min(grace, time.Until(e.last))
		}
	}
	e.atLast(grace + e.settling(false) + 3*patience)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	if !hurry {
		select {
		case <-quiet:
			return false
		case <-timer.C:
		case <-e.Stop:
			hurry = true
		case <-e.rows.Broken():
			hurry = true
		}
	}
	e.Cut()
	select {
	case <-quiet:
	case <-time.After(patience):
		e.Events.Say("cbt-hybrid: requests were cut and have not returned: their objects are unknown")
	}
	return hurry
}

func (e *engine) atLast(d time.Duration) {
	if e.AtLast != nil {
		e.AtLast(d)
	}
}

// settling is how long doubts may be asked for.
func (e *engine) settling(hurry bool) time.Duration {
	if hurry {
		return hurriedSettling
	}
	return seconds(e.spec.Grace + e.spec.Deadline)
}

// finish settles, saves, and says what the run has done.
func (e *engine) finish(base time.Time, leisurely bool) int {
	if e.opened {
		e.settle(e.settling(!leisurely))
		e.setN()
	}
	failure := ""
	if e.rows != nil {
		if err := e.rows.Close(patience); err != nil {
			failure = "rows cannot be written: " + err.Error()
		}
	}
	if err := e.save(); err != nil {
		failure = "the state cannot be written: " + err.Error()
	}
	e.Events.Write(e.summary(base))
	if failure != "" {
		return e.fail(failure)
	}
	return ExitGood
}

// setN makes N what a fill has used.
func (e *engine) setN() {
	for _, s := range e.spaces {
		s.mu.Lock()
		if e.spec.SetsN && s.numbered() {
			s.n = s.used
		}
		s.mu.Unlock()
	}
}

// end says that nothing more is issued; the first reason counts.
func (e *engine) end(reason string) {
	e.ending.Do(func() {
		e.reason, e.ended = reason, time.Now()
		e.closed.Store(true)
		close(e.stop)
	})
}

// open tells whether requests may be made.
func (e *engine) open() bool {
	if e.closed.Load() {
		return false
	}
	if e.spec.Duration > 0 && time.Since(e.base) >= seconds(e.spec.Duration) {
		e.end(endDuration)
		return false
	}
	return true
}

// issues tells whether a request that has its object may be made. That others have found nothing more to do is no reason
// against the last one.
func (e *engine) issues() bool {
	if !e.closed.Load() {
		return e.open()
	}
	return e.reason == endExhausted && (e.last.IsZero() || time.Since(e.base) < seconds(e.spec.Duration))
}

// complete is called when a space has got its objects.
func (e *engine) complete() {
	if e.undone.Add(-1) == 0 {
		e.end(endObjects)
	}
}

// exhausted is called when an operation has had all of its objects.
func (e *engine) exhausted() {
	for _, o := range e.ops {
		if !o.done.Load() {
			return
		}
	}
	e.end(endExhausted)
}

// notStarted is for an arrival that a worker had taken when the run ended.
func (e *engine) notStarted(intended time.Time) {
	if e.pace != nil && intended.Sub(e.base) < e.lasted(e.base) {
		e.pace.giveBack()
	}
}

// lasted is for how long requests were issued; a late clock makes it no longer. The run has ended.
func (e *engine) lasted(base time.Time) time.Duration {
	lasted := e.ended.Sub(base)
	if e.spec.Duration > 0 {
		lasted = min(lasted, seconds(e.spec.Duration))
	}
	return lasted
}

// late notes how much after its time a request starts.
func (e *engine) late(by time.Duration) {
	for {
		worst := e.latest.Load()
		if int64(by) <= worst || e.latest.CompareAndSwap(worst, int64(by)) {
			return
		}
	}
}

func (e *engine) liveObjects() int64 {
	live := int64(0)
	for _, s := range e.spaces {
		live += s.objects()
	}
	return live
}

// objects is how many there are to read.
func (s *space) objects() int64 {
	if !s.numbered() {
		return s.names.len()
	}
	return s.count.Load()
}

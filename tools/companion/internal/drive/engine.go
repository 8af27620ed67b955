// Package drive is the load itself: workers that make requests on objects that exist, and know what they did to them.
package drive

import (
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"cbt-plugins/companion/internal/keyset"
	"cbt-plugins/companion/internal/rows"
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
	Events *Events
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
	works      []*work
	ops        []*op // of all works
	rows       *rows.Writer
	silence    func() // ends the beats; nil before the load

	base   time.Time // the start
	last   time.Time // no request takes longer; zero: not known
	start  chan struct{}
	stop   chan struct{} // closed: nothing more is issued
	cut    chan struct{} // closed: nothing is retried any more
	ending sync.Once
	reason string    // why it ended; set before stop is closed
	ended  time.Time // set before stop is closed
	closed atomic.Bool

	workers    sync.WaitGroup
	undone     atomic.Int64 // spaces that have not got their objects
	retries    atomic.Int64
	reconnects atomic.Int64
	checksums  atomic.Int64
	cuts       atomic.Int64 // requests that the end of the run cut off
	hurried    time.Time    // since when the rest has to be short; zero: it has not
}

// work is a mix of operations, and who makes it.
type work struct {
	spec   *spec.Work
	ops    []*op
	mix    *schedule.Mix
	seed   uint64
	pace   *pace // nil: closed loop
	crew   []*worker
	latest atomic.Int64 // delay of a start, ns
}

// Run makes a run and returns the exit status of the process.
func Run(o Options) int {
	e := &engine{Options: o, spec: o.Spec, client: o.Client, start: make(chan struct{}), stop: make(chan struct{}), cut: make(chan struct{})}
	if path := o.Spec.StateOut; path != "" {
		if err := keyset.CheckTarget(path); err != nil {
			return e.fail("state_out: " + err.Error())
		}
	}
	begun := time.Now()
	if err := e.openUnlessStopped(); err != nil {
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

// openUnlessStopped finds out what there is; a request that is under way does not keep the process from its end.
func (e *engine) openUnlessStopped() error {
	opened, watched := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-e.Stop:
			e.Cut()
		case <-opened:
		}
	}()
	err := e.openSpaces()
	close(opened)
	<-watched
	return err
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
	id := 0
	for i := range s.Works {
		w := e.newWork(&s.Works[i])
		e.works, e.ops = append(e.works, w), append(e.ops, w.ops...)
		for place := range w.spec.Workers {
			w.crew = append(w.crew, newWorker(e, w, id, place))
			id++
		}
	}
	for _, sp := range e.spaces {
		writes := func(o *op) bool {
			return !o.done.Load() && o.spec.Writes() && slices.ContainsFunc(o.spans, func(p span) bool { return p.space == sp })
		}
		if s.Objects > 0 && slices.ContainsFunc(e.ops, writes) {
			if sp.goal = s.Objects; sp.spec.Objects > 0 {
				sp.goal = sp.spec.Objects
			}
			e.undone.Add(1)
		}
	}
}

// newWork makes a work without its workers.
func (e *engine) newWork(workSpec *spec.Work) *work {
	w := &work{spec: workSpec, seed: nameSeed(e.seed, workSpec.Name)}
	shares := make([]float64, len(workSpec.Ops))
	for i := range workSpec.Ops {
		shares[i] = workSpec.Ops[i].Share
		o := newOp(&workSpec.Ops[i], e.spaces)
		o.index, o.name = slices.Index(s3.Ops[:], o.spec.Op), workSpec.OpName(o.spec.Op)
		w.ops = append(w.ops, o)
	}
	for i, quota := range schedule.Quotas(shares) {
		if quota == 0 {
			w.ops[i].done.Store(true) // it never comes: nobody is to wait for it
		}
	}
	w.mix = schedule.NewMix(shares, w.seed)
	if workSpec.Rate > 0 {
		w.pace = newPace(w.arrivals(e.spec.Ramp))
	}
	return w
}

func (w *work) arrivals(ramp float64) *schedule.Arrivals {
	return schedule.NewArrivals(w.spec.Rate, ramp, w.spec.Poisson, schedule.Mix64(w.seed+1))
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
	e.rows = rows.NewWriter(e.Rows, e.spec.Workers)
	e.workers.Add(e.spec.Workers)
	for _, load := range e.works {
		for _, w := range load.crew {
			go w.run()
		}
		if load.pace != nil {
			go precisely(func() { load.pace.run(base, load.arrivals(e.spec.Ramp), e.stop) })
		}
	}
	go precisely(func() {
		if sleepUntil(base, e.stop) {
			close(e.start)
		}
	})
	quiet := make(chan struct{})
	go func() {
		e.workers.Wait()
		close(quiet)
	}()
	beats, silent := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(silent)
		e.beat(beats)
	}()
	e.silence = sync.OnceFunc(func() {
		close(beats)
		<-silent
	})
	defer e.silence()

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
	hurry = e.waitThenCut(quiet, hurry)
	return e.finish(base, !hurry)
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
		return s.listed.len()
	}
	return s.count.Load()
}

package drive

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"cbt-plugins/companion/internal/content"
	"cbt-plugins/companion/internal/rows"
	"cbt-plugins/companion/internal/s3"
)

const (
	shortPause = time.Millisecond
	longPause  = 50 * time.Millisecond
)

// worker makes one request after the other. What it needs for that it makes once.
type worker struct {
	e       *engine
	work    *work
	id      int
	place   int // among those of the work
	chooser chooser
	choice  choice
	request s3.Request
	result  s3.Result
	body    content.Body
	sink    content.Sink
	key     []byte
	row     rows.Request
	timer   *time.Timer
	writes  uint64
	hashing time.Duration // of the body of this request

	since  atomic.Int64 // of the request under way: nanoseconds since the engine's base, plus 1; 0: none
	counts [len(s3.Ops)]struct{ good, failed atomic.Int64 }
	_      [64]byte // the next worker's counters are in another cache line
}

func newWorker(e *engine, of *work, id, place int) *worker {
	w := &worker{e: e, work: of, id: id, place: place, timer: time.NewTimer(time.Hour)}
	w.timer.Stop()
	// without the seed: the objects of a run before would be in caches
	w.chooser.random = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	w.row.Thread = uint32(id)
	return w
}

// run is the worker's life: from its instant on until the end.
func (w *worker) run() {
	defer w.e.workers.Done()
	defer w.timer.Stop()
	select {
	case <-w.e.start:
	case <-w.e.stop:
		return
	}
	if ramp := w.e.spec.Ramp; w.work.pace == nil && ramp > 0 {
		joins := w.e.base.Add(seconds(ramp * float64(w.place) / float64(w.work.spec.Workers)))
		if !w.pause(time.Until(joins)) {
			return
		}
	}
	failing := time.Duration(0)
	for {
		intended, ok := w.due()
		if !ok {
			return
		}
		if !w.chooseRequest() {
			w.notStarted(intended)
			return
		}
		w.prepare()
		started := time.Now()
		if !w.e.issues(started) {
			w.giveBack()
			w.notStarted(intended)
			return
		}
		w.do(started, intended)
		// nobody takes it: a loop without a pause would only make rows, and objects of which nobody knows
		if failing++; !w.result.Failing() {
			failing = 0
		} else if w.work.pace == nil && !w.pause(min(failing*10*time.Millisecond, 2*longPause)) {
			return
		}
	}
}

// chooseRequest finds an operation that has an object; false: the run is over. What finds none is left out.
func (w *worker) chooseRequest() bool {
	wait := shortPause
	for miss := 1; ; miss++ {
		if !w.e.open() {
			return false
		}
		o := w.work.ops[w.work.mix.Next()]
		if !o.done.Load() {
			switch o.chooseObject(&w.chooser, &w.choice) {
			case good:
				return true
			case dry:
				o.dry.Add(1)
			case over:
				w.e.exhausted()
			}
		}
		// nothing to do but wait for what others are doing
		if miss%64 == 0 {
			if !w.pause(wait) {
				return false
			}
			wait = min(2*wait, longPause)
		}
	}
}

// giveBack is for an object that no request was made for.
func (w *worker) giveBack() {
	if c := &w.choice; c.space.numbered() {
		c.space.finish(c, fate{})
	}
}

// do makes the request, again if it fails and may be repeated, and says what came of it. A closed loop has no intended
// start; in an open loop the latency begins there, without the time that its body took to hash, which is not the cluster's.
func (w *worker) do(started, intended time.Time) {
	o, result := w.choice.op, &w.result
	intended = w.latencyBegin(started, intended)
	w.since.Store(int64(started.Sub(w.e.base)) + 1)
	doubts, silent := int64(0), false
	for again := 0; ; again++ {
		sent := time.Now()
		clamped := w.until(sent)
		w.e.client.Do(&w.request, result)
		intended = intended.Add(result.Hashing)
		if isOtherObject(result.Kind) && w.changedByOthers() {
			now := time.Now()
			intended = intended.Add(now.Sub(sent)) // this request is about the object as it is now
			w.request.Expected, clamped = w.choice.space.listed.expected(w.choice.number), w.until(now)
			w.e.client.Do(&w.request, result)
		}
		if result.Kind == s3.KindTimeout && clamped {
			result.Kind, result.Message = s3.KindCut, "the run ended"
		}
		if result.End.Before(started) {
			result.End = time.Now()
		}
		if result.Kind == "" && w.request.Sink != nil {
			if mismatch := w.sink.Mismatch(); mismatch != "" {
				result.Kind, result.Message = s3.KindChecksum, mismatch
			}
		}
		if isOtherObject(result.Kind) {
			w.e.checksums.Add(1)
		}
		doubts += result.Doubts()
		silent = silent || result.Unanswered()
		if result.Resent {
			w.e.reconnects.Add(1)
		}
		if result.Kind == "" || again >= w.e.spec.Retries || !worthRepeating(result) || !w.pauseToRetry(backOff(again)) {
			break
		}
		w.e.retries.Add(1)
		if w.request.Sink != nil {
			w.sink.Again()
		}
	}
	if c := &w.choice; c.space.numbered() {
		if c.space.finish(c, fate{result.Kind == "", doubts, silent}) {
			w.e.complete()
		}
	}
	if result.Kind == "" {
		w.counts[o.index].good.Add(1)
	} else {
		w.counts[o.index].failed.Add(1)
	}
	if result.Kind == s3.KindCut {
		w.e.cuts.Add(1)
	}
	w.since.Store(0)
	w.report(intended)
}

// until sets the deadline, and tells whether it is the run's end rather than the request's own.
func (w *worker) until(now time.Time) bool {
	w.request.Until = now.Add(seconds(w.e.spec.Deadline))
	if last := w.e.last; !last.IsZero() && w.request.Until.After(last) {
		w.request.Until = last
		return true
	}
	return false
}

// isOtherObject tells whether an error says that an object is not what was written.
func isOtherObject(kind string) bool {
	return kind == s3.KindChecksum || kind == s3.KindLength || kind == s3.KindETag
}

// worthRepeating tells whether trying again may help.
func worthRepeating(result *s3.Result) bool {
	switch result.Kind {
	case s3.KindCut, s3.KindChecksum, s3.KindLength, s3.KindETag:
		return false
	case s3.KindHTTP:
		return result.Status >= 500 || result.Status == 429 || result.Status == 408
	}
	return true
}

// firstBackOff is before the first repetition; the next ones wait twice as long each.
var firstBackOff = 100 * time.Millisecond

func backOff(again int) time.Duration {
	return min(firstBackOff<<min(again, 10), 5*time.Second)
}

// pauses are all back-offs of a request.
func pauses(retries int) (sum time.Duration) {
	for again := range retries {
		sum += backOff(again)
	}
	return sum
}

func (w *worker) report(intended time.Time) {
	c, result, r := &w.choice, &w.result, &w.row
	r.Op, r.File, r.Endpoint = c.op.name, w.request.Key, result.Endpoint
	r.Objects, r.Bytes, r.First, r.Err = 1, 0, 0, ""
	switch c.op.spec.Op {
	case s3.Get:
		// of a failed one what it was to have, as warp says it: its size class is that of the object
		if r.Bytes = result.Bytes; result.Kind != "" {
			r.Bytes = w.request.Expected.Size
		}
	case s3.Put, s3.Multipart:
		r.Bytes = w.body.Size()
	case s3.List:
		r.Objects = result.Objects
	case s3.Delete:
		if !c.lived {
			r.Objects = 0
		}
	}
	if result.Kind != "" {
		r.Err = result.Kind + ": " + result.Message
	}
	// the durations are the monotonic clock's: a step of the wall clock moves a row and does not stretch it
	r.End, r.Duration = result.End.UnixNano(), int64(result.End.Sub(intended))
	r.Start = r.End - r.Duration
	if op := c.op.spec.Op; (op == s3.Get || op == s3.List) && !result.FirstByte.IsZero() {
		r.First = r.End - int64(result.End.Sub(result.FirstByte))
	}
	w.e.rows.Add(w.id, r)
}

// pause waits; false: the run ended meanwhile.
func (w *worker) pause(d time.Duration) bool {
	if d <= 0 {
		return w.e.open()
	}
	w.timer.Reset(d)
	select {
	case <-w.timer.C:
		return w.e.open()
	case <-w.e.stop:
		w.timer.Stop()
		return false
	}
}

// pauseToRetry waits before a retry; false: there is none. That others have found nothing more to do does not end it.
func (w *worker) pauseToRetry(d time.Duration) bool {
	until := time.Now().Add(d)
	if w.pause(d) {
		return true
	}
	if !w.e.issues(time.Now()) {
		return false
	}
	w.timer.Reset(time.Until(until))
	select {
	case <-w.timer.C:
		return w.e.issues(time.Now())
	case <-w.e.cut:
		w.timer.Stop()
		return false
	}
}

func seconds(s float64) time.Duration {
	return time.Duration(min(s, 1e9) * 1e9)
}

package drive

import (
	"runtime"
	"sync"
	"time"

	"cbt-plugins/companion/internal/schedule"
)

// pace hands out the arrivals of an open loop: each one to one worker, not before its time. Those that no worker is free
// for wait, in order; a number is enough to remember them, since the schedule can be made again.
type pace struct {
	mu       sync.Mutex
	arrived  sync.Cond
	schedule *schedule.Arrivals // of those that workers take
	due      int64              // arrivals so far
	taken    int64
	back     int64 // taken, and not started before the end
	closed   bool
}

func newPace(times *schedule.Arrivals) *pace {
	p := &pace{schedule: times}
	p.arrived.L = &p.mu
	return p
}

// take waits for an arrival and returns its time since the start; false: there are no more.
func (p *pace) take() (time.Duration, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.due == p.taken && !p.closed {
		p.arrived.Wait()
	}
	if p.closed {
		return 0, false
	}
	p.taken++
	return p.schedule.Next(), true
}

// run lets arrivals come at their times, by the same schedule, until `stop`.
func (p *pace) run(base time.Time, times *schedule.Arrivals, stop <-chan struct{}) {
	for sleepUntil(base.Add(times.Next()), stop) {
		p.mu.Lock()
		p.due++
		p.mu.Unlock()
		p.arrived.Signal()
	}
}

func (p *pace) close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.arrived.Broadcast()
}

// giveBack is for what take returned and nothing came of.
func (p *pace) giveBack() {
	p.mu.Lock()
	p.back++
	p.mu.Unlock()
}

// leftOver is how many arrivals were due by `end` and were not started. It is asked once, when nobody takes any more: those
// that the clock was late for count as well.
func (p *pace) leftOver(end time.Duration) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	left := p.back
	for p.schedule.Next() < end {
		left++
	}
	return left
}

// waiting is how many arrivals no worker has taken yet.
func (p *pace) waiting() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.due - p.taken
}

// due is when the next request should start: the zero time means at once.
func (w *worker) due() (time.Time, bool) {
	if w.work.pace == nil {
		return time.Time{}, w.e.open()
	}
	at, ok := w.work.pace.take()
	return w.e.base.Add(at), ok
}

// notStarted is for an arrival that the worker had taken when the run ended.
func (w *worker) notStarted(intended time.Time) {
	if w.work.pace != nil && intended.Sub(w.e.base) < w.e.lasted(w.e.base) {
		w.work.pace.giveBack()
	}
}

// latencyBegin is when the latency of a request begins: at its start, and in an open loop when it was due. The time in which
// its body was hashed is not part of it.
func (w *worker) latencyBegin(started, due time.Time) time.Time {
	if due.IsZero() {
		return started
	}
	w.work.late(started.Sub(due))
	return due.Add(w.hashing)
}

// late notes how much after its time a request starts.
func (w *work) late(by time.Duration) {
	for {
		worst := w.latest.Load()
		if int64(by) <= worst || w.latest.CompareAndSwap(worst, int64(by)) {
			return
		}
	}
}

// precisely runs what calls sleepUntil: on a thread of its own, whose timers are exact.
func precisely(run func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	exactTimers()
	run()
}

// sleepUntil waits for an instant, and returns false when `stop` came first. Go's own timers are a millisecond late when
// nothing else happens, which would be in every latency of an open loop.
func sleepUntil(when time.Time, stop <-chan struct{}) bool {
	for {
		left := time.Until(when)
		select {
		case <-stop:
			return false
		default:
		}
		if left <= 0 {
			return true
		}
		nanosleep(min(left, 20*time.Millisecond))
	}
}

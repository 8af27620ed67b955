package drive

import "time"

// Why a run ended.
const (
	endDuration  = "duration"
	endObjects   = "objects"
	endExhausted = "exhausted"
	endSignal    = "signal"
)

const (
	// how long after Cut a request may still take to return, and how long rows may take to be read
	writeTimeout = 5 * time.Second
	// to look for unknown objects, when somebody wants the process to end
	hurriedLookUp = 1500 * time.Millisecond
)

// waitThenCut waits for the requests under way, and cuts them in the end; it returns true when there is no time for more.
func (e *engine) waitThenCut(quiet <-chan struct{}, hurry bool) bool {
	for _, w := range e.works {
		if w.pace != nil {
			w.pace.close()
		}
	}
	grace := seconds(e.spec.Grace)
	if e.reason == endExhausted {
		// each object was to be had once: the last of them too, if there is time
		grace = max(grace, seconds(e.spec.Deadline*float64(e.spec.Retries+1))+pauses(e.spec.Retries))
		if !e.last.IsZero() {
			grace = min(grace, time.Until(e.last))
		}
	}
	e.atLast(grace + e.lookUpTime(false) + 3*writeTimeout)
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
	if hurry {
		e.hurried = time.Now()
	}
	close(e.cut)
	e.Cut()
	select {
	case <-quiet:
	case <-time.After(writeTimeout):
		e.Events.Say("cbt-load: requests were cut and have not returned: their objects are unknown")
	}
	return hurry
}

func (e *engine) atLast(d time.Duration) {
	if e.AtLast != nil {
		e.AtLast(d)
	}
}

// lookUpTime is how long lookUpUnknown may take.
func (e *engine) lookUpTime(hurry bool) time.Duration {
	if !e.hurried.IsZero() {
		return max(hurriedLookUp-time.Since(e.hurried), 0)
	}
	if hurry {
		return hurriedLookUp
	}
	return seconds(e.spec.Grace + e.spec.Deadline)
}

// finish looks up unknown objects, saves, and says what the run has done.
func (e *engine) finish(base time.Time, leisurely bool) int {
	if e.opened {
		e.lookUpUnknown(e.lookUpTime(!leisurely))
		e.setN()
	}
	failure := ""
	if e.rows != nil {
		if err := e.rows.Close(writeTimeout); err != nil {
			failure = "rows cannot be written: " + err.Error()
		}
	}
	if err := e.save(); err != nil {
		failure = "the state cannot be written: " + err.Error()
	}
	if e.silence != nil {
		e.silence() // the end is the last word
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
func (e *engine) open() bool { return e.openAt(time.Now()) }

func (e *engine) openAt(now time.Time) bool {
	if e.closed.Load() {
		return false
	}
	if e.spec.Duration > 0 && now.Sub(e.base) >= seconds(e.spec.Duration) {
		e.end(endDuration)
		return false
	}
	return true
}

// issues tells whether a request that has its object may be made at this instant, which is its start. That others have
// found nothing more to do is no reason against the last one.
func (e *engine) issues(now time.Time) bool {
	if !e.closed.Load() {
		return e.openAt(now)
	}
	return e.reason == endExhausted && (e.last.IsZero() || now.Sub(e.base) < seconds(e.spec.Duration))
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

// lasted is for how long requests were issued; a late clock makes it no longer. The run has ended.
func (e *engine) lasted(base time.Time) time.Duration {
	lasted := e.ended.Sub(base)
	if e.spec.Duration > 0 {
		lasted = min(lasted, seconds(e.spec.Duration))
	}
	return lasted
}

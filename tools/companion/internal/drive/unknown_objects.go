package drive

import (
	"sync"
	"time"

	"cbt-plugins/companion/internal/keyset"
	"cbt-plugins/companion/internal/s3"
)

const (
	lookUpWorkers = 32
	lookUpPause   = 100 * time.Millisecond
)

// question is an object of which is not known whether it exists.
type question struct {
	space  *space
	object keyset.Unknown
}

// lookUpUnknown asks the server for every unknown object whether it is there, for so long at most. Objects without an
// answer stay unknown.
func (e *engine) lookUpUnknown(budget time.Duration) {
	var open []question
	for _, s := range e.spaces {
		s.mu.Lock()
		for _, unknown := range s.unknown {
			open = append(open, question{s, unknown})
		}
		s.mu.Unlock()
	}
	if len(open) == 0 {
		return
	}
	until := time.Now().Add(budget)
	done := make(chan struct{})
	go func() {
		defer close(done)
		client := e.Second() // it looks its hosts up, which takes long with a name server that is dead
		questions := make(chan question)
		var group sync.WaitGroup
		for range min(lookUpWorkers, e.spec.Workers, len(open)) {
			group.Add(1)
			go func() {
				defer group.Done()
				for q := range questions {
					e.lookUp(client, q, until)
				}
			}()
		}
		for _, q := range open {
			if time.Now().Before(until) {
				questions <- q
			}
		}
		close(questions)
		group.Wait()
	}()
	stop := e.Stop
	late := time.NewTimer(budget)
	defer late.Stop()
	for {
		select {
		case <-done:
			return
		case <-late.C:
			return
		case <-stop: // no more than a hurried look-up from now on
			stop = nil
			late.Reset(min(hurriedLookUp, max(time.Until(until), 0)))
		}
	}
}

// lookUp asks until there is an answer.
func (e *engine) lookUp(client Client, q question, until time.Time) {
	prefix := q.space.spec.Prefix
	request := s3.Request{Op: s3.Stat, Bucket: q.space.spec.Bucket, Key: string(appendKey(nil, prefix, q.object.Number))}
	request.Expected = q.space.expected(q.object.Number)
	var result s3.Result
	for left := time.Until(until); left > 0; left = time.Until(until) {
		request.Until = time.Now().Add(min(left, seconds(e.spec.Deadline)))
		client.Do(&request, &result)
		switch {
		case result.Kind == "":
			q.space.noteExistence(q.object, true)
			return
		case result.Kind == s3.KindHTTP && result.Status == 404:
			q.space.noteExistence(q.object, false)
			return
		case !worthRepeating(&result):
			return
		}
		time.Sleep(min(lookUpPause, max(time.Until(until), 0)))
	}
}

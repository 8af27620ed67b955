package drive

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"cbt-plugins/companion/internal/keyset"
	"cbt-plugins/companion/internal/s3"
)

const (
	listers   = 16
	listTries = 5
)

// listLimit is for one request before the load; and a page is asked for again as long.
var listLimit = 60 * time.Second

var errStopped = errors.New("stopped")

// page is one LIST, tried again when it fails.
func (e *engine) page(request *s3.Request, result *s3.Result) error {
	request.Op, request.WantKeys = s3.List, true
	for begun, try := time.Now(), 1; ; try++ {
		if e.stopped() {
			return errStopped
		}
		request.Until = time.Now().Add(e.patience())
		e.client.Do(request, result)
		if result.Kind == "" {
			return nil
		}
		if !worthRepeating(result) || try >= listTries && (result.Kind == s3.KindProtocol || time.Since(begun) > listLimit) {
			return fmt.Errorf("LIST of %s/%s: %s: %s", request.Bucket, request.Key, result.Kind, result.Message)
		}
		select {
		case <-time.After(backOff(try)):
		case <-e.Stop:
		}
	}
}

// patience is how long a request before the load may take.
func (e *engine) patience() time.Duration { return min(seconds(e.spec.Deadline), listLimit) }

// findNames lists a space that is not numbered.
func (e *engine) findNames(s *space) error {
	s.listed = &listedKeys{}
	var ours []string // what this run may delete is not to be read under another name
	if s.spec.Exclude != "" {
		ours = append(ours, s.spec.Exclude)
	}
	for _, work := range e.spec.Works {
		for _, o := range work.Ops {
			for _, i := range o.Spaces {
				if sp := e.spec.Spaces[i]; o.Op == s3.Delete && sp.Bucket == s.spec.Bucket {
					ours = append(ours, sp.Prefix)
				}
			}
		}
	}
	request := &s3.Request{Bucket: s.spec.Bucket, Key: s.spec.Prefix, MaxKeys: s3.PageKeys}
	var result s3.Result
	for {
		if err := e.page(request, &result); err != nil {
			return err
		}
		for i, key := range result.Keys {
			if slices.ContainsFunc(ours, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
				continue
			}
			if s.spec.Limit > 0 && s.listed.len() >= s.spec.Limit {
				s.n, s.used = s.listed.len(), s.listed.len()
				return nil
			}
			s.listed.add(key, s3.Expected{Sized: true, Size: result.Sizes[i], ETag: result.ETags[i]})
		}
		if !result.Truncated {
			s.n, s.used = s.listed.len(), s.listed.len()
			return nil
		}
		request.StartAfter = result.Keys[len(result.Keys)-1]
	}
}

// findNumbers lists a numbered space: several ranges of numbers at once. Numbers of the state that it does not find are
// lost, unless a run after the state may have deleted them.
func (e *engine) findNumbers(s *space) error {
	known := s.live
	s.live, s.unknown = &keyset.Set{}, map[int64]keyset.Unknown{}
	last, err := e.lastNumber(s)
	if err != nil {
		return err
	}
	parts := int64(min(listers, e.spec.Workers))
	step := last/parts + 1
	var group sync.WaitGroup
	failures := make(chan error, parts)
	for part := range parts {
		group.Add(1)
		go func() {
			defer group.Done()
			if err := e.findRange(s, part*step, min((part+1)*step, last)); err != nil {
				failures <- err
			}
		}()
	}
	group.Wait()
	select {
	case err := <-failures:
		return err
	default:
	}
	if missing := known.NotIn(s.live); s.spec.NoDeletes {
		s.tally.lost += missing
	} else {
		s.gone = missing
	}
	s.used = max(s.used, s.live.Last())
	if s.n == 0 {
		s.n = s.live.Last()
	}
	return nil
}

// lastNumber is one that no number exceeds: keys with ten digits are in the order of their numbers.
func (e *engine) lastNumber(s *space) (int64, error) {
	request := &s3.Request{Bucket: s.spec.Bucket, Key: s.spec.Prefix, MaxKeys: 1}
	var result s3.Result
	for last := int64(1 << 16); ; last *= 4 {
		if last > keyset.Max {
			return keyset.Max, nil
		}
		request.StartAfter = string(appendKey(nil, s.spec.Prefix, last))
		if err := e.page(request, &result); err != nil {
			return 0, err
		}
		if len(result.Keys) == 0 || result.Keys[0] >= s.spec.Prefix+":" { // the character after 9
			return last, nil
		}
	}
}

// findRange finds the numbers after `from` and up to `to`.
func (e *engine) findRange(s *space, from, to int64) error {
	request := &s3.Request{Bucket: s.spec.Bucket, Key: s.spec.Prefix, MaxKeys: s3.PageKeys}
	request.StartAfter = string(appendKey(nil, s.spec.Prefix, from))
	end := string(appendKey(nil, s.spec.Prefix, to))
	var result s3.Result
	for {
		if err := e.page(request, &result); err != nil {
			return err
		}
		s.mu.Lock()
		for _, key := range result.Keys {
			if number := numberOf(key, s.spec.Prefix); number > from && number <= to {
				s.live.Add(number)
			}
		}
		s.mu.Unlock()
		if !result.Truncated {
			return nil
		}
		request.StartAfter = result.Keys[len(result.Keys)-1]
		if request.StartAfter >= end {
			return nil
		}
	}
}

package drive

import (
	"time"

	"cbt-plugins/companion/internal/s3"
)

// prepare makes the request, before its time counts.
func (w *worker) prepare() {
	c, r := &w.choice, &w.request
	s := c.space
	w.hashing = 0
	*r = s3.Request{Op: c.op.spec.Op, Bucket: s.spec.Bucket}
	switch {
	case r.Op == s3.List:
		r.Key, r.MaxKeys = s.spec.Prefix, w.e.spec.ListKeys
		w.listFrom(s)
		return
	case !s.numbered():
		r.Key, r.Expected = s.listed.at(c.number), s.listed.expected(c.number)
		return
	}
	r.Key = w.keyOf(s.spec.Prefix, c.number)
	switch {
	case c.op.spec.Writes():
		w.writes++
		s.maker.Set(&w.body, c.number, s.sizes.Of(c.number), w.e.generation+w.writes*uint64(w.e.spec.Workers)+uint64(w.id))
		if r.Op == s3.Put && !w.e.spec.Unsigned {
			begin := time.Now()
			w.body.Sum()
			w.hashing = time.Since(begin)
		}
		r.Body = &w.body
	case r.Op == s3.Get, r.Op == s3.Stat:
		r.Expected = s.expected(c.number)
		if r.Op == s3.Get && w.e.spec.Verify {
			s.maker.Expect(&w.sink, c.number, r.Expected.Size)
			r.Sink = &w.sink
		}
	}
}

// listFrom chooses the key after which a LIST begins. The next object that exists counts as read: nothing deletes it
// before the answer, which must list it.
func (w *worker) listFrom(s *space) {
	r := &w.request
	if !s.numbered() {
		if n := s.listed.len(); n > 0 {
			r.StartAfter = s.listed.at(1 + w.chooser.random.Int64N(n))
		}
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used == 0 {
		return
	}
	after := w.chooser.random.Int64N(s.used) // 0: from the very first
	r.StartAfter = w.keyOf(s.spec.Prefix, after)
	if next := s.live.Next(after + 1); next > 0 {
		w.choice.number = next
		s.flights.Read(next)
		r.Exists = string(appendKey(nil, s.spec.Prefix, next))
	}
}

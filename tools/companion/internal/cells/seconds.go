package cells

import "cbt-plugins/companion/internal/rowtext"

// a request that was in flight for longer than this counts as in flight for this long, in seconds, before its end
const longestFlight = 86400

// tick is what one operation did in one second.
type tick struct {
	second         int64
	op             int
	n, failed      int64
	objects, bytes int64
	total, max     int64
	first, last    int64 // ends of the first and last success; 0: there was none
	busy           int64 // ns in flight within this second
	crossing       int64 // requests in flight when it began
}

// flight is a request that was in flight during whole seconds.
type flight struct {
	op         int
	from, till int64 // whole seconds from <= s < till
}

type seconds struct {
	all   []tick
	byKey index
	long  []flight
}

func newSeconds() seconds { return seconds{byKey: newIndex(10)} }

func (s *seconds) reset() {
	s.byKey.reset()
	s.all, s.long = s.all[:0], s.long[:0]
}

// at is the tick of a second and operation, good until the next call.
func (s *seconds) at(second int64, op int) *tick {
	place, fresh := s.byKey.place(uint64(second)<<8 | uint64(op)<<1 | 1)
	if fresh {
		s.all = append(s.all, tick{second: second, op: op})
	}
	return &s.all[place]
}

// good counts a success.
func (t *tick) good(end int64, r *rowtext.Row) {
	if t.n == 0 || end < t.first {
		t.first = end
	}
	t.last = max(t.last, end)
	t.n++
	t.objects += r.Objects
	t.bytes += r.Bytes
	t.total += r.Duration
	t.max = max(t.max, r.Duration)
}

// inFlight counts the time of a request, which ended in the second of t, in every second that it touched.
func (t *tick) inFlight(all *seconds, end, duration, at int64, op int) {
	part := end - at*second
	if duration <= part { // began in this second; at its very beginning: it did not cross the border
		t.busy += duration
		return
	}
	t.busy += part
	t.crossing++
	begin := max(end-duration, 0, end-longestFlight*second)
	first := begin / second
	if first+1 < at {
		all.long = append(all.long, flight{op, first + 1, at})
	}
	start := all.at(first, op)
	start.busy += (first+1)*second - begin
}

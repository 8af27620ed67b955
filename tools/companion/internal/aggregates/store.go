package aggregates

import (
	"math/bits"
	"time"

	"cbt-plugins/companion/internal/rows"
)

const (
	second = int64(time.Second)
	// Limits of one store: a frame numbers its groups, endpoints and operations in few bits.
	mostGroups    = 1 << 15
	mostEndpoints = 1 << 12
	mostOps       = 100
	mostSamples   = 1 << 20
	longestName   = 1 << 10
	// ns that no request takes
	longestDuration = 1e15
)

// group is what the requests of one block, operation, endpoint and size came to. A minimum of nothing is 0.
type group struct {
	key                uint64
	block              int64
	n, failed          int64
	objects, bytes     int64
	latency, fail, ttf span
}

// span is a sum with its extremes.
type span struct {
	n, total, min, max int64
}

func (s *span) add(v int64) {
	if s.n == 0 || v < s.min {
		s.min = v
	}
	s.max = max(s.max, v)
	s.total += v
	s.n++
}

func (s *span) merge(other *span) {
	if other.n == 0 {
		return
	}
	if s.n == 0 || other.min < s.min {
		s.min = other.min
	}
	s.max = max(s.max, other.max)
	s.total += other.total
	s.n += other.n
}

// sample is a duration in a histogram: its group and its bucket.
type sample = uint32

const (
	bucketWidth = 16 // bits of a sample for the bucket, in the low end; the group has the others
	bucketMask  = 1<<bucketWidth - 1
)

func sampleOf(group int, duration int64) sample {
	return sample(group)<<bucketWidth | bucketOf(duration)
}

// A group's key has, from the low end: a bit that is set, so that no key is 0; the size class; the endpoint; the operation; the
// block in seconds, 34 bits of it.
const (
	sizeShift, sizeMask         = 1, 1<<7 - 1
	endpointShift, endpointMask = 8, 1<<13 - 1
	opShift, opMask             = 21, 1<<7 - 1
	blockShift                  = 28
)

func keyOf(block int64, op, endpoint, size int) uint64 {
	return uint64(block)<<blockShift | uint64(op)<<opShift | uint64(endpoint)<<endpointShift | uint64(size)<<sizeShift | 1
}

func (g *group) op() int       { return int(g.key >> opShift & opMask) }
func (g *group) endpoint() int { return int(g.key >> endpointShift & endpointMask) }
func (g *group) size() int     { return int(g.key >> sizeShift & sizeMask) }

// Store takes rows until it is given to Build. It is used by one goroutine.
type Store struct {
	block, offset  int64 // s, ns
	ops, endpoints names
	messages       messages
	groups         []group
	byKey          index
	latency        []sample
	ttfb           []sample
	fail           []sample
	seconds        seconds
	errors         map[errorKey]int64
}

type errorKey struct {
	block                 int64
	op, endpoint, message int
}

// NewStore makes an empty store. block is the resolution of its groups in seconds, offset the node's clock minus the head's.
func NewStore(block, offset int64) *Store {
	return &Store{
		block: block, offset: offset, ops: newNames(), endpoints: newNames(), messages: newMessages(),
		byKey: newIndex(12), seconds: newSeconds(), errors: map[errorKey]int64{},
	}
}

// Full tells that the store has to be built and reset before the next row.
func (s *Store) Full() bool {
	return len(s.groups) >= mostGroups || len(s.latency) >= mostSamples || len(s.fail) >= mostSamples ||
		len(s.endpoints.all) >= mostEndpoints || len(s.ops.all) >= mostOps || len(s.seconds.all) >= mostGroups ||
		len(s.seconds.long) >= mostGroups || len(s.errors) >= mostGroups
}

// Empty tells that it holds nothing.
func (s *Store) Empty() bool { return len(s.groups) == 0 }

// Reset makes the store empty; it keeps its memory.
func (s *Store) Reset() {
	s.ops.reset()
	s.endpoints.reset()
	s.messages.reset()
	s.byKey.reset()
	s.seconds.reset()
	s.groups, s.latency, s.ttfb, s.fail = s.groups[:0], s.latency[:0], s.ttfb[:0], s.fail[:0]
	clear(s.errors)
}

// Add counts a row; false: it has no time or duration that a request can have.
func (s *Store) Add(r *rows.Row) bool {
	end := r.End - s.offset
	if end < 0 || r.Duration > longestDuration {
		return false
	}
	op, endpoint := s.ops.of(r.Op[:min(len(r.Op), longestName)]), s.endpoints.of(r.Endpoint[:min(len(r.Endpoint), longestName)])
	at := end / second
	block := at
	if s.block > 1 {
		block -= at % s.block
	}
	size := r.Bytes
	if r.Sum != nil {
		size /= max(r.Sum.N, 1)
	}
	key := keyOf(block, op, endpoint, bits.Len64(uint64(size)))
	place, fresh := s.byKey.place(key)
	if fresh {
		s.groups = append(s.groups, group{key: key, block: block})
	}
	c := &s.groups[place]
	if r.Sum != nil {
		c.sum(r)
		s.seconds.at(at, op).sum(end, r)
		if r.Sum.Failed > 0 {
			s.errors[errorKey{block, op, endpoint, s.messages.of(r.Err)}] += r.Sum.Failed
		}
		return true
	}
	entry := sampleOf(place, r.Duration)
	t := s.seconds.at(at, op)
	t.inFlight(&s.seconds, end, r.Duration, at, op)
	if len(r.Err) > 0 {
		c.failed++
		c.fail.add(r.Duration)
		s.fail = append(s.fail, entry)
		s.seconds.at(at, op).failed++
		s.errors[errorKey{block, op, endpoint, s.messages.of(r.Err)}]++
		return true
	}
	c.n++
	c.objects += r.Objects
	c.bytes += r.Bytes
	c.latency.add(r.Duration)
	s.latency = append(s.latency, entry)
	if r.FirstByte >= 0 {
		c.ttf.add(r.FirstByte)
		s.ttfb = append(s.ttfb, sampleOf(place, r.FirstByte))
	}
	s.seconds.at(at, op).good(end, r)
	return true
}

// sum counts many requests at once. They are in no histogram.
func (g *group) sum(r *rows.Row) {
	g.n += r.Sum.N
	g.failed += r.Sum.Failed
	g.objects += r.Objects
	g.bytes += r.Bytes
	g.latency.merge(&span{n: r.Sum.N, total: r.Duration, min: r.Sum.Min, max: r.Sum.Max})
}

// sum counts many requests at once, as if all their time had been spent in this second.
func (t *tick) sum(end int64, r *rows.Row) {
	ofRow := tick{n: r.Sum.N, failed: r.Sum.Failed, objects: r.Objects, bytes: r.Bytes, total: r.Duration, max: r.Sum.Max, busy: r.Duration}
	if ofRow.n > 0 {
		ofRow.first, ofRow.last = end, end
	}
	t.merge(&ofRow)
}

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
func (t *tick) good(end int64, r *rows.Row) {
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

// Package cells adds rows up: counts, sums and histograms by block of time, operation, endpoint and size; seconds; errors.
package cells

import (
	"math/bits"
	"time"

	"cbt-plugins/companion/internal/hist"
	"cbt-plugins/companion/internal/rowtext"
)

const (
	second = int64(time.Second)
	// Limits of one store: a frame numbers its cells, endpoints and operations in few bits.
	mostCells     = 1 << 15
	mostEndpoints = 1 << 12
	mostOps       = 100
	mostSamples   = 1 << 20
	longestName   = 1 << 10
	// ns that no request takes
	longestDuration = 1e15
)

// cell is what the requests of one block, operation, endpoint and size came to. A minimum of nothing is 0.
type cell struct {
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

// sample is a duration in a histogram: cell << 16 | bucket.
type sample = uint32

// Store takes rows until it is given to Build. It is used by one goroutine.
type Store struct {
	block, offset  int64 // s, ns
	ops, endpoints names
	messages       messages
	cells          []cell
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

// NewStore makes an empty store. block is the resolution of its cells in seconds, offset the node's clock minus the head's.
func NewStore(block, offset int64) *Store {
	return &Store{
		block: block, offset: offset, ops: newNames(), endpoints: newNames(), messages: newMessages(),
		byKey: newIndex(12), seconds: newSeconds(), errors: map[errorKey]int64{},
	}
}

// Full tells that the store has to be built and reset before the next row.
func (s *Store) Full() bool {
	return len(s.cells) >= mostCells || len(s.latency) >= mostSamples || len(s.fail) >= mostSamples ||
		len(s.endpoints.all) >= mostEndpoints || len(s.ops.all) >= mostOps || len(s.seconds.all) >= mostCells ||
		len(s.seconds.long) >= mostCells || len(s.errors) >= mostCells
}

// Empty tells that it holds nothing.
func (s *Store) Empty() bool { return len(s.cells) == 0 }

// Reset makes the store empty; it keeps its memory.
func (s *Store) Reset() {
	s.ops.reset()
	s.endpoints.reset()
	s.messages.reset()
	s.byKey.reset()
	s.seconds.reset()
	s.cells, s.latency, s.ttfb, s.fail = s.cells[:0], s.latency[:0], s.ttfb[:0], s.fail[:0]
	clear(s.errors)
}

// Add counts a row; false: it has no time or duration that a request can have.
func (s *Store) Add(r *rowtext.Row) bool {
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
	// 34 bits of seconds, 7 of operations, 13 of endpoints, 7 of sizes, and one so that no key is 0
	key := uint64(block)<<28 | uint64(op)<<21 | uint64(endpoint)<<8 | uint64(bits.Len64(uint64(r.Bytes)))<<1 | 1
	place, fresh := s.byKey.place(key)
	if fresh {
		s.cells = append(s.cells, cell{key: key, block: block})
	}
	c := &s.cells[place]
	entry := sample(place)<<16 | hist.Of(r.Duration)
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
		s.ttfb = append(s.ttfb, sample(place)<<16|hist.Of(r.FirstByte))
	}
	s.seconds.at(at, op).good(end, r)
	return true
}

package drive

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"cbt-plugins/companion/internal/keyset"
	"cbt-plugins/companion/internal/s3"
	"cbt-plugins/companion/internal/spec"
)

// tries is how often another object is drawn before they are looked at one after the other.
const tries = 8

// finding says whether an operation has an object.
type finding byte

const (
	dry  finding = iota // there is none
	busy                // there is none that is not at work for another request
	over                // it has had each of them
	good
)

// op is one operation of the mix.
type op struct {
	spec   *spec.Op
	name   string // in rows and counts
	index  int    // in s3.Ops and counts
	spans  []span
	turn   atomic.Uint64
	dry    atomic.Int64
	done   atomic.Bool
	cursor sync.Mutex // of s() and r(); taken before the space's lock
}

// span is what an operation takes of one space.
type span struct {
	space       *space
	first, last int64
	next        int64   // s() and r()
	later       []int64 // r(): at work for other requests when their turn came
}

// choice is what a request is about.
type choice struct {
	op       *op
	space    *space
	number   int64
	refusals int // of earlier PUTs of a new number
	lived    bool
}

// chooser is what a worker chooses with.
type chooser struct {
	random  *rand.Rand
	weights []int64
}

func newOp(opSpec *spec.Op, spaces []*space) *op {
	o := &op{spec: opSpec}
	for _, i := range opSpec.Spaces {
		s := spaces[i]
		part := span{space: s, first: 1, last: keyset.Max}
		if !s.numbered() {
			part.last = s.listed.len()
		}
		switch opSpec.Select.How {
		case spec.Uniform, spec.Sequential, spec.Once:
			part.first = max(opSpec.Select.First.Of(s.n), 1)
			part.last = min(opSpec.Select.Last.Of(s.n), part.last)
		}
		part.next = part.first
		o.spans = append(o.spans, part)
	}
	return o
}

// existing tells whether it takes only what is there.
func (o *op) existing() bool { return !o.spec.Writes() && !o.spec.Absent }

func (o *op) reads() bool { return o.spec.Op == s3.Get || o.spec.Op == s3.Stat }

// chooseObject finds an object for the operation and takes it.
func (o *op) chooseObject(by *chooser, c *choice) finding {
	c.op, c.number, c.refusals, c.lived = o, 0, 0, false
	switch {
	case o.spec.Op == s3.List:
		c.space = o.spans[by.random.IntN(len(o.spans))].space
		return good
	case o.spec.Select.How == spec.New:
		return o.fresh(c)
	case o.spec.Select.How == spec.Sequential, o.spec.Select.How == spec.Once:
		return o.inOrder(c)
	}
	return o.drawn(by, c)
}

// fresh takes the next number, of one space after the other.
func (o *op) fresh(c *choice) finding {
	turn := int(o.turn.Add(1) % uint64(len(o.spans)))
	result := dry
	for i := range o.spans {
		s := o.spans[(turn+i)%len(o.spans)].space
		s.mu.Lock()
		if !s.room() {
			result = busy
		} else if spare := s.unused(); spare.number <= keyset.Max {
			c.space, c.number, c.refusals, c.lived = s, spare.number, spare.refusals, s.begin(o.spec.Op, spare.number)
			result = good
		}
		s.mu.Unlock()
		if result == good {
			return good
		}
	}
	return result
}

// drawn takes any object, each with the same chance over all spaces.
func (o *op) drawn(by *chooser, c *choice) finding {
	part := 0
	if len(o.spans) > 1 {
		by.weights = by.weights[:0]
		total := int64(0)
		for i := range o.spans {
			total += o.spans[i].weight(o)
			by.weights = append(by.weights, total)
		}
		if total == 0 {
			return dry
		}
		at := by.random.Int64N(total)
		for by.weights[part] <= at {
			part++
		}
	}
	result := dry
	for i := range o.spans {
		// what the space had may be gone by now: then the others
		if drawn := o.spans[(part+i)%len(o.spans)].draw(o, by.random, c); drawn == good {
			return good
		} else if drawn == busy {
			result = busy
		}
	}
	return result
}

// weight is how many objects there are to take from.
func (p *span) weight(o *op) int64 {
	switch {
	case p.last < p.first:
		return 0
	case !p.space.numbered() || !o.existing():
		return p.last - p.first + 1
	case p.first == 1 && p.last == keyset.Max:
		return p.space.count.Load()
	}
	p.space.mu.Lock()
	defer p.space.mu.Unlock()
	return p.space.live.Rank(p.last) - p.space.live.Rank(p.first-1)
}

func (p *span) draw(o *op, random *rand.Rand, c *choice) finding {
	s := p.space
	if p.last < p.first {
		return dry
	}
	if !s.numbered() {
		c.space, c.number, c.lived = s, p.first+random.Int64N(p.last-p.first+1), true
		return good
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before, amount := p.first-1, p.last-p.first+1 // of numbers, or of ranks of existing ones
	if o.existing() {
		before, amount = s.live.Rank(p.first-1), s.live.Len()
		if p.last < keyset.Max {
			amount = s.live.Rank(p.last)
		}
		amount -= before
	}
	if amount <= 0 {
		return dry
	}
	if o.spec.Writes() && !s.room() {
		return busy
	}
	at := int64(0)
	for i := range amount {
		// so many at most are at work or unknown that one more is free
		if i >= tries && i > int64(tries+s.flights.Len()+len(s.unknown)) {
			return busy
		}
		if i < tries {
			at = random.Int64N(amount)
		} else {
			at = (at + 1) % amount
		}
		number := before + at + 1
		if o.existing() {
			number = s.live.Select(number)
		}
		if o.reads() || s.free(number, o.spec.Writes()) {
			c.space, c.number, c.lived = s, number, s.begin(o.spec.Op, number)
			return good
		}
	}
	return busy
}

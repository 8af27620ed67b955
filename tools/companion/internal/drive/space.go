package drive

import (
	"sync"
	"sync/atomic"

	"cbt-plugins/companion/internal/content"
	"cbt-plugins/companion/internal/keyset"
	"cbt-plugins/companion/internal/s3"
	"cbt-plugins/companion/internal/schedule"
	"cbt-plugins/companion/internal/spec"
)

// space is one set of objects, and what this run has done to it. An object is in exactly one of these conditions: live,
// absent, under way to be made or deleted (in flights, and not live), or unknown.
type space struct {
	spec   *spec.Space
	listed *listedKeys // of a space that is not numbered
	maker  *content.Maker
	sizes  *schedule.Sizes
	seed   uint64
	goal   int64 // successful PUTs wanted; 0: none
	// its bucket keeps all versions of an object
	versioned bool

	count atomic.Int64 // live objects; all below is under the lock
	mu    sync.Mutex
	live  *keyset.Set
	n     int64
	used  int64
	// what requests under way are at
	flights *keyset.Flights
	claimed int64 // PUTs under way
	unknown map[int64]keyset.Unknown
	most    int     // unknown at once
	spares  []spare // for new objects, before the next number
	tally   tally
	gone    int64 // numbers of the state that the LIST has not, and that a run since then may have deleted
}

// spare is a number whose PUTs were all refused.
type spare struct {
	number   int64
	refusals int
}

// mostRefusals of a number: then it is used up, or a key that the server does not take would keep a fill from its end.
const mostRefusals = 10000

// tally is what the run has done to a space.
type tally struct {
	created, overwritten, removed, absent, lost int64
	// of created, removed and lost: had no good answer, and were seen at the object. RGW writes the bucket index after the
	// object, and the change may also be older than this run: a count of the bucket may lack them, or have had them before.
	// And those with a good answer at a later try: the first one may be carried out after a later request for the object.
	// Where the bucket keeps versions: each try of a PUT without a good answer, but for one of an object that is unknown.
	seen int64
}

// written is how many PUTs were successful.
func (t *tally) written() int64 { return t.created + t.overwritten }

// expected is what an object of a numbered space must be.
func (s *space) expected(number int64) s3.Expected {
	return s3.Expected{Sized: true, Size: s.sizes.Of(number)}
}

func (s *space) numbered() bool { return s.listed == nil }

// storeCount makes the count that is read without the lock the real one.
func (s *space) storeCount() { s.count.Store(s.live.Len()) }

// free tells whether a write or DELETE of it may begin: nothing else is under way, and it is not unknown.
func (s *space) free(number int64, evenIfRead bool) bool {
	if s.flights.Writing(number) || !evenIfRead && s.flights.Reading(number) {
		return false
	}
	_, open := s.unknown[number]
	return !open
}

// room tells whether one more PUT is wanted.
func (s *space) room() bool { return s.goal == 0 || s.tally.written()+s.claimed < s.goal }

// unused is a number for a new object; the caller has the lock.
func (s *space) unused() spare {
	for len(s.spares) > 0 {
		spare := s.spares[len(s.spares)-1]
		s.spares = s.spares[:len(s.spares)-1]
		if s.free(spare.number, false) && !s.live.Has(spare.number) {
			return spare
		}
	}
	number := s.used + 1
	for number <= keyset.Max && !s.free(number, false) {
		number++ // a DELETE of what is not there may be at it
	}
	return spare{number: number}
}

// begin takes a number for an operation; the caller has the lock and has asked for everything that must be so.
func (s *space) begin(op s3.Op, number int64) (lived bool) {
	lived = s.live.Has(number)
	switch op {
	case s3.Put, s3.Multipart:
		s.claimed++
		s.used = max(s.used, number)
		s.flights.Write(number)
	case s3.Delete:
		s.live.Remove(number)
		s.storeCount()
		s.flights.Write(number)
	default:
		s.flights.Read(number)
	}
	return lived
}

// fate is what came of a request.
type fate struct {
	good   bool
	doubts int64 // tries of it that failed, and may have been carried out all the same
	silent bool  // ... and there was no answer: the server may still be at it
}

// finish says what came of it, and tells whether the space has now what it shall get.
func (s *space) finish(c *choice, came fate) (complete bool) {
	op, number, lived := c.op.spec.Op, c.number, c.lived
	s.mu.Lock()
	defer s.mu.Unlock()
	puts := op == s3.Put || op == s3.Multipart
	switch {
	case puts && s.versioned:
		// each try that failed may have made another version. An unknown object already counts for one of them
		if s.tally.seen += came.doubts; !came.good && came.doubts > 0 {
			s.tally.seen--
		}
	case (puts || op == s3.Delete) && came.good && came.silent:
		// the try without an answer may be carried out after a later PUT or DELETE of the object
		s.tally.seen++
	}
	switch op {
	case s3.Put, s3.Multipart:
		s.claimed--
		s.flights.Done(number, true)
		switch {
		case came.good && lived:
			s.tally.overwritten++
		case came.good:
			s.tally.created++
			s.live.Add(number)
		case came.doubts > 0:
			s.live.Remove(number)
			s.unknown[number] = keyset.Unknown{Number: number, Op: string(op), Lived: lived, Silent: came.silent}
		case c.op.spec.Select.How == spec.New && c.refusals < mostRefusals:
			s.spares = append(s.spares, spare{number, c.refusals + 1})
		}
		complete = came.good && s.goal > 0 && s.tally.written() == s.goal
	case s3.Delete:
		s.flights.Done(number, true)
		switch {
		case came.good && lived:
			s.tally.removed++
		case came.good:
			s.tally.absent++
		case came.doubts > 0:
			s.unknown[number] = keyset.Unknown{Number: number, Op: string(op), Lived: lived, Silent: came.silent}
		case lived:
			s.live.Add(number)
		}
	default:
		s.flights.Done(number, false)
		return false
	}
	s.most = max(s.most, len(s.unknown))
	s.storeCount()
	return complete
}

// noteExistence says whether an unknown object is there. It stays unknown when the server may still be at it.
func (s *space) noteExistence(object keyset.Unknown, exists bool) {
	deleted := object.Op == string(s3.Delete)
	if object.Silent && exists == deleted {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.unknown, object.Number)
	// a version that is there may be an older one
	if exists != object.Lived || s.versioned && exists && !deleted {
		s.tally.seen++
	}
	switch {
	case exists && deleted && !object.Lived, exists && !deleted && !object.Lived:
		s.tally.created++
	case exists && !deleted:
		s.tally.overwritten++
	case !exists && deleted && object.Lived:
		s.tally.removed++
	case !exists && deleted:
		s.tally.absent++
	case !exists && object.Lived:
		s.tally.lost++
	}
	if exists {
		s.live.Add(object.Number)
		s.used = max(s.used, object.Number)
	}
	s.storeCount()
}

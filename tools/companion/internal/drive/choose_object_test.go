package drive

import (
	"math"
	"math/rand/v2"
	"testing"

	"cbt-plugins/companion/internal/keyset"
	"cbt-plugins/companion/internal/s3"
	"cbt-plugins/companion/internal/spec"
)

// filled is a space with the numbers from 1 to last.
func filled(last int64) *space {
	s := &space{live: &keyset.Set{}, flights: keyset.NewFlights(1)}
	s.live.Fill(last)
	s.storeCount()
	return s
}

// chosen is an object that an operation takes, after its request has ended.
func chosen(t *testing.T, o *op, by *chooser) (*space, int64) {
	t.Helper()
	var c choice
	if o.chooseObject(by, &c) != good {
		t.Fatal("no object")
	}
	c.space.flights.Done(c.number, !o.reads())
	return c.space, c.number
}

func TestReadsOfLiveObjectsAreUniformAfterDeletions(t *testing.T) {
	spaces := []*space{filled(1000), filled(400)}
	by := &chooser{random: rand.New(rand.NewPCG(1, 2))}
	live := spec.Select{How: spec.Live}
	// a gap that is long, and short gaps anywhere
	inOrder := newOp(&spec.Op{Op: s3.Delete, Select: spec.Select{How: spec.Once, First: spec.Bound{Plus: 301}, Last: spec.Bound{Plus: 500}}, Spaces: []int{0}}, spaces)
	drawn := newOp(&spec.Op{Op: s3.Delete, Select: live, Spaces: []int{0, 1}}, spaces)
	for range 200 {
		chosen(t, inOrder, by)
	}
	for range 700 {
		chosen(t, drawn, by)
	}
	left := spaces[0].live.Len() + spaces[1].live.Len()
	if left != 500 {
		t.Fatalf("%d objects are left", left)
	}
	const mean = 200
	read := newOp(&spec.Op{Op: s3.Get, Select: live, Spaces: []int{0, 1}}, spaces)
	counts := map[*space]map[int64]float64{spaces[0]: {}, spaces[1]: {}}
	for range mean * left {
		s, number := chosen(t, read, by)
		counts[s][number]++
	}
	distance, objects := 0.0, int64(0)
	for s, ofSpace := range counts {
		for number, count := range ofSpace {
			if !s.live.Has(number) {
				t.Fatalf("number %d was read after its deletion", number)
			}
			distance += (count - mean) * (count - mean) / mean
			objects++
		}
	}
	distance += mean * float64(left-objects) // those that were never read
	// chi square: its mean is the degrees of freedom, its variance twice as much
	freedom := float64(left - 1)
	if most := freedom + 5*math.Sqrt(2*freedom); distance > most {
		t.Fatalf("chi square is %.0f, at most %.0f", distance, most)
	}
}

func TestAnUnknownObjectAboveAllUsedNumbersIsNotGivenOutAgain(t *testing.T) {
	s := filled(10)
	// a DELETE of an object that an earlier run may have had
	s.unknown = map[int64]keyset.Unknown{15: {Number: 15, Op: string(s3.Delete)}}
	s.noteExistence(s.unknown[15], true)
	if !s.live.Has(15) || s.used != 15 {
		t.Fatalf("live %v, used %d", s.live.Has(15), s.used)
	}
	if spare := s.unused(); spare.number != 16 {
		t.Fatalf("%d is the next one", spare.number)
	}
}

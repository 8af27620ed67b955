package keyset

import (
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

// model is a set that is plainly right.
type model map[int64]bool

func (m model) sorted() []int64 {
	var all []int64
	for number := range m {
		all = append(all, number)
	}
	slices.Sort(all)
	return all
}

func agree(t *testing.T, s *Set, m model, upTo int64) {
	t.Helper()
	all := m.sorted()
	if s.Len() != int64(len(all)) {
		t.Fatalf("%d numbers, want %d", s.Len(), len(all))
	}
	for i, number := range all {
		if got := s.Select(int64(i) + 1); got != number {
			t.Fatalf("Select(%d) = %d, want %d", i+1, got, number)
		}
	}
	if s.Select(0) != 0 || s.Select(s.Len()+1) != 0 {
		t.Fatal("Select finds what is not there")
	}
	for number := int64(-1); number <= upTo; number += 1 + upTo/300 {
		rank, _ := slices.BinarySearch(all, number+1)
		if got := s.Rank(number); got != int64(rank) {
			t.Fatalf("Rank(%d) = %d, want %d", number, got, rank)
		}
		at, _ := slices.BinarySearch(all, number)
		want := int64(0)
		if at < len(all) {
			want = all[at]
		}
		if got := s.Next(number); got != want {
			t.Fatalf("Next(%d) = %d, want %d", number, got, want)
		}
		if s.Has(number) != m[number] {
			t.Fatalf("Has(%d) is wrong", number)
		}
	}
}

func TestSetIsTheModel(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		upTo := []int64{10, 5000, 40000, 300000}[seed%4]
		var s Set
		m := model{}
		if seed%3 == 0 {
			last := random.Int64N(upTo)
			s.Fill(last)
			for number := int64(1); number <= last; number++ {
				m[number] = true
			}
		}
		for range 3000 {
			number := 1 + random.Int64N(upTo)
			if random.IntN(5) < 3 {
				if s.Add(number) == m[number] {
					t.Fatalf("Add(%d) does not know whether it was there", number)
				}
				m[number] = true
			} else {
				if s.Remove(number) != m[number] {
					t.Fatalf("Remove(%d) does not know whether it was there", number)
				}
				delete(m, number)
			}
		}
		agree(t, &s, m, upTo+10000)
	}
}

func TestSetRefusesWhatIsOutOfRange(t *testing.T) {
	var s Set
	if s.Add(0) || s.Add(-5) || s.Add(Max+1) || s.Remove(0) || s.Has(Max+1) || s.Next(1) != 0 || s.Next(Max+5) != 0 {
		t.Fatal("a number out of range")
	}
	s.Fill(0)
	if s.Len() != 0 || s.Last() != 0 {
		t.Fatal("not empty")
	}
}

func TestFlightsAreTheModel(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	f := NewFlights(2) // it has to grow
	readers, writers := map[int64]int{}, map[int64]bool{}
	for range 50000 {
		number := 1 + random.Int64N(60)
		switch random.IntN(4) {
		case 0:
			f.Read(number)
			readers[number]++
		case 1:
			f.Write(number)
			writers[number] = true
		case 2:
			if readers[number] > 0 {
				f.Done(number, false)
				readers[number]--
			}
		case 3:
			if writers[number] {
				f.Done(number, true)
				delete(writers, number)
			}
		}
		if readers[number] == 0 {
			delete(readers, number)
		}
		together := map[int64]bool{}
		for n := int64(1); n <= 60; n++ {
			if f.Reading(n) != (readers[n] > 0) || f.Writing(n) != writers[n] {
				t.Fatalf("number %d is wrong", n)
			}
			if readers[n] > 0 || writers[n] {
				together[n] = true
			}
		}
		if f.Len() != len(together) {
			t.Fatalf("%d, want %d", f.Len(), len(together))
		}
	}
}

func BenchmarkSelect100M(b *testing.B) {
	var s Set
	s.Fill(100_000_000)
	random := rand.New(rand.NewPCG(1, 1))
	for range 1_000_000 {
		s.Remove(1 + random.Int64N(100_000_000))
	}
	b.ResetTimer()
	for b.Loop() {
		number := s.Select(1 + random.Int64N(s.Len()))
		s.Remove(number)
		s.Add(number)
	}
}

func BenchmarkLoad100M(b *testing.B) {
	var s Set
	s.Fill(100_000_000)
	random := rand.New(rand.NewPCG(1, 1))
	for range 30_000_000 { // a set that compresses badly
		s.Remove(1 + random.Int64N(100_000_000))
	}
	path := b.TempDir() + "/state"
	state := &State{Spaces: []Space{{Name: "a", Used: 100_000_000, Live: &s}}}
	if err := state.Save(path); err != nil {
		b.Fatal(err)
	}
	s = Set{}
	var before, after runtime.MemStats
	var loaded *State
	for b.Loop() {
		loaded = nil
		runtime.GC()
		runtime.ReadMemStats(&before)
		var err error
		if loaded, err = Load(path); err != nil {
			b.Fatal(err)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "MB")
	runtime.KeepAlive(loaded)
}

func TestNotIn(t *testing.T) {
	var all, some, none Set
	all.Fill(3 * perBlock)
	for number := int64(1); number <= perBlock; number += 3 {
		some.Add(number)
	}
	some.Add(5 * perBlock)
	for _, one := range []struct {
		a, b *Set
		n    int64
	}{{&all, &some, all.Len() - some.Len() + 1}, {&some, &all, 1}, {&all, &none, all.Len()}, {&none, &all, 0}, {&all, &all, 0}} {
		if n := one.a.NotIn(one.b); n != one.n {
			t.Errorf("%d, not %d", n, one.n)
		}
	}
}

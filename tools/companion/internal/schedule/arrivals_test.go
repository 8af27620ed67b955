package schedule

import (
	"math"
	"sync"
	"testing"
	"time"
)

func TestShuffledIsAPermutation(t *testing.T) {
	moved := 0
	for key := range uint64(50) {
		var seen [Cycle]bool
		for position := range Cycle {
			to := Shuffled(Mix64(key), position)
			if seen[to] {
				t.Fatalf("key %d: %d twice", key, to)
			}
			seen[to] = true
			if to != position && to != Shuffled(Mix64(key+1), position) {
				moved++
			}
		}
	}
	if moved < 49*Cycle {
		t.Fatalf("only %d of %d are moved, each key its own way", moved, 50*Cycle)
	}
}

func TestQuotasAreLargestRemainders(t *testing.T) {
	for _, one := range []struct {
		shares []float64
		want   []int
	}{
		{[]float64{45, 35, 15, 5}, []int{450, 350, 150, 50}},
		{[]float64{1, 1, 1}, []int{334, 333, 333}},
		{[]float64{0.1, 0.2, 0.7}, []int{100, 200, 700}},
		{[]float64{1, 0, 1e-9}, []int{1000, 0, 0}},
		{[]float64{1e15, 1e15}, []int{500, 500}},
		{[]float64{99.96, 0.04}, []int{1000, 0}},
		{[]float64{99.94, 0.06}, []int{999, 1}},
	} {
		got := Quotas(one.shares)
		for i := range got {
			if got[i] != one.want[i] {
				t.Errorf("%v: %v, want %v", one.shares, got, one.want)
				break
			}
		}
	}
}

func TestMixIsExactInEveryCycle(t *testing.T) {
	mix := NewMix([]float64{45, 35, 15, 5}, 7)
	first := ""
	for cycle := range 20 {
		counts, order := [4]int{}, ""
		for range Cycle {
			op := mix.Next()
			counts[op]++
			order += string(rune('0' + op))
		}
		if counts != [4]int{450, 350, 150, 50} {
			t.Fatalf("cycle %d: %v", cycle, counts)
		}
		if order == first {
			t.Fatal("the same order again")
		}
		if cycle == 0 {
			first = order
		}
	}
}

func TestMixIsExactForManyWorkers(t *testing.T) {
	mix := NewMix([]float64{2, 1}, 7)
	var counts [8][2]int
	var group sync.WaitGroup
	for worker := range counts {
		group.Add(1)
		go func() {
			defer group.Done()
			for range Cycle {
				counts[worker][mix.Next()]++
			}
		}()
	}
	group.Wait()
	sum := 0
	for _, one := range counts {
		sum += one[0]
	}
	if sum != 8*667 {
		t.Fatalf("%d", sum)
	}
}

func TestPoissonHasItsMeanAndVariance(t *testing.T) {
	const rate, n = 250.0, 200000
	arrivals := NewArrivals(rate, 0, true, 3)
	sum, squares, before := 0.0, 0.0, 0.0
	for range n {
		at := arrivals.Next().Seconds()
		gap := at - before
		if gap < 0 {
			t.Fatal("back in time")
		}
		sum, squares, before = sum+gap, squares+gap*gap, at
	}
	mean := sum / n
	deviation := math.Sqrt(squares/n - mean*mean)
	if math.Abs(mean*rate-1) > 0.01 || math.Abs(deviation*rate-1) > 0.02 {
		t.Fatalf("mean %v, deviation %v, both should be %v", mean, deviation, 1/rate)
	}
}

func TestEvenArrivalsKeepTheirRateForever(t *testing.T) {
	arrivals := NewArrivals(333, 0, false, 3)
	first := arrivals.Next()
	if first < 0 || first > time.Second/333+1 {
		t.Fatalf("the first is due at %v", first)
	}
	last := first
	for range 3_330_000 {
		last = arrivals.Next()
	}
	if drift := last - first - 10000*time.Second; drift < -time.Microsecond || drift > time.Microsecond {
		t.Fatalf("drift of %v in 10000 s", drift)
	}
}

func TestRampRisesLinearly(t *testing.T) {
	for _, poisson := range []bool{false, true} {
		arrivals := NewArrivals(1000, 10, poisson, 5)
		counts := make([]float64, 20)
		for {
			at := arrivals.Next()
			if at >= 20*time.Second {
				break
			}
			counts[at/time.Second]++
		}
		for second, got := range counts {
			want := 1000.0
			if second < 10 {
				want = 100*float64(second) + 50
			}
			if tolerance := 2 + 5*math.Sqrt(want); math.Abs(got-want) > tolerance {
				t.Errorf("poisson %v: second %d has %v, want %v", poisson, second, got, want)
			}
		}
	}
}

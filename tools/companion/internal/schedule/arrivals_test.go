package schedule

import (
	"math"
	"testing"
	"time"
)

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

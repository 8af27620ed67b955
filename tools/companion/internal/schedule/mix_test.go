package schedule

import (
	"sync"
	"testing"
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

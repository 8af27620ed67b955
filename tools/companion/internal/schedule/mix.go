// Package schedule decides by a seed which operation comes next, when, and how large each object is.
package schedule

import (
	"math/bits"
	"sync/atomic"
)

// Cycle is how many operations, or object numbers, have their shares exactly.
const Cycle = 1000

// Mix64 scrambles a number; equal ones stay equal, and near ones get far.
func Mix64(x uint64) uint64 {
	hi, lo := bits.Mul64(x^0xA0761D6478BD642F, x^0xE7037ED1A0B428DB)
	hi, lo = bits.Mul64(hi^lo^0x8EBC6AF09C88C6E3, x+0x589965CC75374CC3)
	return hi ^ lo
}

// Shuffled is where position 0..999 of a cycle goes: for each key another permutation of 0..999.
//
// A Feistel network of two times five bits, walked until it is inside, needs no table: any position of any cycle is
// known at once, by any worker.
func Shuffled(key uint64, position int) int {
	x := uint64(position)
	for {
		left, right := x>>5, x&31
		for round := uint64(0); round < 4; round++ {
			left, right = right, left^(Mix64(key+round<<5+right)>>59)
		}
		if x = left<<5 | right; x < Cycle {
			return int(x)
		}
	}
}

// Quotas divides a cycle by the shares, by largest remainder; equal remainders go to the first. Shares are not negative, and
// one is above 0; what is too small for one of a cycle gets none.
func Quotas(shares []float64) []int {
	// a sum of shares can be more than a float holds; none of them, divided by the greatest, is
	greatest, total := 0.0, 0.0
	for _, share := range shares {
		greatest = max(greatest, share)
	}
	for _, share := range shares {
		total += share / greatest
	}
	quotas := make([]int, len(shares))
	rests := make([]float64, len(shares))
	left := Cycle
	for i, share := range shares {
		exact := share / greatest / total * Cycle
		// 0.1 + 0.2 must not cost one of a thousand
		quotas[i] = min(int(exact+1e-9), left)
		rests[i] = exact - float64(quotas[i])
		left -= quotas[i]
	}
	for ; left > 0; left-- {
		best := 0
		for i := range rests {
			if rests[i] > rests[best]+1e-9 {
				best = i
			}
		}
		quotas[best]++
		rests[best]--
	}
	return quotas
}

// Table is a cycle in order: quotas[0] times 0, then quotas[1] times 1, ...
func Table(quotas []int) [Cycle]uint16 {
	var table [Cycle]uint16
	at := 0
	for i, n := range quotas {
		for ; n > 0 && at < Cycle; n-- {
			table[at] = uint16(i)
			at++
		}
	}
	return table
}

// Mix deals out operations: over every 1000 of them the shares are exact.
type Mix struct {
	seed  uint64
	table [Cycle]uint16
	next  atomic.Uint64
}

// NewMix deals by these shares (see Quotas), shuffled by the seed.
func NewMix(shares []float64, seed uint64) *Mix {
	return &Mix{seed: Mix64(seed), table: Table(Quotas(shares))}
}

// Next is the operation that comes next. Many workers may ask at once.
func (m *Mix) Next() int {
	n := m.next.Add(1) - 1
	return int(m.table[Shuffled(m.seed+Mix64(n/Cycle), int(n%Cycle))])
}

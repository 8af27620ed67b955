package schedule

import "sync/atomic"

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

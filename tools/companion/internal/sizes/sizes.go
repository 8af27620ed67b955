// Package sizes says how big the object of a number is: always the same, and with exact shares over every 1000 numbers.
package sizes

import "cbt-plugins/companion/internal/schedule"

// Range is sizes from Low to High bytes, each as likely, with their share of the objects.
type Range struct {
	Low, High int64
	Share     float64
}

// Sizes of the objects of one space.
type Sizes struct {
	seed   uint64
	ranges []Range
	table  [schedule.Cycle]uint16
}

// New draws from the ranges by their shares (see schedule.Quotas).
func New(ranges []Range, seed uint64) *Sizes {
	shares := make([]float64, len(ranges))
	for i, one := range ranges {
		shares[i] = one.Share
	}
	return &Sizes{seed: schedule.Mix64(seed), ranges: ranges, table: schedule.Table(schedule.Quotas(shares))}
}

// Of is the size of an object in bytes; numbers begin at 1.
func (s *Sizes) Of(number int64) int64 {
	one := s.ranges[0]
	at := uint64(number - 1)
	if len(s.ranges) > 1 {
		key := s.seed + schedule.Mix64(at/schedule.Cycle)
		one = s.ranges[s.table[schedule.Shuffled(key, int(at%schedule.Cycle))]]
	}
	if one.High <= one.Low {
		return one.Low
	}
	return one.Low + int64(schedule.Mix64(s.seed^at)%uint64(one.High-one.Low+1))
}

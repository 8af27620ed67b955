package schedule

// SizeRange is sizes from Low to High bytes, each as likely, with their share of the objects.
type SizeRange struct {
	Low, High int64
	Share     float64
}

// Sizes of the objects of one space.
type Sizes struct {
	seed   uint64
	ranges []SizeRange
	table  [Cycle]uint16
}

// NewSizes draws from the ranges by their shares (see Quotas).
func NewSizes(ranges []SizeRange, seed uint64) *Sizes {
	shares := make([]float64, len(ranges))
	for i, sizes := range ranges {
		shares[i] = sizes.Share
	}
	return &Sizes{seed: Mix64(seed), ranges: ranges, table: Table(Quotas(shares))}
}

// Of is the size of an object in bytes; numbers begin at 1.
func (s *Sizes) Of(number int64) int64 {
	sizes := s.ranges[0]
	at := uint64(number - 1)
	if len(s.ranges) > 1 {
		key := s.seed + Mix64(at/Cycle)
		sizes = s.ranges[s.table[Shuffled(key, int(at%Cycle))]]
	}
	if sizes.High <= sizes.Low {
		return sizes.Low
	}
	return sizes.Low + int64(Mix64(s.seed^at)%uint64(sizes.High-sizes.Low+1))
}

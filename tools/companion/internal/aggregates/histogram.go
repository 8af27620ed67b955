package aggregates

import (
	"math"
	"math/bits"
)

// The numbers of reports are made of these buckets by cbt_plugins/results/histogram.py.

// bucketBits are the significant bits of a bucket: it is at most 1/1024 of its value wide.
const bucketBits = 11

const (
	linear = 1 << bucketBits
	half   = bucketBits - 1
)

// bucketOf is the bucket of a value in nanoseconds, which must not be negative; never above 55295.
func bucketOf(v int64) uint32 {
	if v < linear {
		return uint32(v)
	}
	e := bits.Len64(uint64(v)) - bucketBits
	return uint32(e)<<half + uint32(uint64(v)>>e)
}

// bucketBounds are the smallest value of a bucket, and the smallest of the next one.
func bucketBounds(bucket uint32) (low, high int64) {
	if bucket < linear {
		return int64(bucket), int64(bucket) + 1
	}
	e := bucket>>half - 1
	if e >= 63 {
		return math.MaxInt64, math.MaxInt64
	}
	mantissa := int64(bucket - e<<half)
	return saturated(mantissa, e), saturated(mantissa+1, e)
}

func saturated(mantissa int64, e uint32) int64 {
	if mantissa > math.MaxInt64>>e {
		return math.MaxInt64
	}
	return mantissa << e
}

// Histogram is counts of values: count by bucket.
type Histogram map[uint32]int64

// Quantile is the value at rank ceil(q n), in nanoseconds, off by less than 0.05 %, and never outside of low..high, the
// exact extremes of the sample; 0 when there are no values.
func (c Histogram) Quantile(q float64, low, high int64) float64 {
	var n int64
	var top uint32
	for bucket, count := range c {
		n += count
		top = max(top, bucket)
	}
	if n == 0 {
		return 0
	}
	// 0.07 * 100 is 7.000000000000001 for a float: the rank must not become 8
	rank := max(1, int64(math.Ceil(q*float64(n)-1e-9*float64(n))))
	if rank >= n {
		return float64(high)
	}
	var seen int64
	for bucket := uint32(0); bucket <= top; bucket++ {
		if seen += c[bucket]; seen >= rank {
			from, to := bucketBounds(bucket)
			return min(max((float64(from)+float64(to)-1)/2, float64(low)), float64(high))
		}
	}
	return float64(high)
}

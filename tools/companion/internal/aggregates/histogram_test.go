package aggregates

import (
	"math"
	"math/rand"
	"slices"
	"testing"
)

func TestBucketsHoldTheirValues(t *testing.T) {
	values := []int64{0, 1, 2047, 2048, 2049, 4095, 4096, 1e6, 36211601, 1e9, 1 << 40, math.MaxInt64}
	for range 10000 {
		values = append(values, rand.Int63()>>rand.Intn(63))
	}
	slices.Sort(values)
	last := uint32(0)
	for _, v := range values {
		bucket := bucketOf(v)
		low, high := bucketBounds(bucket)
		if v < low || v >= high && v != math.MaxInt64 {
			t.Fatalf("%d is in bucket %d, %d..%d", v, bucket, low, high)
		}
		if bucket < last || bucket > 55295 {
			t.Fatalf("bucket %d of %d follows %d", bucket, v, last)
		}
		if high-low > 1 && high-low > low/1024 {
			t.Fatalf("bucket %d is %d wide at %d", bucket, high-low, low)
		}
		last = bucket
	}
}

// As cbt_plugins/results/histogram.py numbers them.
func TestBucketNumbers(t *testing.T) {
	for v, want := range map[int64]uint32{2047: 2047, 2048: 2048, 2050: 2049, 4096: 3072, 36211601: 16465, 1e9: 21363} {
		if got := bucketOf(v); got != want {
			t.Errorf("bucket of %d: %d, not %d", v, got, want)
		}
	}
}

func TestBoundsOfAnyBucket(t *testing.T) {
	for bucket := uint32(0); bucket < 1<<17; bucket++ {
		if low, high := bucketBounds(bucket); low < 0 || high < low {
			t.Fatalf("bucket %d: %d..%d", bucket, low, high)
		}
	}
}

func TestQuantiles(t *testing.T) {
	values, counts := []int64{}, Histogram{}
	for range 5000 {
		v := int64(math.Exp(rand.NormFloat64() + 15))
		values = append(values, v)
		counts[bucketOf(v)]++
	}
	slices.Sort(values)
	for _, q := range []float64{0, 0.07, 0.5, 0.9, 0.99, 0.999, 1} {
		exact := float64(values[max(1, int(math.Ceil(q*5000-1e-5)))-1])
		if got := counts.Quantile(q, values[0], values[4999]); math.Abs(got-exact) > exact/1900 {
			t.Errorf("quantile %v is %v, not %v", q, got, exact)
		}
	}
	if got := (Histogram{}).Quantile(0.5, 0, 0); got != 0 {
		t.Errorf("a quantile of nothing: %v", got)
	}
}

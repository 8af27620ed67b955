package schedule

import (
	"testing"
)

func TestSharesAreExactInEveryThousand(t *testing.T) {
	sizes := NewSizes([]SizeRange{{4096, 4096, 50}, {65536, 131072, 30}, {0, 0, 0.5}, {1 << 20, 1 << 20, 19.5}}, 9)
	for thousand := range int64(50) {
		var counts [4]int
		for i := range int64(1000) {
			switch size := sizes.Of(thousand*1000 + i + 1); {
			case size == 4096:
				counts[0]++
			case size >= 65536 && size <= 131072:
				counts[1]++
			case size == 0:
				counts[2]++
			case size == 1<<20:
				counts[3]++
			default:
				t.Fatalf("size %d", size)
			}
		}
		if counts != [4]int{500, 300, 5, 195} {
			t.Fatalf("thousand %d: %v", thousand, counts)
		}
	}
}

func TestSizesAreAFunctionOfTheSeedAndNumber(t *testing.T) {
	ranges := []SizeRange{{1, 1 << 30, 1}, {5, 5, 1}}
	a, b, c := NewSizes(ranges, 9), NewSizes(ranges, 9), NewSizes(ranges, 10)
	different := 0
	for i := int64(1); i < 2000; i++ {
		if a.Of(i) != b.Of(i) {
			t.Fatal("not the same")
		}
		if a.Of(i) != c.Of(i) {
			different++
		}
	}
	if different < 1000 {
		t.Fatal("the seed makes no difference")
	}
}

func TestRangeIsUsedToItsEnds(t *testing.T) {
	sizes := NewSizes([]SizeRange{{10, 13, 1}}, 1)
	var counts [4]int
	for i := int64(1); i <= 4000; i++ {
		counts[sizes.Of(i)-10]++
	}
	for _, n := range counts {
		if n < 850 || n > 1150 {
			t.Fatalf("%v", counts)
		}
	}
}

package s3

import (
	"os"
	"slices"
	"testing"
)

// Listings recorded from a Ceph RGW are read the same wherever the pieces end.
func TestListings(t *testing.T) {
	for _, file := range []string{"testdata/rgw-list.xml", "testdata/rgw-list-url.xml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for cut := range text {
			var list listing
			list.reset(&Request{WantKeys: true}, &Result{})
			list.Write(text[:cut])
			if err := list.finish(); err == nil {
				t.Fatalf("%s: complete after %d of %d bytes", file, cut, len(text))
			}
			list.reset(&Request{WantKeys: true}, &Result{})
			for _, piece := range [][]byte{text[:cut], text[cut:]} {
				if _, err := list.Write(piece); err != nil {
					t.Fatal(err)
				}
			}
			if err := list.finish(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(list.keys, []string{"plain", "with space&+", "zz"}) || !slices.Equal(list.sizes, []int64{3, 3, 3}) ||
				!list.truncated || list.count != 3 {
				t.Fatalf("%s in pieces at %d: %+v", file, cut, list)
			}
		}
	}
}

func TestAListingIsBounded(t *testing.T) {
	var list listing
	list.reset(&Request{WantKeys: true}, &Result{})
	for range 100 {
		if _, err := list.Write(make([]byte, 1<<10)); err != nil {
			return
		}
	}
	t.Fatal("takes any text")
}

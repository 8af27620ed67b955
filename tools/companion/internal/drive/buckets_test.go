package drive

import (
	"fmt"
	"strings"
	"testing"

	"cbt-plugins/companion/internal/s3"
)

// A bucket is asked for, made when it is missing, and that another driver was faster is no error.
func TestMissingBucketsAreMade(t *testing.T) {
	for name, answer := range map[string]string{"missing": "", "made by another": "409 BucketAlreadyOwnedByYou", "there": "there"} {
		v := newServer()
		var made []string
		v.before = func(r *s3.Request, result *s3.Result) bool {
			switch {
			case r.Key != "" || r.Op == s3.List:
				return false
			case r.Op == s3.Stat && answer != "there":
				result.Status, result.Kind, result.Message = 404, s3.KindHTTP, "404 NotFound"
			case r.Op == s3.Put:
				made = append(made, r.Bucket)
				if answer != "" {
					result.Status, result.Kind, result.Message = 409, s3.KindHTTP, answer
				}
			}
			return true
		}
		got := run(t, v, `"workers":2,"objects":10,"make_buckets":true,`+oneSpace+`"ops":[{"op":"PUT","spaces":["a"]}]`)
		if s := got.space(t, "a"); got.status != 0 || s.Created != 10 {
			t.Fatalf("%s: status %d, %+v", name, got.status, s)
		}
		if (answer == "there") != (len(made) == 0) || len(made) > 1 {
			t.Fatalf("%s: made %v", name, made)
		}
	}
}

// Somebody else's objects are listed without those that drivers of this run write and delete.
func TestAListingLeavesOutWhatIsExcluded(t *testing.T) {
	v := newServer()
	for i := range 20 {
		v.objects[fmt.Sprintf("b/theirs/%d", i)] = make([]byte, 10)
		v.objects[fmt.Sprintf("b/cbtp-1/cbt-load/02/%d", i)] = make([]byte, 10)
	}
	got := run(t, v, `"workers":2,"duration":0.3,
		"spaces":[{"name":"old","bucket":"b","prefix":"","numbered":false,"exclude":"cbtp-1/"}],
		"ops":[{"op":"GET","spaces":["old"]}]`)
	if len(got.rows) == 0 {
		t.Fatal(got.text)
	}
	for _, fields := range got.rows {
		if !strings.HasPrefix(fields[7], "theirs/") {
			t.Fatalf("read %s", fields[7])
		}
	}
}

func TestNumbersOfTheStateThatAListingLacksAreLost(t *testing.T) {
	for _, one := range []struct {
		noDeletes  bool
		truncated  bool // the listing ends early
		lost, gone int64
	}{{true, false, 10, 0}, {false, false, 0, 10}, {true, true, 4000, 0}} {
		v := newServer()
		state := fill(t, v, 5000)
		for number := int64(2); number <= 4097; number += 455 {
			delete(v.objects, "b/"+string(appendKey(nil, "p/", number)))
		}
		v.objects["b/p/0000005001"] = nil // of the run that was broken off
		if one.truncated {
			v.after = func(r *s3.Request, result *s3.Result) { result.Truncated = false }
		}
		rebuilt := fmt.Sprintf(`"spaces":[{"name":"a","bucket":"b","prefix":"p/","sizes":[[0,100,1],[5000,5000,1]],"rebuild":true,"no_deletes":%v}],`,
			one.noDeletes)
		got := run(t, v, fmt.Sprintf(`"workers":1,"state_in":%q,%s"ops":[{"op":"STAT","select":"r(1,9)","spaces":["a"]}]`, state, rebuilt))
		s, warned := got.space(t, "a"), strings.Contains(got.text, fmt.Sprintf("space a: the LIST has not found %d objects", one.gone))
		if got.status != 0 || s.Lost != one.lost || warned != (one.gone > 0) || len(got.end.Warnings) != int(min(one.gone, 1)) {
			t.Fatalf("%+v: %+v %s", one, s, got.text)
		}
		if !one.truncated && s.Live != 4991 {
			t.Fatalf("%+v", s)
		}
	}
}

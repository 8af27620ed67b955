package spec

import (
	"cbt-plugins/companion/internal/s3"
	"cbt-plugins/companion/internal/schedule"
)

// Version of the format.
const Version = 1

// Spec is one run. Times are seconds, sizes bytes.
type Spec struct {
	Job          string
	Seed         uint64
	Hosts        []string
	RoundRobin   bool
	Region       string
	HostStyle    bool
	VerifyTLS    bool
	Unsigned     bool
	Workers      int     // of all works
	Duration     float64 // 0: none
	Objects      int64   // successful PUTs in each space; 0: none
	Ramp         float64
	Deadline     float64
	Retries      int
	Grace        float64
	ListKeys     int
	PartSize     int64
	Compressible float64
	Verify       bool
	StateIn      string
	StateOut     string
	SetsN        bool
	MakeBuckets  bool
	Versioned    bool   // buckets that it makes, or others make for it, keep versions
	Encryption   string // "", "c", "s3", "kms"
	KMSKey       string
	Spaces       []Space
	Works        []Work // one without a name, where the spec has `ops`
}

// Work is a mix of operations with workers of its own; all works run at once.
type Work struct {
	Name    string
	Workers int
	Rate    float64 // requests/s; 0: closed loop
	Poisson bool
	Ops     []Op
}

// OpName is what an operation is called in rows and counts: GET, or NAME:GET.
func (w *Work) OpName(op s3.Op) string {
	if w.Name == "" {
		return string(op)
	}
	return w.Name + ":" + string(op)
}

// Space is a set of objects in one bucket.
type Space struct {
	Name     string
	Bucket   string
	Prefix   string
	Numbered bool // false: what a LIST of the prefix finds, read-only
	Sizes    []schedule.SizeRange
	Keys     string // of whose requests: "" or the end of the names of two variables
	Objects  int64  // as Spec.Objects, which holds where this is 0
	Rebuild  bool   // numbers are found by listing
	// with Rebuild: since the state was written, nothing has deleted objects, so a number that the listing lacks is lost
	NoDeletes bool
	Limit     int64  // of a space that is not numbered; 0: none
	Exclude   string // of a space that is not numbered: keys that begin so are left out
}

// Op is one operation of the mix.
type Op struct {
	Op     s3.Op
	Share  float64
	Select Select
	Absent bool // DELETE: also of what is not there
	Spaces []int
}

// Writes tells whether it makes objects.
func (o *Op) Writes() bool { return o.Op == s3.Put || o.Op == s3.Multipart }

// Package s3 makes the requests: one connection per request under way, one deadline per request, nothing retried in secret.
package s3

import (
	"io"
	"time"
)

// Op is what a request does, by the name that its row carries.
type Op string

const (
	Get       Op = "GET"
	Put       Op = "PUT"
	Stat      Op = "STAT"
	Delete    Op = "DELETE"
	List      Op = "LIST"
	Multipart Op = "MULTIPART" // a PUT in parts; one row for all of its requests
)

// Ops are all operations, in the order of messages.
var Ops = [...]Op{Get, Put, Stat, Delete, List, Multipart}

// Config says where requests go and how they are signed.
type Config struct {
	Hosts       []string // http://host:port or https://host:port, all of one scheme
	RoundRobin  bool     // false: the least busy host
	Region      string
	AccessKey   string
	SecretKey   string
	Session     string
	HostStyle   bool // bucket in the host name instead of the path
	InsecureTLS bool
	Unsigned    bool // UNSIGNED-PAYLOAD
	Workers     int  // so many requests may be under way at once
	PartSize    int64
	Encryption  Encryption
}

// Body is what a PUT sends.
type Body interface {
	Size() int64
	// Sum is the SHA-256 of all of it; asked for only when payloads are signed.
	Sum() [32]byte
	// WriteTo writes all of it, and may be called again.
	WriteTo(w io.Writer) (int64, error)
	// Section is a part of it.
	Section(offset, size int64) Body
}

// Request is one request of a worker. A worker uses one Request and one Result again and again.
type Request struct {
	Op         Op
	Bucket     string
	Key        string    // LIST: the prefix. Empty with PUT, STAT, DELETE: the bucket itself
	Query      string    // PUT of a bucket: what it is about, "versioning="
	Body       Body      // PUT, MULTIPART; nil with PUT: nothing
	Sink       io.Writer // GET: gets the object; nil: it is thrown away. Its error is KindChecksum
	StartAfter string    // LIST
	MaxKeys    int       // LIST
	Exists     string    // LIST: an object that exists all the while; empty: none is known. A listing that begins after it is wrong
	WantKeys   bool      // LIST: fill Result.Keys, Result.Sizes and Result.ETags
	Expected   Expected  // GET, STAT: what the object is known to be
	Until      time.Time // the deadline; the request is over by then. A MULTIPART that failed may take a second more
}

// Expected is what is known of an object before it is asked for; the zero value knows nothing.
type Expected struct {
	Sized bool
	Size  int64
	ETag  uint64 // its Fingerprint; 0: not known
}

// Result is what came of a request.
type Result struct {
	Endpoint  string // the host that it went to
	Status    int    // HTTP status; 0: there was no answer
	Kind      string // empty: success. Else one word, see error_kinds.go
	Message   string // more about an error, one line
	Sent      time.Time
	FirstByte time.Time // zero: no answer
	End       time.Time
	Bytes     int64         // of the object, not of the protocol
	Objects   int64         // LIST: keys returned; others 1
	Untouched bool          // it failed, and for certain changed nothing: not sent, or an upload that was never completed
	Resent    bool          // sent twice: the server had closed the idle connection. The first one may have been carried out
	Truncated bool          // LIST: there are more
	Hashing   time.Duration // within its time: of the parts of a MULTIPART
	Keys      []string
	Sizes     []int64
	ETags     []uint64 // Fingerprints
}

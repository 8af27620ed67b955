// Package row is one finished request, as warp's tools and ours write and read it.
package row

// Columns of the rows that the generators print, tab separated: those of warp 1.1 to 1.4.
const Columns = "idx\tthread\top\tclient_id\tn_objects\tbytes\tendpoint\tfile\terror\tstart\tfirst_byte\tend\tduration_ns\tcat"

// Row is one finished request. Times are nanoseconds since the epoch on the clock of the node that made it.
type Row struct {
	Thread   uint32
	Op       string // GET PUT STAT DELETE LIST MULTIPART
	Objects  int64
	Bytes    int64
	Endpoint string
	File     string
	Err      string // empty: it succeeded. Begins with the kind of error
	Start    int64  // of an open loop: when it should have started
	First    int64  // first byte of the answer, 0: not known
	End      int64
	Duration int64
}

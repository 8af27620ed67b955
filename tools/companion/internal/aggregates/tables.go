package aggregates

// Names of the tables.
const (
	TableCounts  = "counts"
	TableLatency = "latency"
	TableTTFB    = "ttfb"
	TableFailed  = "failed"
	TableSeconds = "seconds"
	TableErrors  = "errors"
	TableThreads = "threads"
)

var histogram = [][2]string{{"group", "u4"}, {"bucket", "u4"}, {"count", "u4"}}

// tables are the columns of every table of this version, keys first.
var tables = map[string][][2]string{
	TableCounts: {
		{"block", "i8"}, {"source", "u2"}, {"op", "u1"}, {"endpoint", "u2"}, {"size", "u1"},
		{"n", "u4"}, {"failed", "u4"}, {"objects", "i8"}, {"bytes", "i8"},
		{"total", "i8"}, {"min", "i8"}, {"max", "i8"},
		{"failed_total", "i8"}, {"failed_min", "i8"}, {"failed_max", "i8"},
		{"ttfb_n", "u4"}, {"ttfb_total", "i8"}, {"ttfb_min", "i8"}, {"ttfb_max", "i8"},
	},
	TableLatency: histogram,
	TableTTFB:    histogram,
	TableFailed:  histogram,
	TableSeconds: {
		{"second", "i8"}, {"source", "u2"}, {"op", "u1"}, {"n", "u4"}, {"failed", "u4"}, {"objects", "i8"}, {"bytes", "i8"},
		{"total", "i8"}, {"max", "i8"}, {"first", "i8"}, {"last", "i8"}, {"busy", "i8"}, {"crossing", "u4"},
	},
	TableErrors: {
		{"block", "i8"}, {"source", "u2"}, {"op", "u1"}, {"endpoint", "u2"}, {"error", "u2"}, {"count", "u4"},
	},
	TableThreads: {{"source", "u2"}, {"thread", "u4"}, {"last_end", "i8"}},
}

package aggregates

import (
	"maps"
	"slices"

	"cbt-plugins/companion/internal/rows"
)

// More than any generator has: what goes beyond is no number of a thread, or no name of a client.
const (
	mostThreads = 1 << 20
	mostClients = 1 << 10
)

// Sums add up all rows of a source; times are those of the node's clock.
type Sums struct {
	Rows, Errors        int64
	Command             string // that made the rows, where they say so
	firstStart, lastEnd int64
	dense               []int64 // last end of each thread with a low number; 0: it has none
	sparse              map[int64]int64
	clients             map[string]bool // those that the rows name, at most mostClients
	client              string          // of the last row
}

// Add counts a row.
func (t *Sums) Add(r *rows.Row) {
	start := r.End - r.Duration
	if r.Sum != nil {
		start = r.End
	}
	if t.Rows == 0 || start < t.firstStart {
		t.firstStart = start
	}
	t.lastEnd = max(t.lastEnd, r.End)
	good, failed := r.Counts()
	t.Rows += good + failed
	t.Errors += failed
	if (len(t.clients) == 0 || string(r.Client) != t.client) && len(t.clients) < mostClients {
		if t.clients == nil {
			t.clients = map[string]bool{}
		}
		t.client = string(r.Client)
		t.clients[t.client] = true
	}
	if r.Sum == nil {
		t.thread(r.Thread, r.End)
	}
}

func (t *Sums) thread(thread, end int64) {
	switch {
	case thread > 1<<32-1:
	case thread < int64(len(t.dense)):
		t.dense[thread] = max(t.dense[thread], end)
	case thread < 1<<12:
		t.dense = make([]int64, 1<<12)
		t.dense[thread] = end
	default:
		if t.sparse == nil {
			t.sparse = map[int64]int64{}
		}
		if last, known := t.sparse[thread]; known || len(t.sparse) < mostThreads {
			t.sparse[thread] = max(last, end)
		}
	}
}

// Merge adds what another one has counted.
func (t *Sums) Merge(other *Sums) {
	t.Command = max(t.Command, other.Command)
	if other.Rows == 0 {
		return
	}
	if t.clients == nil {
		t.clients = map[string]bool{}
	}
	maps.Copy(t.clients, other.clients)
	if t.Rows == 0 || other.firstStart < t.firstStart {
		t.firstStart = other.firstStart
	}
	t.lastEnd = max(t.lastEnd, other.lastEnd)
	t.Rows += other.Rows
	t.Errors += other.Errors
	for thread, end := range other.threads() {
		t.thread(thread, end)
	}
}

func (t *Sums) threads() map[int64]int64 {
	all := maps.Clone(t.sparse)
	if all == nil {
		all = map[int64]int64{}
	}
	for thread, end := range t.dense {
		if end > 0 {
			all[int64(thread)] = end
		}
	}
	return all
}

// End makes the last frame of a file. offset is the node's clock minus the head's in ns.
func (t *Sums) End(block, offset int64, source Source, bad int64, torn string) *Frame {
	f := NewFrame(KindEnd, block, []Source{source})
	totals := Totals{Rows: t.Rows, Errors: t.Errors, Bad: bad, Command: t.Command}
	if len(t.clients) > 1 || !t.clients[""] {
		totals.Clients = slices.Sorted(maps.Keys(t.clients))
	}
	if t.Rows > 0 {
		totals.FirstStart, totals.LastEnd = t.firstStart-offset, t.lastEnd-offset
	}
	if torn != "" {
		totals.Torn = &torn
	}
	f.Totals = []Totals{totals}
	threads := t.threads()
	table := f.Table(TableThreads, len(threads))
	for i, thread := range slices.Sorted(maps.Keys(threads)) {
		table.Set(i, 0, thread, threads[thread]-offset)
	}
	return f
}

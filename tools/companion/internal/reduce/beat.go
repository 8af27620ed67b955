package reduce

import (
	"encoding/json"
	"io"
	"time"

	"cbt-plugins/companion/internal/rows"
)

const (
	// how long the last line of counts waits for whoever reads them
	writeTimeout = 5 * time.Second
	// bytes of the first error's text
	errorLength = 300
)

// count is what came of one operation: good, failed, bytes and ns of the good, when the first and the last row came.
type count struct {
	good, failed, bytes, total int64
	first, last                float64
}

// MarshalJSON makes a list of it.
func (c *count) MarshalJSON() ([]byte, error) {
	return json.Marshal([]any{c.good, c.failed, c.bytes, c.total, c.first, c.last})
}

// beat is a line of counts.
type beat struct {
	T      float64           `json:"t"`
	Rows   int64             `json:"rows"`
	Last   float64           `json:"last"`
	Counts map[string]*count `json:"counts"`
	Error  string            `json:"error,omitempty"` // of the first request that failed
	Lost   string            `json:"lost,omitempty"`  // why not all of the rows will be in the output
	End    bool              `json:"end,omitempty"`
}

// add counts a row that came at this time.
func (b *beat) add(r *rows.Row, now float64) {
	c := b.Counts[string(r.Op)]
	if c == nil {
		c = &count{first: now}
		b.Counts[string(r.Op)] = c
	}
	c.last, b.Last = now, now
	good, failed := r.Counts()
	b.Rows += good + failed
	if failed > 0 {
		c.failed += failed
		if b.Error == "" {
			b.Error = string(r.Err[:min(len(r.Err), errorLength)])
		}
	}
	if good == 0 {
		return
	}
	c.good += good
	c.bytes += r.Bytes
	c.total += r.Duration
}

// line is the text of the counts as they are.
func (b *beat) line(end bool) []byte {
	b.T, b.End = epoch(time.Now()), end
	text, err := json.Marshal(b)
	if err != nil {
		panic(err) // numbers and texts only
	}
	return append(text, '\n')
}

func epoch(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// teller writes lines for a reader that may be slow, or gone: neither may hold up the rows.
type teller struct {
	lines chan []byte
	done  chan struct{}
}

func newTeller(to io.Writer) *teller {
	t := &teller{lines: make(chan []byte, 1), done: make(chan struct{})}
	go func() {
		defer close(t.done)
		for line := range t.lines {
			if _, err := to.Write(line); err != nil {
				for range t.lines {
				}
			}
		}
	}()
	return t
}

// tell writes a line unless the one before still waits.
func (t *teller) tell(line []byte) {
	select {
	case t.lines <- line:
	default:
	}
}

// last writes the last line, and does not wait for long.
func (t *teller) last(line []byte) {
	over := time.After(writeTimeout)
	select {
	case t.lines <- line:
		close(t.lines)
	case <-over:
		return
	}
	select {
	case <-t.done:
	case <-over:
	}
}

package rows

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	flushEvery = 50 * time.Millisecond
	// a worker with so much unwritten waits for the reader of the rows: better a slower load than lost rows
	mostUnwritten = 1 << 20
	batch         = 256 << 10
)

// Writer gathers rows of many workers and writes them from one goroutine, at least every 100 ms.
type Writer struct {
	out    io.Writer
	queues []queue
	index  atomic.Uint64
	wake   chan struct{}
	close  chan struct{}
	done   chan struct{}
	broken chan struct{}
	err    error // read after broken or done
	once   sync.Once
}

// queue is the rows of one worker that are not written yet; nobody else but the writer waits for its lock.
type queue struct {
	sync.Mutex
	rows   []byte
	room   sync.Cond
	closed bool
	_      [64]byte // queues do not share a cache line
}

// NewWriter begins to write.
func NewWriter(out io.Writer, workers int) *Writer {
	r := &Writer{
		out:    out,
		queues: make([]queue, workers),
		wake:   make(chan struct{}, 1),
		close:  make(chan struct{}),
		done:   make(chan struct{}),
		broken: make(chan struct{}),
	}
	for i := range r.queues {
		r.queues[i].room.L = &r.queues[i]
	}
	go r.write()
	return r
}

// Add is a row of a worker. It waits when the reader of the rows is far behind.
func (r *Writer) Add(worker int, request *Request) {
	l := &r.queues[worker]
	l.Lock()
	for len(l.rows) > mostUnwritten && !l.closed {
		select {
		case r.wake <- struct{}{}:
		default:
		}
		l.room.Wait()
	}
	if !l.closed {
		l.rows = Append(l.rows, r.index.Add(1)-1, request)
	}
	l.Unlock()
}

// Broken is closed when rows can no longer be written; Err says why.
func (r *Writer) Broken() <-chan struct{} { return r.broken }

// Err is why rows could not be written, once Broken or Close says so.
func (r *Writer) Err() error {
	select {
	case <-r.broken:
		return r.err
	default:
		return nil
	}
}

// Close writes what there is, for at most `limit`, and takes no more.
func (r *Writer) Close(limit time.Duration) error {
	r.once.Do(func() { close(r.close) })
	late := time.NewTimer(limit)
	defer late.Stop()
	select {
	case <-r.done:
		return r.Err()
	case <-late.C:
		return errors.New("nobody reads the rows")
	}
}

func (r *Writer) write() {
	defer close(r.done)
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	var rows []byte
	for last := false; !last; {
		select {
		case <-ticker.C:
		case <-r.wake:
		case <-r.close:
			last = true
		}
		for i := range r.queues {
			l := &r.queues[i]
			l.Lock()
			rows = append(rows, l.rows...)
			l.rows = l.rows[:0]
			l.closed = last || r.err != nil
			l.room.Broadcast()
			l.Unlock()
			if len(rows) >= batch {
				rows = r.flush(rows)
			}
		}
		rows = r.flush(rows)
	}
}

// flush writes the rows and gives their room back.
func (r *Writer) flush(rows []byte) []byte {
	if len(rows) > 0 && r.err == nil {
		if _, err := r.out.Write(rows); err != nil {
			r.err = err
			close(r.broken)
		}
	}
	return rows[:0]
}

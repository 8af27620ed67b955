package reduce

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"cbt-plugins/companion/internal/aggregates"
	"cbt-plugins/companion/internal/rows"
)

const (
	// rows of this much text may wait for a disk before the generator has to
	streamChunks, streamChunk = 64, 1 << 18
	// a read that gave less than this is followed by a pause: rows come one by one, and waking up for each costs more than
	// the row
	small = 1 << 16
	// seconds between frames
	oftenest = 10
)

// stream is the state of Stream.
type stream struct {
	*Options
	out    *output
	chunks *textChunks
	free   chan []byte // buffers
	keeper *keeper
	reader *rows.Reader
	store  *aggregates.Store
	stores chan *aggregates.Store // empty ones
	full   chan *aggregates.Store
	totals aggregates.Sums
	beat   beat
	bad    int64
}

// Stream makes aggregates of rows while they come. It ends when its input does; counts go to counts, when they are wanted.
func Stream(from io.Reader, counts io.Writer, o *Options) error {
	out, err := newOutput(o)
	if err != nil {
		return err
	}
	s := &stream{
		Options: o, out: out, free: make(chan []byte, streamChunks), beat: beat{Counts: map[string]*count{}},
		stores: make(chan *aggregates.Store, 4), full: make(chan *aggregates.Store, 4), store: aggregates.NewStore(o.Block, o.Offset),
	}
	for i := 0; i < cap(s.free); i++ {
		s.free <- nil
	}
	for i := 1; i < cap(s.stores); i++ {
		s.stores <- aggregates.NewStore(o.Block, o.Offset)
	}
	if o.Keep != "" {
		if s.keeper, err = newKeeper(o.Keep, s.free, &out.failed); err != nil {
			return errors.Join(err, out.file.Close())
		}
		go s.keeper.run()
	}
	var teller *teller
	if o.Beat {
		teller = newTeller(counts)
	}
	unread := s.run(from, teller)
	err = errors.Join(s.finish(), unread)
	if o.Beat {
		teller.last(s.beat.line(true))
	}
	return err
}

// text is what was read at once.
type text struct {
	data []byte
	n    int
	came time.Time
}

func (s *stream) run(from io.Reader, teller *teller) error {
	texts, failed := make(chan text), make(chan error, 1)
	s.chunks = &textChunks{from: from, size: streamChunk, eager: true, cut: wholeLines}
	go func() {
		defer close(texts)
		failed <- s.read(texts)
	}()
	written := make(chan struct{})
	go func() {
		defer close(written)
		for store := range s.full {
			s.out.counts(store)
			s.stores <- store
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	begun := time.Now()
	for open := true; open; {
		select {
		case t, more := <-texts:
			if open = more; open {
				s.take(t)
			}
		case now := <-tick.C:
			if teller != nil {
				s.beat.Lost = s.out.failed.String()
				teller.tell(s.beat.line(false))
			}
			if s.keeper != nil {
				s.keeper.data <- kept{}
			}
			if now.Sub(begun) >= time.Duration(max(oftenest, s.Block))*time.Second {
				s.flush()
				begun = now
			}
		}
	}
	s.flush()
	close(s.full)
	<-written
	return <-failed
}

// widen makes a pipe hold more. It returns for how long rows may lie in it: far from what would hold up their generator.
func widen(from io.Reader) time.Duration {
	const setPipeSize, size = 1031, 1 << 20 // F_SETPIPE_SZ
	if file, is := from.(*os.File); is {
		if _, _, failed := syscall.Syscall(syscall.SYS_FCNTL, file.Fd(), setPipeSize, size); failed == 0 {
			return 25 * time.Millisecond
		}
	}
	return 2 * time.Millisecond
}

// read gives whole lines, as they come.
func (s *stream) read(texts chan<- text) error {
	pause := widen(s.chunks.from)
	if err := s.chunks.begin(); err != nil {
		return fmt.Errorf("%w the rows: %w", ErrInput, err)
	}
	for {
		data, n := s.chunks.next(<-s.free)
		if n == 0 {
			break
		}
		texts <- text{data, n, time.Now()}
		if n < small && s.chunks.err == nil {
			time.Sleep(pause)
		}
	}
	if s.chunks.err != io.EOF {
		return fmt.Errorf("%w the rows: %w", ErrInput, s.chunks.err)
	}
	return nil
}

func wholeLines(text []byte) int {
	for i := len(text); i > 0; i-- {
		if text[i-1] == '\n' {
			return i
		}
	}
	return 0
}

func (s *stream) take(t text) {
	if s.reader == nil {
		s.reader = rows.NewReader(s.chunks.columns)
		s.header()
	}
	now := epoch(t.came)
	s.reader.Chunk(t.data, t.n, func(r *rows.Row) {
		if s.store.Full() {
			s.flush()
		}
		if s.store.Add(r) {
			s.totals.Add(r)
			s.beat.add(r, now)
		} else {
			s.bad++
		}
	})
	if s.keeper != nil {
		s.keeper.data <- kept{t.data[:t.n], true}
	} else {
		s.free <- t.data
	}
}

// header begins the kept rows.
func (s *stream) header() {
	if s.keeper != nil && s.chunks.columns != nil {
		s.keeper.data <- kept{rows: []byte(s.chunks.columns.Header + "\n")}
	}
}

// flush has a frame written of what came since the last one.
func (s *stream) flush() {
	if !s.store.Empty() {
		s.full <- s.store
		s.store = <-s.stores
	}
}

// finish writes the last frame and the end of the kept rows.
func (s *stream) finish() error {
	open, bad := s.chunks.torn()
	torn := ""
	if open {
		torn = "the last line has no end"
	}
	if s.reader != nil {
		s.reader.End()
		s.totals.Command = s.reader.Command
		bad += s.reader.Bad
	} else {
		s.header()
	}
	err := s.out.end(s.totals.End(s.Block, s.Offset, s.Source, bad+s.bad, torn))
	if s.keeper != nil {
		err = errors.Join(err, s.keeper.close())
	}
	return err
}

package reduce

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"strings"

	"cbt-plugins/companion/internal/aggregates"
	"cbt-plugins/companion/internal/rows"
)

const (
	workers = 2
	// small enough that a chunk stays in the processor's cache from the decoder to the parser
	chunkSize = 1 << 20
	// chunks of one frame
	frameChunks = 64
)

// part is a chunk of rows for a worker; without a text: hand over the aggregates.
type part struct {
	columns *rows.Columns
	text    []byte
	n       int
}

// worker parses chunks, every second one, so that what it does depends on the input alone.
type worker struct {
	parts  chan part
	done   chan *aggregates.Store // at each hand-over
	reader *rows.Reader
	of     *rows.Columns
	store  *aggregates.Store
	totals aggregates.Sums
	bad    int64
}

// pipeline goes from chunks to frames: the caller cuts, workers parse, and one more goroutine builds frames.
type pipeline struct {
	out     *output
	workers [workers]*worker
	stores  chan *aggregates.Store
	texts   chan []byte
	built   chan struct{}
	sizes   sizes
	number  int
}

// sizes are how many bytes make a chunk, and how many chunks a frame.
type sizes struct{ chunk, frame int }

func newPipeline(out *output, o *Options, of sizes) *pipeline {
	p := &pipeline{
		out: out, sizes: of, stores: make(chan *aggregates.Store, 2*workers), texts: make(chan []byte, 3*workers), built: make(chan struct{}),
	}
	for i := 0; i < cap(p.texts); i++ {
		p.texts <- nil
	}
	for i := 0; i < cap(p.stores); i++ {
		p.stores <- aggregates.NewStore(o.Block, o.Offset)
	}
	for i := range p.workers {
		p.workers[i] = &worker{parts: make(chan part, 2), done: make(chan *aggregates.Store, 1)}
		go p.work(p.workers[i])
	}
	go p.build()
	return p
}

func (p *pipeline) work(w *worker) {
	w.store = <-p.stores
	only := p.out.options.Client
	take := func(r *rows.Row) {
		if only != nil && string(r.Client) != *only {
			return
		}
		if w.store.Full() {
			p.out.counts(w.store)
		}
		if w.store.Add(r) {
			w.totals.Add(r)
		} else {
			w.bad++
		}
	}
	for part := range w.parts {
		if part.text == nil {
			w.done <- w.store
			w.store = <-p.stores
			continue
		}
		if w.of != part.columns {
			w.finish()
			w.reader, w.of = rows.NewReader(part.columns), part.columns
		}
		w.reader.Chunk(part.text, part.n, take)
		p.texts <- part.text
	}
	w.finish()
	w.done <- w.store
	close(w.done)
}

func (w *worker) finish() {
	if w.reader != nil {
		w.bad += w.reader.Bad
		w.totals.Command = max(w.totals.Command, w.reader.Command)
	}
}

// build makes a frame of each hand-over: the workers' stores, in their order.
func (p *pipeline) build() {
	defer close(p.built)
	for first := range p.workers[0].done {
		stores := []*aggregates.Store{first}
		for _, w := range p.workers[1:] {
			stores = append(stores, <-w.done)
		}
		p.out.counts(stores...)
		for _, s := range stores {
			p.stores <- s
		}
	}
}

// Files makes one aggregates file of the rows of files.
func Files(paths []string, o *Options) error {
	return files(paths, o, sizes{chunkSize, frameChunks})
}

func files(paths []string, o *Options, of sizes) error {
	out, err := newOutput(o)
	if err != nil {
		return err
	}
	// nearly all of the heap is buffers without pointers, which cost nothing to collect
	defer debug.SetGCPercent(debug.SetGCPercent(30))
	p := newPipeline(out, o, of)
	var torn []string
	var bad int64
	var unread error
	for _, path := range paths {
		why, badLines, err := p.file(path)
		bad += badLines
		if err != nil {
			unread = errors.Join(unread, fmt.Errorf("%w %s: %w", ErrInput, path, err))
			why = err.Error()
		}
		if why != "" && len(paths) > 1 {
			why = filepath.Base(path) + ": " + why
		}
		if why != "" {
			torn = append(torn, why)
		}
	}
	totals, badLines := p.close()
	end := totals.End(o.Block, o.Offset, o.Source, bad+badLines, strings.Join(torn, "; "))
	return errors.Join(out.end(end), unread)
}

// file hands the rows of a file to the workers. It returns why the file's end is missing, and the bad lines of its end.
func (p *pipeline) file(path string) (torn string, bad int64, err error) {
	from, err := rows.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer from.Close()
	chunks := &textChunks{from: from, size: p.sizes.chunk}
	if err := chunks.begin(); err != nil {
		return "", 0, err
	}
	chunks.cut = chunks.columns.Cut
	for {
		text, n := chunks.next(<-p.texts)
		if n == 0 {
			p.texts <- text
			break
		}
		p.send(part{chunks.columns, text, n})
	}
	open, bad := chunks.torn()
	if open {
		torn = "the last line has no end"
	}
	if from.Torn != "" {
		torn = from.Torn
	}
	if chunks.err == io.EOF {
		chunks.err = nil
	}
	return torn, bad, chunks.err
}

func (p *pipeline) send(next part) {
	p.workers[p.number%workers].parts <- next
	if p.number++; p.number%p.sizes.frame == 0 {
		for _, w := range p.workers {
			w.parts <- part{}
		}
	}
}

// close waits for all that was sent; it returns the totals and the number of bad lines.
func (p *pipeline) close() (*aggregates.Sums, int64) {
	for _, w := range p.workers {
		close(w.parts)
	}
	<-p.built
	var bad int64
	totals := &aggregates.Sums{}
	for _, w := range p.workers {
		totals.Merge(&w.totals)
		bad += w.bad
	}
	return totals, bad
}

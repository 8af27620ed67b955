// Package reduce makes aggregates of rows: of files, as fast as they can be read, and of a stream, while it comes.
package reduce

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"cbt-plugins/companion/internal/aggregates"
)

// Options say whose rows they are and where the aggregates go.
type Options struct {
	Source aggregates.Source
	Offset int64   // the node's clock minus the head's, ns
	Block  int64   // resolution of counts, s
	Out    string  // path of the aggregates
	Keep   string  // stream only: also write the rows there; empty: do not
	Client *string // files only: the rows of this client of warp's; nil: all rows
	Beat   bool    // stream only: counts on stdout once a second
}

// ErrOutput means that aggregates or rows could not be written, ErrInput that a part of the input could not be read.
var (
	ErrOutput = errors.New("cannot write")
	ErrInput  = errors.New("cannot read")
)

// output writes frames one behind the other. After the first error it writes nothing more.
type output struct {
	mutex   sync.Mutex
	file    *os.File
	options *Options
	builder aggregates.Builder
	err     error
	failed  failure
}

// failure is the text of the first error of writing, for those who must not wait for a disk.
type failure struct{ text atomic.Pointer[string] }

func (f *failure) note(err error) {
	if err != nil {
		text := fmt.Errorf("%w: %w", ErrOutput, err).Error()
		f.text.CompareAndSwap(nil, &text)
	}
}

func (f *failure) String() string {
	if text := f.text.Load(); text != nil {
		return *text
	}
	return ""
}

func newOutput(o *Options) (*output, error) {
	file, err := os.Create(o.Out)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOutput, err)
	}
	return &output{file: file, options: o}, nil
}

// cells writes what the stores hold, and empties them.
func (w *output) counts(stores ...*aggregates.Store) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	full := stores[:0:0]
	for _, s := range stores {
		if !s.Empty() {
			full = append(full, s)
		}
	}
	if len(full) > 0 && w.err == nil {
		w.write(w.builder.Build(w.options.Source, full...))
	}
	for _, s := range full {
		s.Reset()
	}
}

func (w *output) write(f *aggregates.Frame) {
	data, err := f.Encode()
	if err == nil {
		_, err = w.file.Write(data)
	}
	if err != nil {
		w.err = fmt.Errorf("%w: %w", ErrOutput, err)
		w.failed.note(err)
	}
}

// end writes the last frame.
func (w *output) end(f *aggregates.Frame) error {
	if w.err == nil {
		w.write(f)
	}
	if err := w.file.Close(); err != nil && w.err == nil {
		w.err = fmt.Errorf("%w: %w", ErrOutput, err)
	}
	return w.err
}

package reduce

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/klauspost/compress/zstd"
)

// keeper writes rows as they came into a zstd file, which is readable up to the last second at any time.
type keeper struct {
	file   *os.File
	zstd   *zstd.Encoder
	err    error
	failed *failure
	data   chan kept
	done   chan struct{}
	free   chan<- []byte
}

// kept is what the keeper gets: rows, or without any, the order to flush.
type kept struct {
	rows  []byte
	reuse bool // the rows stand in a buffer that others wait for
}

// newKeeper creates the file. What was written goes to free, the first error to failed.
func newKeeper(path string, free chan<- []byte, failed *failure) (*keeper, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOutput, err)
	}
	packer, err := zstd.NewWriter(file, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(1<<20))
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	data, done := make(chan kept, cap(free)), make(chan struct{})
	return &keeper{file: file, zstd: packer, failed: failed, data: data, done: done, free: free}, nil
}

func (k *keeper) run() {
	defer close(k.done)
	flushed := time.Now()
	for data := range k.data {
		if k.err == nil {
			_, k.err = k.zstd.Write(data.rows)
		}
		if data.reuse {
			k.free <- data.rows[:cap(data.rows)]
		}
		// also without the ticks of the stream, which wait behind a slow disk
		if k.err == nil && (data.rows == nil || time.Since(flushed) > time.Second) {
			k.err = k.zstd.Flush()
			flushed = time.Now()
		}
		k.failed.note(k.err)
	}
}

// close writes the end of the file.
func (k *keeper) close() error {
	close(k.data)
	<-k.done
	if k.err == nil {
		k.err = k.zstd.Close()
	}
	if err := errors.Join(k.err, k.file.Close()); err != nil {
		return fmt.Errorf("%w: %w", ErrOutput, err)
	}
	return nil
}

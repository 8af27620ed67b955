package aggregates

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
)

// each calls work for every whole frame of a file; its bytes are good during the call. cut tells that the file has no end.
func each(path string, work func(f *Frame, raw []byte) error) (cut bool, err error) {
	file, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer file.Close()
	reader, cut := NewReader(bufio.NewReaderSize(file, 1<<16)), true
	for {
		raw, err := reader.NextRaw()
		if err == io.EOF || errors.Is(err, ErrTorn) {
			return cut, nil
		}
		if err != nil {
			return cut, fmt.Errorf("%s: %w", path, err)
		}
		f, err := Decode(raw)
		if err == nil {
			if f.Kind == KindEnd {
				cut = false
			}
			err = work(f, raw)
		}
		if err != nil {
			return cut, fmt.Errorf("%s: %w", path, err)
		}
	}
}

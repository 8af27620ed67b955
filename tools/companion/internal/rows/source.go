package rows

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Source reads one file. Damage in compressed data ends it, as a proper end would; Torn tells the two apart.
type Source struct {
	Torn string // why the end is missing; empty: it is there
	file *faulty
	from io.Reader
	zstd *zstd.Decoder
}

// Open opens a file; what it is, its first bytes tell.
func Open(path string) (*Source, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	s := &Source{file: &faulty{File: file}}
	buffered := bufio.NewReaderSize(s.file, 1<<18)
	magic, _ := buffered.Peek(4)
	if s.file.err != nil {
		file.Close()
		return nil, s.file.err
	}
	switch {
	case bytes.HasPrefix(magic, []byte("\x1f\x8b")):
		s.from = &members{from: buffered}
	case bytes.Equal(magic, []byte("\x28\xb5\x2f\xfd")):
		s.zstd, err = zstd.NewReader(buffered, zstd.WithDecoderConcurrency(2), zstd.WithDecoderLowmem(false))
		s.from = s.zstd
	default:
		s.from = buffered
	}
	return s, err
}

// Read gives io.EOF also at the place of a damage; other errors are those of the file.
func (s *Source) Read(p []byte) (int, error) {
	n, err := s.from.Read(p)
	switch {
	case err == nil || err == io.EOF:
	case s.file.err != nil:
		err = s.file.err
	default:
		s.Torn, err = s.reason(err), io.EOF
	}
	return n, err
}

func (s *Source) reason(err error) string {
	kind := "gzip"
	if s.zstd != nil {
		kind = "zstd"
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Sprintf("the %s stream has no end", kind)
	}
	return fmt.Sprintf("damaged %s data (%v)", kind, err)
}

// Close frees what the source holds.
func (s *Source) Close() error {
	if s.zstd != nil {
		s.zstd.Close()
	}
	return s.file.Close()
}

// faulty remembers an error of the file itself, which the decoders would mix up with damage.
type faulty struct {
	*os.File
	err error
}

func (f *faulty) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if err != nil && err != io.EOF {
		f.err = err
	}
	return n, err
}

// members reads gzip members that stand one behind the other, and zeros where a file system had no time to write.
type members struct {
	from   *bufio.Reader
	member *gzip.Reader
}

func (m *members) Read(p []byte) (int, error) {
	for {
		if m.member == nil {
			member, err := gzip.NewReader(m.from)
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			if err != nil {
				return 0, err
			}
			m.member = member
			m.member.Multistream(false)
		}
		n, err := m.member.Read(p)
		if n > 0 || err != nil && err != io.EOF {
			if err == io.EOF {
				err = nil
			}
			return n, err
		}
		if err == nil {
			continue
		}
		for {
			next, err := m.from.ReadByte()
			if err != nil {
				return 0, err
			}
			if next != 0 {
				m.from.UnreadByte()
				break
			}
		}
		err = m.member.Reset(m.from)
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return 0, err
		}
		m.member.Multistream(false)
	}
}

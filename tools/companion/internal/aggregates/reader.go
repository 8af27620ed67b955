package aggregates

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"

	"github.com/klauspost/compress/zlib"
)

// ErrTorn is the end of a file whose last frame is not whole: all before it counts.
var ErrTorn = errors.New("the last frame is torn")

// Reader reads the frames of one file.
type Reader struct {
	from io.Reader
	raw  []byte
}

// NewReader reads from r.
func NewReader(r io.Reader) *Reader { return &Reader{from: r} }

// Next reads a frame: io.EOF after the last one, ErrTorn when the file was cut off in the middle of one.
func (r *Reader) Next() (*Frame, error) {
	raw, err := r.NextRaw()
	if err != nil {
		return nil, err
	}
	return Decode(raw)
}

// NextRaw reads the bytes of a frame, which are good until the next call; its checksum is right.
func (r *Reader) NextRaw() ([]byte, error) {
	r.raw = append(r.raw[:0], make([]byte, prefix)...)
	n, err := io.ReadFull(r.from, r.raw)
	if err == io.EOF {
		return nil, io.EOF
	}
	if !bytes.HasPrefix([]byte(magic), r.raw[:min(n, len(magic))]) {
		return nil, fmt.Errorf("not an aggregates file: it has %q where a frame should begin", r.raw[:min(n, len(magic))])
	}
	if err == io.ErrUnexpectedEOF {
		return nil, ErrTorn
	}
	if err != nil {
		return nil, err
	}
	if r.raw[4] < oldest {
		return nil, fmt.Errorf("written by an older version of cbt-rows (file format %d; this program reads %d)", r.raw[4], Version)
	}
	if r.raw[4] > Version || r.raw[5] != packing {
		return nil, fmt.Errorf("a frame of version %d, packing %d; this program reads version %d", r.raw[4], r.raw[5], Version)
	}
	length := int64(binary.LittleEndian.Uint32(r.raw[6:]))
	grown := bytes.NewBuffer(r.raw)
	got, err := io.CopyN(grown, r.from, length)
	r.raw = grown.Bytes()
	if got < length && (err == io.EOF || err == io.ErrUnexpectedEOF) {
		return nil, ErrTorn
	}
	if err != nil {
		return nil, err
	}
	if crc32.ChecksumIEEE(r.raw[prefix:]) != binary.LittleEndian.Uint32(r.raw[10:]) {
		// a kill leaves a short frame, a crash of the machine may leave one with zeros in it: both only at the end
		if n, _ := io.ReadFull(r.from, make([]byte, 1)); n == 0 {
			return nil, ErrTorn
		}
		return nil, errors.New("a damaged frame: its checksum is wrong")
	}
	return r.raw, nil
}

// Decode reads a frame from its bytes.
func Decode(raw []byte) (*Frame, error) {
	if len(raw) < prefix {
		return nil, errors.New("a frame that is too short")
	}
	unpacked, err := zlib.NewReader(bytes.NewReader(raw[prefix:]))
	if err != nil {
		return nil, fmt.Errorf("a damaged frame: %w", err)
	}
	payload, err := io.ReadAll(io.LimitReader(unpacked, largest+1))
	if err != nil {
		return nil, fmt.Errorf("a damaged frame: %w", err)
	}
	if len(payload) > largest {
		return nil, errors.New("a damaged frame: it is too large")
	}
	return parse(payload)
}

func parse(payload []byte) (*Frame, error) {
	if len(payload) < 4 {
		return nil, errors.New("a frame without a header")
	}
	length := int64(binary.LittleEndian.Uint32(payload))
	if length > int64(len(payload)-4) {
		return nil, errors.New("a frame without a complete header")
	}
	f := &Frame{}
	if err := json.Unmarshal(payload[4:4+length], &f.Header); err != nil {
		return nil, fmt.Errorf("a frame with a damaged header: %w", err)
	}
	if f.Bits != bucketBits {
		return nil, fmt.Errorf("histograms of %d significant bits; this program reads %d", f.Bits, bucketBits)
	}
	rest := payload[4+length:]
	for _, def := range f.Tables {
		columns := make([][]byte, len(def.Columns))
		for i, column := range def.Columns {
			size := width(column[1])
			if size == 0 {
				return nil, fmt.Errorf("table %s: a column of type %q", def.Name, column[1])
			}
			if def.Rows < 0 || def.Rows > len(rest)/size {
				return nil, fmt.Errorf("table %s: not enough data", def.Name)
			}
			columns[i], rest = rest[:def.Rows*size], rest[def.Rows*size:]
		}
		f.Columns = append(f.Columns, columns)
	}
	if len(rest) > 0 {
		return nil, errors.New("a frame with more data than tables")
	}
	for _, total := range f.Totals {
		if total.Source < 0 || total.Source >= len(f.Sources) {
			return nil, errors.New("totals of a source that is not there")
		}
	}
	return f, nil
}

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

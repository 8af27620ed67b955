package aggregates

import (
	"encoding/binary"
	"hash/adler32"
	"sync"

	"github.com/klauspost/compress/flate"
)

// packer makes one zlib stream of parts that are compressed in different ways: each part is a run of deflate blocks of its
// own, which refers to no other.
type packer struct {
	out []byte
	sum uint32
	err error
	n   int
}

var (
	// for columns that repeat
	matching = sync.Pool{New: func() any { return writer(flate.BestSpeed) }}
	// for steps: which value comes next says nothing, only how often it comes
	entropy = sync.Pool{New: func() any { return writer(flate.HuffmanOnly) }}
)

func writer(level int) *flate.Writer {
	w, err := flate.NewWriter(nil, level)
	if err != nil {
		panic(err) // the level is a constant
	}
	return w
}

func newPacker(out []byte) *packer {
	return &packer{out: append(out, 0x78, 0x01), sum: 1}
}

func (p *packer) text(data []byte) { p.add(&matching, data) }

func (p *packer) column(name string, data []byte) {
	if name == "step" {
		p.add(&entropy, data)
	} else {
		p.add(&matching, data)
	}
}

func (p *packer) add(pool *sync.Pool, data []byte) {
	if len(data) == 0 || p.err != nil {
		return
	}
	w := pool.Get().(*flate.Writer)
	defer pool.Put(w)
	w.Reset(p)
	if _, p.err = w.Write(data); p.err == nil {
		p.err = w.Flush()
	}
	p.sum = combine(p.sum, adler32.Checksum(data), len(data))
}

// Write takes what the deflate writers make.
func (p *packer) Write(data []byte) (int, error) {
	p.out = append(p.out, data...)
	return len(data), nil
}

// finish ends the stream: an empty last block, and the checksum.
func (p *packer) finish() ([]byte, error) {
	p.out = append(p.out, 0x03, 0x00)
	return binary.BigEndian.AppendUint32(p.out, p.sum), p.err
}

// combine is the Adler-32 of two parts one behind the other.
func combine(first, second uint32, length int) uint32 {
	const base = 65521
	n := uint64(length % base)
	a1, b1, a2, b2 := uint64(first&0xffff), uint64(first>>16), uint64(second&0xffff), uint64(second>>16)
	a := (a1 + a2 + base - 1) % base
	b := (b1 + b2 + n*(a1+base-1)) % base
	return uint32(b<<16 | a)
}

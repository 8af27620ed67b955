package content

import (
	"crypto/sha256"
	"hash"
	"io"
	"sync"

	"cbt-plugins/companion/internal/s3"
)

var chunks = sync.Pool{New: func() any { return new([chunkLength]byte) }}

// Body is one object, or a part of it, as a PUT sends it. Set makes it another one; the zero value is empty.
type Body struct {
	object       object
	offset, size int64
	sum          [sha256.Size]byte
	summed       bool
	hash         hash.Hash
}

// Set makes it the object of this number; another generation is another content.
func (m *Maker) Set(b *Body, number, size int64, generation uint64) {
	b.object.set(m.key(number), size, m.zeros, generation)
	b.offset, b.size, b.summed = 0, size, false
}

// Size in bytes.
func (b *Body) Size() int64 { return b.size }

// Sum is its SHA-256, made once.
func (b *Body) Sum() [sha256.Size]byte {
	if !b.summed {
		if b.hash == nil {
			b.hash = sha256.New()
		}
		b.hash.Reset()
		b.WriteTo(b.hash)
		b.hash.Sum(b.sum[:0])
		b.summed = true
	}
	return b.sum
}

// WriteTo writes all of it.
func (b *Body) WriteTo(w io.Writer) (int64, error) {
	chunk := chunks.Get().(*[chunkLength]byte)
	defer chunks.Put(chunk)
	written := int64(0)
	for written < b.size {
		at := b.offset + written
		start := at / blockLength * blockLength
		end := min(b.offset+b.size, start+chunkLength)
		b.object.fill(chunk[:roundUp(end-start)], start)
		n, err := w.Write(chunk[at-start : end-start])
		written += int64(n)
		if err != nil {
			return written, err
		}
	}
	return written, nil
}

// Section is a part of it; what is beyond the end is left out.
func (b *Body) Section(offset, size int64) s3.Body {
	offset = min(max(offset, 0), b.size)
	return &Body{object: b.object, offset: b.offset + offset, size: min(max(size, 0), b.size-offset)}
}

func roundUp(length int64) int64 { return (length + 7) / 8 * 8 }

// Package content is what the objects hold: made from (seed, space, number, generation) alone, so that megabytes need no
// memory, and a reader can tell what it must find.
package content

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"

	"cbt-plugins/companion/internal/schedule"
)

// An object begins with 32 bytes, little endian: magic (4), CRC-32 (IEEE) of the 24 bytes that follow, hash of the key
// (8), length (6), zero bytes in every block (2), generation (8). A shorter object has as many of them as fit, with
// generation 0. All else is a stream of pseudo-random 8-byte words, each known from its place alone, but for the last
// `zeros` bytes of every block of 4096.
const (
	headerLength = 32
	blockLength  = 4096
	magic        = 0x48544243 // "CBTH"
	chunkLength  = 8 * blockLength
	increment    = 0xA0761D6478BD642F
	// of the increment, modulo 2^64
	twice    = 0x40EC3AC8F17AC85E
	thrice   = 0xE162582D6A382C8D
	fourfold = 0x81D87591E2F590BC
	secret   = 0xE7037ED1A0B428DB
)

// Maker makes the objects of one space.
type Maker struct {
	space uint64
	zeros int
}

// NewMaker: `compressible` is the share of every 4 KiB block that is zeros, 0 to 1.
func NewMaker(seed uint64, space string, compressible float64) *Maker {
	key := schedule.Mix64(seed)
	for i := 0; i < len(space); i++ {
		key = schedule.Mix64(key ^ uint64(space[i]))
	}
	return &Maker{space: key, zeros: int(min(max(compressible, 0), 1)*blockLength + 0.5)}
}

func (m *Maker) key(number int64) uint64 { return schedule.Mix64(m.space + uint64(number)) }

// object is one content, any part of which can be made at once.
type object struct {
	header [headerLength]byte
	stream uint64
	size   int64
	zeros  int
}

func (o *object) set(key uint64, size int64, zeros int, generation uint64) {
	if size < headerLength {
		generation = 0
	}
	o.size, o.zeros, o.stream = size, zeros, schedule.Mix64(key^schedule.Mix64(generation))
	h := o.header[:]
	binary.LittleEndian.PutUint32(h, magic)
	binary.LittleEndian.PutUint64(h[8:], key)
	binary.LittleEndian.PutUint64(h[16:], uint64(size)|uint64(zeros)<<48)
	binary.LittleEndian.PutUint64(h[24:], generation)
	binary.LittleEndian.PutUint32(h[4:], crc32.ChecksumIEEE(h[8:]))
}

// fill makes the bytes from `offset` on; offset is a multiple of the block, and the chunk may go beyond the size.
func (o *object) fill(into []byte, offset int64) {
	for at := 0; at < len(into); at += blockLength {
		block := into[at:min(at+blockLength, len(into))]
		random := min(blockLength-o.zeros, len(block))
		words(block[:(random+7)/8*8], o.stream+uint64(offset+int64(at))/8*increment)
		clear(block[random:])
	}
	if offset == 0 {
		copy(into, o.header[:min(o.size, headerLength)])
	}
}

// words is wyrand, whose state moves on by the same step each time.
func words(into []byte, state uint64) {
	for len(into) >= 32 {
		a, b, c, d := state+increment, state+twice, state+thrice, state+fourfold
		state = d
		ah, al := bits.Mul64(a, a^secret)
		bh, bl := bits.Mul64(b, b^secret)
		ch, cl := bits.Mul64(c, c^secret)
		dh, dl := bits.Mul64(d, d^secret)
		binary.LittleEndian.PutUint64(into, ah^al)
		binary.LittleEndian.PutUint64(into[8:], bh^bl)
		binary.LittleEndian.PutUint64(into[16:], ch^cl)
		binary.LittleEndian.PutUint64(into[24:], dh^dl)
		into = into[32:]
	}
	for len(into) >= 8 {
		state += increment
		h, l := bits.Mul64(state, state^secret)
		binary.LittleEndian.PutUint64(into, h^l)
		into = into[8:]
	}
}

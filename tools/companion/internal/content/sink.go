package content

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Sink compares what is read with what some PUT of this object has written: the object itself says which one, for nobody
// keeps the last generation of each number. Expect makes it ready for an object.
type Sink struct {
	key        uint64
	size       int64
	zeros      int
	got        int64
	headerSeen bool
	head       [headerLength]byte
	object     object
	chunk      [blockLength]byte // the block that `got` is in
	madeAt     int64             // its offset; -1: none
	mismatch   string
}

// Expect says which object is read next.
func (m *Maker) Expect(s *Sink, number, size int64) {
	s.key, s.size, s.zeros = m.key(number), size, m.zeros
	s.Again()
}

// Again is for an object that is read from its beginning once more.
func (s *Sink) Again() { s.got, s.headerSeen, s.madeAt, s.mismatch = 0, false, -1, "" }

// Write never fails: the rest of a wrong object is read all the same, or the connection would be lost.
func (s *Sink) Write(data []byte) (int, error) {
	n := len(data)
	if s.mismatch != "" || s.got+int64(n) > s.size {
		s.got += int64(n)
		return n, nil
	}
	if !s.headerSeen {
		data = s.header(data)
	}
	for len(data) > 0 && s.mismatch == "" {
		start := s.got / blockLength * blockLength
		if s.madeAt != start {
			s.object.fill(s.chunk[:roundUp(min(s.size-start, blockLength))], start)
			s.madeAt = start
		}
		at := s.got - start
		part := data[:min(int64(len(data)), blockLength-at)]
		if !bytes.Equal(part, s.chunk[at:at+int64(len(part))]) {
			s.mismatch = s.first(part, s.chunk[at:])
		}
		s.got += int64(len(part))
		data = data[len(part):]
	}
	return n, nil
}

// header gathers the first bytes, which say the generation, and compares them; what is left comes next.
func (s *Sink) header(data []byte) []byte {
	length := min(s.size, headerLength)
	taken := copy(s.head[s.got:length], data)
	s.got += int64(taken)
	if s.got < length {
		return nil
	}
	s.headerSeen = true
	generation := binary.LittleEndian.Uint64(s.head[24:])
	zeros := s.zeros
	if length == headerLength {
		switch {
		case binary.LittleEndian.Uint32(s.head[:]) != magic:
			s.mismatch = "not an object of cbt-load"
		case binary.LittleEndian.Uint32(s.head[4:]) != crc32.ChecksumIEEE(s.head[8:]):
			s.mismatch = "the header is damaged"
		case binary.LittleEndian.Uint64(s.head[8:]) != s.key:
			s.mismatch = "another object than the one asked for"
		}
		// as it was written, even if today's objects compress otherwise
		zeros = int(binary.LittleEndian.Uint16(s.head[22:]))
		if s.mismatch == "" && zeros > blockLength {
			s.mismatch = "the header is damaged"
		}
	}
	if s.mismatch != "" {
		return data[taken:]
	}
	s.object.set(s.key, s.size, zeros, generation)
	if !bytes.Equal(s.head[:length], s.object.header[:length]) {
		s.mismatch = fmt.Sprintf("it was written with %d bytes", binary.LittleEndian.Uint64(s.head[16:])&(1<<48-1))
		if length < headerLength {
			s.mismatch = "wrong content"
		}
	}
	return data[taken:]
}

func (s *Sink) first(got, want []byte) string {
	for i := range got {
		if got[i] != want[i] {
			return fmt.Sprintf("wrong byte at %d", s.got+int64(i))
		}
	}
	return "wrong content"
}

// Mismatch says what is wrong with an object that has been read, in one line; empty: nothing.
func (s *Sink) Mismatch() string {
	if s.got != s.size {
		return fmt.Sprintf("%d bytes instead of %d", s.got, s.size)
	}
	return s.mismatch
}

package content

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"testing"
)

func made(b *Body) []byte {
	var all bytes.Buffer
	b.WriteTo(&all)
	return all.Bytes()
}

var lengths = []int64{0, 1, 7, 8, 31, 32, 33, 100, 4095, 4096, 4097, 32768, 32769, 100000}

func TestWhatIsWrittenIsFoundGood(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, compressible := range []float64{0, 0.5, 0.3333, 1} {
		maker := NewMaker(3, "space", compressible)
		for _, size := range lengths {
			var body Body
			var sink Sink
			maker.Set(&body, 17, size, 42)
			data := made(&body)
			if int64(len(data)) != size || body.Size() != size || sha256.Sum256(data) != body.Sum() {
				t.Fatalf("%d bytes for %d, or the wrong sum", len(data), size)
			}
			maker.Expect(&sink, 17, size)
			for rest := data; len(rest) > 0; {
				n := min(1+random.IntN(5000), len(rest))
				sink.Write(rest[:n])
				rest = rest[n:]
			}
			if mismatch := sink.Mismatch(); mismatch != "" {
				t.Fatalf("compressible %v, %d bytes: %s", compressible, size, mismatch)
			}
		}
	}
}

func TestEveryWrongByteIsFound(t *testing.T) {
	maker := NewMaker(3, "space", 0.25)
	for _, size := range lengths {
		var body Body
		var sink Sink
		maker.Set(&body, 17, size, 42)
		data := made(&body)
		for at := 0; at < len(data); at += 1 + at/10 {
			data[at] ^= 0x10
			maker.Expect(&sink, 17, size)
			sink.Write(data)
			if sink.Mismatch() == "" {
				t.Fatalf("%d bytes: byte %d changed and not found", size, at)
			}
			data[at] ^= 0x10
		}
		for _, wrong := range [][]byte{append(data[:len(data):len(data)], 0), data[:max(len(data)-1, 0)]} {
			maker.Expect(&sink, 17, size)
			sink.Write(wrong)
			if len(wrong) != len(data) && sink.Mismatch() == "" {
				t.Fatalf("%d bytes instead of %d and not found", len(wrong), size)
			}
		}
	}
}

func TestAnotherObjectIsFound(t *testing.T) {
	maker, other := NewMaker(3, "space", 0), NewMaker(3, "spacf", 0)
	for _, size := range []int64{20, 5000} {
		for name, expect := range map[string]func(*Sink){
			"number": func(s *Sink) { maker.Expect(s, 18, size) },
			"space":  func(s *Sink) { other.Expect(s, 17, size) },
		} {
			var body Body
			var sink Sink
			maker.Set(&body, 17, size, 42)
			expect(&sink)
			body.WriteTo(&sink)
			if sink.Mismatch() == "" {
				t.Errorf("%d bytes of another %s and not found", size, name)
			}
		}
	}
}

func TestGenerationsDiffer(t *testing.T) {
	maker := NewMaker(3, "space", 0)
	var a, b Body
	maker.Set(&a, 17, 4096, 1)
	maker.Set(&b, 17, 4096, 2)
	if bytes.Equal(made(&a)[32:], made(&b)[32:]) {
		t.Fatal("the same content")
	}
}

func TestSectionsAreThePartsOfTheWhole(t *testing.T) {
	maker := NewMaker(3, "space", 0.5)
	var body Body
	maker.Set(&body, 1, 100000, 7)
	whole := made(&body)
	for _, part := range []int64{1000, 4096, 33333, 100000, 200000} {
		var all []byte
		for at := int64(0); at < body.Size(); at += part {
			section := body.Section(at, part).(*Body)
			data := made(section)
			if int64(len(data)) != section.Size() || section.Sum() != sha256.Sum256(data) {
				t.Fatal("a section is not what it says")
			}
			inner := made(section.Section(10, 50).(*Body))
			if !bytes.Equal(inner, data[min(10, len(data)):min(60, len(data))]) {
				t.Fatal("a section of a section")
			}
			all = append(all, data...)
		}
		if !bytes.Equal(all, whole) {
			t.Fatalf("parts of %d are not the whole", part)
		}
	}
	if body.Section(500000, 10).Size() != 0 || body.Section(-5, 10).Size() != 10 {
		t.Fatal("a section out of range")
	}
}

func TestCompressibleShareIsZeros(t *testing.T) {
	maker := NewMaker(3, "space", 0.25)
	var body Body
	maker.Set(&body, 1, 4096*10, 7)
	data := made(&body)
	for block := range 10 {
		one := data[block*4096 : (block+1)*4096]
		if !bytes.Equal(one[3072:], make([]byte, 1024)) || bytes.Count(one[:3072], []byte{0}) > 100 {
			t.Fatalf("block %d", block)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	maker := NewMaker(3, "space", 0)
	var body Body
	maker.Set(&body, 1, 1<<20, 7)
	b.SetBytes(1 << 20)
	for b.Loop() {
		body.WriteTo(io.Discard)
	}
}

func BenchmarkVerify(b *testing.B) {
	maker := NewMaker(3, "space", 0)
	var body Body
	var sink Sink
	maker.Set(&body, 1, 1<<20, 7)
	data := made(&body)
	b.SetBytes(1 << 20)
	for b.Loop() {
		maker.Expect(&sink, 1, 1<<20)
		sink.Write(data)
		if sink.Mismatch() != "" {
			b.Fatal(sink.Mismatch())
		}
	}
}

// A header may be well made and say what cannot be.
func TestAHeaderThatLiesIsFound(t *testing.T) {
	maker := NewMaker(3, "space", 0)
	for _, wrong := range []uint64{5000 | 4097<<48, 5000 | 65535<<48, 4999} {
		var body Body
		var sink Sink
		maker.Set(&body, 17, 5000, 42)
		data := made(&body)
		binary.LittleEndian.PutUint64(data[16:], wrong)
		binary.LittleEndian.PutUint32(data[4:], crc32.ChecksumIEEE(data[8:headerLength]))
		maker.Expect(&sink, 17, 5000)
		sink.Write(data)
		if sink.Mismatch() == "" {
			t.Errorf("%x and not found", wrong)
		}
	}
}

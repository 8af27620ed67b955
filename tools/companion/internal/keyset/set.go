// Package keyset is a set of object numbers 1, 2, ...: a bitmap with a count for each block of it, so that the k-th
// number of 100 million is found in microseconds.
package keyset

import "math/bits"

// Max is the largest number that a Set takes: keys with more than ten digits are not in the order of their numbers.
const Max = int64(9999999999)

const (
	perBlock = 4096
	words    = perBlock / 64
)

type block [words]uint64

// Set is a set of numbers from 1 to Max. The zero value is empty. It is not safe for concurrent use.
type Set struct {
	blocks []*block // nil: nothing in it
	tree   []int64  // Fenwick tree over the blocks' counts, from 1; as long as a power of two, plus one
	count  int64
}

// Len is how many numbers there are.
func (s *Set) Len() int64 { return s.count }

// Has tells whether the number is there.
func (s *Set) Has(number int64) bool {
	b, word, bit := place(number)
	return number > 0 && b < len(s.blocks) && s.blocks[b] != nil && s.blocks[b][word]&bit != 0
}

// Add puts a number in and tells whether it was new. What is not from 1 to Max is left out.
func (s *Set) Add(number int64) bool {
	if number < 1 || number > Max {
		return false
	}
	b, word, bit := place(number)
	s.grow(b + 1)
	if s.blocks[b] == nil {
		s.blocks[b] = new(block)
	}
	if s.blocks[b][word]&bit != 0 {
		return false
	}
	s.blocks[b][word] |= bit
	s.shift(b, 1)
	return true
}

// Remove takes a number out and tells whether it was there.
func (s *Set) Remove(number int64) bool {
	if !s.Has(number) {
		return false
	}
	b, word, bit := place(number)
	s.blocks[b][word] &^= bit
	s.shift(b, -1)
	return true
}

// Fill puts all of 1..last in, quickly.
func (s *Set) Fill(last int64) {
	if last = min(last, Max); last < 1 {
		return
	}
	s.grow(int((last-1)/perBlock) + 1)
	for b := range s.blocks {
		first := int64(b)*perBlock + 1
		if first > last {
			break
		}
		if s.blocks[b] == nil {
			s.blocks[b] = new(block)
		}
		for word := range s.blocks[b] {
			left := last - first - int64(word)*64 + 1
			if left >= 64 {
				s.blocks[b][word] = ^uint64(0)
			} else if left > 0 {
				s.blocks[b][word] |= uint64(1)<<left - 1
			}
		}
	}
	s.recount()
}

// Rank is how many numbers there are from 1 to `number`.
func (s *Set) Rank(number int64) int64 {
	if number < 1 {
		return 0
	}
	b, word, bit := place(number)
	if b >= len(s.blocks) {
		return s.count
	}
	rank := int64(0)
	for i := b; i > 0; i &= i - 1 {
		rank += s.tree[i]
	}
	if data := s.blocks[b]; data != nil {
		for _, w := range data[:word] {
			rank += int64(bits.OnesCount64(w))
		}
		rank += int64(bits.OnesCount64(data[word] & (bit | (bit - 1))))
	}
	return rank
}

// Select is the k-th number, k from 1 to Len(); 0 when there is none.
func (s *Set) Select(k int64) int64 {
	if k < 1 || k > s.count {
		return 0
	}
	b := 0
	for step := (len(s.tree) - 1); step > 0; step >>= 1 {
		if next := b + step; next < len(s.tree) && s.tree[next] < k {
			b, k = next, k-s.tree[next]
		}
	}
	for word, w := range s.blocks[b] {
		n := int64(bits.OnesCount64(w))
		if n < k {
			k -= n
			continue
		}
		for ; k > 1; k-- {
			w &= w - 1
		}
		return int64(b)*perBlock + int64(word)*64 + int64(bits.TrailingZeros64(w)) + 1
	}
	return 0 // not reached: the counts are the bitmap's
}

// Next is the smallest number that is there and not below `number`; 0 when there is none.
func (s *Set) Next(number int64) int64 {
	number = max(number, 1)
	if number > Max {
		return 0
	}
	b, word, bit := place(number)
	if b >= len(s.blocks) {
		return 0
	}
	if data := s.blocks[b]; data != nil {
		mask := ^(bit - 1)
		for ; word < words; word++ {
			if w := data[word] & mask; w != 0 {
				return int64(b)*perBlock + int64(word)*64 + int64(bits.TrailingZeros64(w)) + 1
			}
			mask = ^uint64(0)
		}
	}
	return s.Select(s.Rank(int64(b+1)*perBlock) + 1)
}

// NotIn is how many of its numbers another set has not.
func (s *Set) NotIn(other *Set) int64 {
	n := 0
	for b, data := range s.blocks {
		if data == nil {
			continue
		}
		var others block
		if b < len(other.blocks) && other.blocks[b] != nil {
			others = *other.blocks[b]
		}
		for word, w := range data {
			n += bits.OnesCount64(w &^ others[word])
		}
	}
	return int64(n)
}

// Last is the greatest number that is there; 0 when there is none.
func (s *Set) Last() int64 { return s.Select(s.count) }

func place(number int64) (b, word int, bit uint64) {
	at := uint64(number - 1)
	return int(at / perBlock), int(at / 64 % words), 1 << (at % 64)
}

func (s *Set) grow(blocks int) {
	if blocks <= len(s.blocks) {
		return
	}
	s.blocks = append(s.blocks, make([]*block, blocks-len(s.blocks))...)
	if size := len(s.tree) - 1; size < blocks {
		size = max(size, 1)
		for size < blocks {
			size *= 2
		}
		s.tree = make([]int64, size+1)
		s.recount()
	}
}

// recount makes the counts from the bitmap.
func (s *Set) recount() {
	clear(s.tree)
	s.count = 0
	for b, data := range s.blocks {
		if data != nil {
			n := 0
			for _, w := range data {
				n += bits.OnesCount64(w)
			}
			s.tree[b+1] = int64(n)
			s.count += int64(n)
		}
	}
	for i := range s.tree {
		if parent := i + i&-i; i > 0 && parent < len(s.tree) {
			s.tree[parent] += s.tree[i]
		}
	}
}

func (s *Set) shift(b int, by int64) {
	s.count += by
	for i := b + 1; i < len(s.tree); i += i & -i {
		s.tree[i] += by
	}
}

package rowtext

import (
	"encoding/binary"
	"math/bits"
)

const (
	zeros = 0x3030303030303030 // "00000000"
	high  = 0x8080808080808080
)

// Room is how many bytes must follow the text of a block: zeros, so that words may be loaded anywhere and searches end.
const Room = 64

// notDigits marks the bytes of a word, xored with zeros, that are no digits; the lowest mark is right, others may not be.
func notDigits(word uint64) uint64 {
	return (word | (word + 0x7676767676767676)) & high
}

// eight is the number of eight digits, the first one lowest.
func eight(word uint64) int64 {
	word = word*10 + word>>8
	const mask, first, last = 0x000000FF000000FF, 0x000F424000000064, 0x0000271000000001
	return int64(((word&mask)*first + (word>>16&mask)*last) >> 32)
}

// control is the place of the first byte below space, from b[i] on. The zeros behind a block end the search.
func control(b []byte, i int) int {
	for {
		word := binary.LittleEndian.Uint64(b[i:])
		if found := (word - 0x2020202020202020) & ^word & high; found != 0 {
			return i + bits.TrailingZeros64(found)>>3
		}
		i += 8
	}
}

// number reads the digits at b[i], at most 18; the place behind them is i when there are none, -1 when there are too many.
func number(b []byte, i int) (int64, int) {
	word := binary.LittleEndian.Uint64(b[i:]) ^ zeros
	if other := notDigits(word); other != 0 {
		n := bits.TrailingZeros64(other) >> 3
		return eight(word << (64 - 8*n)), i + n
	}
	v, begin := eight(word), i
	for i += 8; b[i]-'0' <= 9; i++ {
		if i-begin >= 18 {
			return 0, -1
		}
		v = v*10 + int64(b[i]-'0')
	}
	return v, i
}

package rowtext

import (
	"encoding/binary"
	"math/bits"
	"time"
)

const (
	second = int64(time.Second)
	// what a time of day can be in int64 nanoseconds since the epoch
	latest = 9_200_000_000
	// so many bytes of a buffer must follow the place where a time begins
	timeRoom = 40
)

var scale = [...]int64{1e9, 1e8, 1e7, 1e6, 1e5, 1e4, 1e3, 1e2, 1e1}

// clock reads RFC 3339 times. It remembers the last minute: neighbours share it, and the calendar is the costly part.
type clock struct {
	high, low uint64 // "2026-11-21T07:10", as two words
	minute    int64  // ns since the epoch, were it UTC
}

// at reads the time that begins at b[i], "2026-11-21T07:10:47.14016431Z" or with a zone; b must go on for timeRoom bytes.
// It returns nanoseconds since the epoch and the place behind the time, -1 when there is none.
func (c *clock) at(b []byte, i int) (int64, int) {
	s := b[i : i+timeRoom : i+timeRoom]
	if binary.LittleEndian.Uint64(s) != c.high || binary.LittleEndian.Uint64(s[8:]) != c.low || s[16] != ':' {
		if !c.learn(s) {
			return 0, -1
		}
	}
	tens, ones := s[17]-'0', s[18]-'0'
	if tens > 5 || ones > 9 {
		return 0, -1
	}
	ns := c.minute + (int64(tens)*10+int64(ones))*second
	k := 19
	if s[19] == '.' {
		word := binary.LittleEndian.Uint64(s[20:]) ^ zeros
		if other := notDigits(word); other != 0 {
			n := bits.TrailingZeros64(other) >> 3
			ns += eight(word<<(64-8*n)) * scale[n]
			k = 20 + n
		} else {
			ns += eight(word) * 10
			if k = 28; s[28]-'0' <= 9 {
				ns += int64(s[28] - '0')
				for k = 29; k < 33 && s[k]-'0' <= 9; k++ { // finer than a nanosecond
				}
			}
		}
	}
	if s[k] == 'Z' {
		return ns, i + k + 1
	}
	return zoned(s, ns, i, k)
}

// zoned is the end of at for times like ...+02:00, whose zone begins at s[k].
func zoned(s []byte, ns int64, i, k int) (int64, int) {
	h1, h0, m1, m0 := s[k+1]-'0', s[k+2]-'0', s[k+4]-'0', s[k+5]-'0'
	if s[k] != '+' && s[k] != '-' || s[k+3] != ':' || h1 > 2 || h0 > 9 || h1 == 2 && h0 > 3 || m1 > 5 || m0 > 9 {
		return 0, -1
	}
	ahead := ((int64(h1)*10+int64(h0))*60 + int64(m1)*10 + int64(m0)) * 60 * second
	if s[k] == '+' {
		ahead = -ahead
	}
	return ns + ahead, i + k + 6
}

// learn takes over another minute.
func (c *clock) learn(s []byte) bool {
	at, err := time.Parse("2006-01-02T15:04:05", string(s[:17])+"00")
	if err != nil || at.Unix() < 0 || at.Unix() > latest {
		return false
	}
	c.high, c.low = binary.LittleEndian.Uint64(s), binary.LittleEndian.Uint64(s[8:])
	c.minute = at.Unix() * second
	return true
}

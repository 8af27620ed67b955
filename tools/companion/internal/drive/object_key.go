package drive

import (
	"strconv"
	"unsafe"

	"cbt-plugins/companion/internal/keyset"
)

// appendKey adds the key of a number: the prefix and at least ten digits.
func appendKey(to []byte, prefix string, number int64) []byte {
	to = append(to, prefix...)
	for limit := int64(1e9); limit > number && limit > 1; limit /= 10 {
		to = append(to, '0')
	}
	return strconv.AppendInt(to, number, 10)
}

// numberOf is the number of a key; 0 when it is not one of ours.
func numberOf(key, prefix string) int64 {
	if len(key) < len(prefix)+10 || key[:len(prefix)] != prefix {
		return 0
	}
	number := int64(0)
	for _, c := range []byte(key[len(prefix):]) {
		if c < '0' || c > '9' || number > keyset.Max {
			return 0
		}
		number = number*10 + int64(c-'0')
	}
	if number > keyset.Max || string(appendKey(nil, prefix, number)) != key {
		return 0
	}
	return number
}

// keyOf needs no new memory: a key is the request's until Do returns.
func (w *worker) keyOf(prefix string, number int64) string {
	w.key = appendKey(w.key[:0], prefix, number)
	return unsafe.String(unsafe.SliceData(w.key), len(w.key))
}

package drive

import (
	"unsafe"

	"cbt-plugins/companion/internal/s3"
)

// names are the keys that a LIST has found, one after the other in one piece of memory, and what it has said of each.
type names struct {
	text    []byte
	ends    []uint64 // in text
	objects []s3.Expected
}

func (n *names) len() int64 { return int64(len(n.ends)) }

func (n *names) add(key string, object s3.Expected) {
	n.text = append(n.text, key...)
	n.ends = append(n.ends, uint64(len(n.text)))
	n.objects = append(n.objects, object)
}

// at is the key with this number, from 1. It stays as it is: nothing is added once the run begins.
func (n *names) at(number int64) string {
	begin := uint64(0)
	if number > 1 {
		begin = n.ends[number-2]
	}
	part := n.text[begin:n.ends[number-1]]
	return unsafe.String(unsafe.SliceData(part), len(part))
}

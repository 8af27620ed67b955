package drive

import "unsafe"

// names are the keys that a LIST has found, one after the other in one piece of memory.
type names struct {
	prefix string
	text   []byte
	ends   []uint64 // in text
}

func (n *names) len() int64 { return int64(len(n.ends)) }

func (n *names) add(key string) {
	n.text = append(n.text, key...)
	n.ends = append(n.ends, uint64(len(n.text)))
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

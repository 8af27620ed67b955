package drive

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"cbt-plugins/companion/internal/s3"
)

// names are the keys that a LIST has found, one after the other in one piece of memory, and what it has said of each.
type names struct {
	text    []byte
	ends    []uint64 // in text
	objects []s3.Expected
	relists sync.Map     // number -> *relist: objects that were listed again
	changed atomic.Int64 // of these: the ones that the second LIST has shown as another object
}

// relist is the second LIST of one object.
type relist struct {
	once   sync.Once
	object atomic.Pointer[s3.Expected] // nil: the second LIST has shown nothing new
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

// expected is what the newest LIST has said of the object with this number.
func (n *names) expected(number int64) s3.Expected {
	if n.changed.Load() > 0 {
		if again, ok := n.relists.Load(number); ok {
			if object := again.(*relist).object.Load(); object != nil {
				return *object
			}
		}
	}
	return n.objects[number-1]
}

// changedByOthers lists the object of a request again, once in a run, and tells whether the listing has another object
// now than the request expected. A HEAD would not do: a server that has lost a part of an object, or has an older one,
// says so in both GET and HEAD.
func (w *worker) changedByOthers() bool {
	c, r := &w.choice, &w.request
	if c.space.numbered() {
		return false
	}
	n := c.space.names
	entry, _ := n.relists.LoadOrStore(c.number, &relist{})
	again := entry.(*relist)
	again.once.Do(func() {
		ask := s3.Request{Op: s3.List, Bucket: r.Bucket, Key: r.Key, MaxKeys: 1, WantKeys: true, Until: r.Until}
		var result s3.Result
		w.e.client.Do(&ask, &result)
		if result.Kind != "" || len(result.Keys) != 1 || result.Keys[0] != r.Key {
			return
		}
		object := s3.Expected{Sized: true, Size: result.Sizes[0], ETag: result.ETags[0]}
		if object != n.objects[c.number-1] {
			again.object.Store(&object)
			n.changed.Add(1)
		}
	})
	object := again.object.Load()
	return object != nil && *object != r.Expected
}

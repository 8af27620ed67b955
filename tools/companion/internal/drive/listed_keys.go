package drive

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"cbt-plugins/companion/internal/s3"
)

// listedKeys are the keys that a LIST has found, one after the other in one piece of memory, and what it has said of each.
type listedKeys struct {
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

func (k *listedKeys) len() int64 { return int64(len(k.ends)) }

func (k *listedKeys) add(key string, object s3.Expected) {
	k.text = append(k.text, key...)
	k.ends = append(k.ends, uint64(len(k.text)))
	k.objects = append(k.objects, object)
}

// at is the key with this number, from 1. It stays as it is: nothing is added once the run begins.
func (k *listedKeys) at(number int64) string {
	begin := uint64(0)
	if number > 1 {
		begin = k.ends[number-2]
	}
	part := k.text[begin:k.ends[number-1]]
	return unsafe.String(unsafe.SliceData(part), len(part))
}

// expected is what the newest LIST has said of the object with this number.
func (k *listedKeys) expected(number int64) s3.Expected {
	if k.changed.Load() > 0 {
		if again, ok := k.relists.Load(number); ok {
			if object := again.(*relist).object.Load(); object != nil {
				return *object
			}
		}
	}
	return k.objects[number-1]
}

// changedByOthers lists the object of a request again, once in a run, and tells whether the listing has another object
// now than the request expected. A HEAD would not do: a server that has lost a part of an object, or has an older one,
// says so in both GET and HEAD.
func (w *worker) changedByOthers() bool {
	c, r := &w.choice, &w.request
	if c.space.numbered() {
		return false
	}
	listed := c.space.listed
	entry, _ := listed.relists.LoadOrStore(c.number, &relist{})
	again := entry.(*relist)
	again.once.Do(func() {
		ask := s3.Request{Op: s3.List, Bucket: r.Bucket, Key: r.Key, MaxKeys: 1, WantKeys: true, Until: r.Until}
		var result s3.Result
		w.e.client.Do(&ask, &result)
		if result.Kind != "" || len(result.Keys) != 1 || result.Keys[0] != r.Key {
			return
		}
		object := s3.Expected{Sized: true, Size: result.Sizes[0], ETag: result.ETags[0]}
		if object != listed.objects[c.number-1] {
			again.object.Store(&object)
			listed.changed.Add(1)
		}
	})
	object := again.object.Load()
	return object != nil && *object != r.Expected
}

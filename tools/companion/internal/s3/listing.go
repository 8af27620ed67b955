package s3

import (
	"bytes"
	"hash/maphash"
	"html"
	"net/url"
	"strconv"
)

// longestText is the longest text of an element that a listing may have: keys have at most 1024 bytes, 3 each when encoded.
const longestText = 16 << 10

// PageKeys is the most keys of a page of a listing that S3 gives, and what it gives where a request says no number.
const PageKeys = 1000

const (
	keyListed  = 8 << 10 // bytes of a key in a listing, with all that is said of it
	errListing = nonsense("a listing that is none")
	errKeys    = nonsense("a listing of more keys than were asked for")
	errEndless = nonsense("a listing without an end")
	errOrder   = nonsense("a listing of keys that were not asked for, or in no order")
	errEmpty   = nonsense("a listing of nothing that says that there is more")
	errMissing = nonsense("a listing without an object that exists")

	largestObject = 10_000 * 5 << 30 // bytes: the most parts of the largest size
)

// listing reads the answer to a LIST as it comes, in pieces that may end anywhere. It knows as much XML as such an
// answer has: elements without attributes worth knowing, entities, no comments or CDATA.
type listing struct {
	keep      bool // give the keys, sizes and ETags
	keys      []string
	sizes     []int64
	etags     []uint64
	prefix    string
	after     string
	exists    string // a key that is after `after`; empty: none is known
	raw       []byte // all keys, as they came
	ends      []int  // of each of them in raw
	most      int64  // keys that were asked for
	left      int64  // bytes that may still come
	count     int64
	truncated bool
	encoded   bool // the keys are in percent-encoding
	complete  bool // the end has been seen

	entry int // 1 within <Contents>, deeper in its children's children
	inTag bool
	tag   []byte
	text  []byte
}

// reset makes it ready for the answer to a request; the result's slices are filled.
func (l *listing) reset(r *Request, result *Result) {
	most := int64(r.MaxKeys)
	if most <= 0 {
		most = PageKeys
	}
	*l = listing{keep: r.WantKeys, keys: result.Keys[:0], sizes: result.Sizes[:0], etags: result.ETags[:0], prefix: r.Key,
		after: r.StartAfter, exists: r.Exists, most: most, left: (most + 8) * keyListed, raw: l.raw[:0], ends: l.ends[:0], tag: l.tag[:0], text: l.text[:0]}
}

func (l *listing) Write(piece []byte) (int, error) {
	size := len(piece)
	if l.left -= int64(size); l.left < 0 {
		return 0, errEndless
	}
	for len(piece) > 0 {
		mark, into := byte('<'), &l.text
		if l.inTag {
			mark, into = '>', &l.tag
		}
		end := bytes.IndexByte(piece, mark)
		part := piece
		if end >= 0 {
			part = piece[:end]
		}
		if len(*into)+len(part) > longestText {
			return 0, errListing
		}
		*into = append(*into, part...)
		if end < 0 {
			break
		}
		piece = piece[end+1:]
		if l.inTag {
			if err := l.element(); err != nil {
				return 0, err
			}
			l.text = l.text[:0]
		}
		l.tag = l.tag[:0]
		l.inTag = !l.inTag
	}
	return size, nil
}

// element takes a tag that is complete, and the text before it.
func (l *listing) element() error {
	name := l.tag
	if len(name) == 0 || name[len(name)-1] == '/' || name[0] == '?' || name[0] == '!' {
		return nil
	}
	if name[0] != '/' {
		if l.entry > 0 || string(name) == "Contents" {
			l.entry++
		}
		return nil
	}
	name = name[1:]
	switch {
	case l.entry == 2 && string(name) == "Key":
		if l.count++; l.count > l.most {
			return errKeys
		}
		l.raw = append(l.raw, l.text...)
		l.ends = append(l.ends, len(l.raw))
	case l.entry == 2 && string(name) == "Size" && l.keep:
		size, err := strconv.ParseInt(string(l.text), 10, 64)
		if err != nil || size < 0 || size > largestObject {
			return errListing
		}
		l.sizes = append(l.sizes, size)
	case l.entry == 2 && string(name) == "ETag" && l.keep:
		l.etags = append(l.etags, Fingerprint([]byte(html.UnescapeString(string(l.text)))))
	case l.entry == 1 && l.keep && (len(l.sizes) != len(l.ends) || len(l.etags) > len(l.ends)):
		return errListing
	case l.entry == 1 && l.keep && len(l.etags) < len(l.ends):
		l.etags = append(l.etags, 0)
	case l.entry == 0 && string(name) == "IsTruncated":
		l.truncated = string(l.text) == "true"
	case l.entry == 0 && string(name) == "EncodingType":
		l.encoded = string(l.text) == "url"
	case l.entry == 0 && string(name) == "ListBucketResult":
		l.complete = true
	}
	if l.entry > 0 {
		l.entry--
	}
	return nil
}

// finish looks at the keys, and decodes them; an error means that it was no listing, or not the one that was asked for.
func (l *listing) finish() error {
	switch {
	case !l.complete:
		return errListing
	case l.truncated && l.count == 0:
		return errEmpty
	}
	missing := l.exists != "" // all keys are after it, or there are none
	begin, last, prefix := 0, []byte(l.after), []byte(l.prefix)
	for _, end := range l.ends {
		key, err := l.decoded(l.raw[begin:end])
		if err != nil {
			return errListing
		}
		// listings are in the order of their bytes
		if bytes.Compare(key, last) <= 0 || !bytes.HasPrefix(key, prefix) {
			return errOrder
		}
		missing = missing && string(key) > l.exists
		if l.keep {
			l.keys = append(l.keys, string(key))
		}
		begin, last = end, key
	}
	if missing {
		return errMissing
	}
	return nil
}

// decoded returns a key without its encodings; most have none.
func (l *listing) decoded(raw []byte) ([]byte, error) {
	if bytes.IndexByte(raw, '&') >= 0 {
		raw = []byte(html.UnescapeString(string(raw)))
	}
	if !l.encoded || !bytes.ContainsAny(raw, "%+") {
		return raw, nil
	}
	key, err := url.QueryUnescape(string(raw))
	return []byte(key), err
}

var fingerprints = maphash.MakeSeed()

// Fingerprint stands for an ETag, with or without its quotes, as long as this process lives; 0: there is none.
func Fingerprint(etag []byte) uint64 {
	if etag = bytes.Trim(etag, `"`); len(etag) == 0 {
		return 0
	}
	return max(maphash.Bytes(fingerprints, etag), 1)
}

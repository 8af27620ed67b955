package s3

import (
	"bytes"
	"hash/maphash"
	"html"
	"net/url"
	"strconv"
	"strings"
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
)

// listing reads the answer to a LIST as it comes, in pieces that may end anywhere. It knows as much XML as such an
// answer has: elements without attributes worth knowing, entities, no comments or CDATA.
type listing struct {
	keep      bool // collect the keys
	keys      []string
	sizes     []int64
	etags     []uint64
	prefix    string
	after     string
	first     []byte // key, as it came
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
		after: r.StartAfter, most: most, left: (most + 8) * keyListed, first: l.first[:0], tag: l.tag[:0], text: l.text[:0]}
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
		if l.count == 1 {
			l.first = append(l.first, l.text...)
		}
		if l.keep {
			l.keys = append(l.keys, html.UnescapeString(string(l.text)))
		}
	case l.entry == 2 && string(name) == "Size" && l.keep:
		size, err := strconv.ParseInt(string(l.text), 10, 64)
		if err != nil {
			return errListing
		}
		l.sizes = append(l.sizes, size)
	case l.entry == 2 && string(name) == "ETag" && l.keep:
		l.etags = append(l.etags, Fingerprint([]byte(html.UnescapeString(string(l.text)))))
	case l.entry == 1 && l.keep && (len(l.sizes) != len(l.keys) || len(l.etags) > len(l.keys)):
		return errListing
	case l.entry == 1 && l.keep && len(l.etags) < len(l.keys):
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

// finish decodes the keys; an error means that it was no listing, or not the one that was asked for.
func (l *listing) finish() error {
	switch {
	case !l.complete:
		return errListing
	case l.keep && l.truncated && l.count == 0:
		return errEmpty
	case !l.keep && l.count > 0:
		first, err := l.decoded(html.UnescapeString(string(l.first)))
		if err != nil || !l.follows(first, l.after) {
			return errOrder
		}
	}
	last := l.after
	for i, key := range l.keys {
		decoded, err := l.decoded(key)
		if err != nil {
			return errListing
		}
		if !l.follows(decoded, last) {
			return errOrder
		}
		l.keys[i], last = decoded, decoded
	}
	return nil
}

func (l *listing) decoded(key string) (string, error) {
	if !l.encoded {
		return key, nil
	}
	return url.QueryUnescape(key)
}

// follows tells whether a key may come after another one: listings are in the order of their bytes.
func (l *listing) follows(key, last string) bool {
	return key > last && strings.HasPrefix(key, l.prefix)
}

var fingerprints = maphash.MakeSeed()

// Fingerprint stands for an ETag, with or without its quotes, as long as this process lives; 0: there is none.
func Fingerprint(etag []byte) uint64 {
	if etag = bytes.Trim(etag, `"`); len(etag) == 0 {
		return 0
	}
	return max(maphash.Bytes(fingerprints, etag), 1)
}

package s3

import (
	"bytes"
	"errors"
	"html"
	"net/url"
	"strconv"
)

// longestText is the longest text of an element that a listing may have: keys have at most 1024 bytes, 3 each when encoded.
const longestText = 16 << 10

var errListing = errors.New("a listing that is none")

// listing reads the answer to a LIST as it comes, in pieces that may end anywhere. It knows as much XML as such an
// answer has: elements without attributes worth knowing, entities, no comments or CDATA.
type listing struct {
	keep      bool // collect the keys
	keys      []string
	sizes     []int64
	count     int64
	truncated bool
	encoded   bool // the keys are in percent-encoding
	complete  bool // the end has been seen

	entry int // 1 within <Contents>, deeper in its children's children
	inTag bool
	tag   []byte
	text  []byte
}

func (l *listing) reset(keep bool, keys []string, sizes []int64) {
	*l = listing{keep: keep, keys: keys[:0], sizes: sizes[:0], tag: l.tag[:0], text: l.text[:0]}
}

func (l *listing) Write(piece []byte) (int, error) {
	size := len(piece)
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
		l.count++
		if l.keep {
			l.keys = append(l.keys, html.UnescapeString(string(l.text)))
		}
	case l.entry == 2 && string(name) == "Size" && l.keep:
		size, err := strconv.ParseInt(string(l.text), 10, 64)
		if err != nil {
			return errListing
		}
		l.sizes = append(l.sizes, size)
	case l.entry == 1 && l.keep && len(l.sizes) != len(l.keys):
		return errListing
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

// finish decodes the keys; an error means that it was no listing.
func (l *listing) finish() error {
	if !l.complete {
		return errListing
	}
	for i, key := range l.keys {
		if !l.encoded {
			break
		}
		decoded, err := url.QueryUnescape(key)
		if err != nil {
			return errListing
		}
		l.keys[i] = decoded
	}
	return nil
}

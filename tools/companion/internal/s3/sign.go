package s3

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"time"
)

const (
	unsignedPayload = "UNSIGNED-PAYLOAD"
	emptyPayload    = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	algorithm       = "AWS4-HMAC-SHA256"
)

// sigV4 writes AWS signatures, version 4, without allocating. It remembers what stays the same for a second and for
// a day, so it belongs to one connection: two requests never use it at once.
type sigV4 struct {
	access, secret, session, region string

	second int64  // of stamp
	stamp  []byte // 20060102T150405Z
	day    string // of scope and key
	scope  []byte // 20060102/REGION/s3/aws4_request
	key    hash.Hash

	text []byte // what is being hashed
	sum  [sha256.Size]byte
}

// signable is what a signature covers: all of a request that is not the signature itself.
type signable struct {
	method      string
	path, query []byte // encoded as they are sent, the query sorted
	host        string
	contentType string // "": the request has none. RGW refuses one that is not signed from Tentacle (20.2) on
	payload     string // hash of the body in hex, or unsignedPayload
	extra       *extraHeaders
}

// appendHeaders adds the lines that sign a request: Host and Content-Type are in the request already.
func (s *sigV4) appendHeaders(line []byte, request *signable, now time.Time) []byte {
	if s.access == "" {
		return line
	}
	if second := now.Unix(); second != s.second || s.key == nil {
		s.turn(now)
		s.second = second
	}
	line = append(line, "X-Amz-Content-Sha256: "...)
	line = append(line, request.payload...)
	line = append(line, "\r\nX-Amz-Date: "...)
	line = append(line, s.stamp...)
	if s.session != "" {
		line = append(line, "\r\nX-Amz-Security-Token: "...)
		line = append(line, s.session...)
	}
	line = append(line, "\r\nAuthorization: "+algorithm+" Credential="...)
	line = append(line, s.access...)
	line = append(line, '/')
	line = append(line, s.scope...)
	line = append(line, ", SignedHeaders="...)
	line = s.appendSigned(line, request)
	line = append(line, ", Signature="...)
	line = hex.AppendEncode(line, s.signature(request))
	return append(line, "\r\n"...)
}

// appendSigned names the headers that a signature covers, in the order of the alphabet.
func (s *sigV4) appendSigned(line []byte, request *signable) []byte {
	if request.contentType != "" {
		line = append(line, "content-type;"...)
	}
	line = append(line, "host;x-amz-content-sha256;x-amz-date"...)
	if s.session != "" {
		line = append(line, ";x-amz-security-token"...)
	}
	if request.extra != nil {
		line = append(line, request.extra.names...)
	}
	return line
}

func (s *sigV4) signature(request *signable) []byte {
	text := append(s.text[:0], request.method...)
	text = append(text, '\n')
	text = append(text, request.path...)
	text = append(text, '\n')
	text = append(text, request.query...)
	if request.contentType != "" {
		text = append(text, "\ncontent-type:"...)
		text = append(text, request.contentType...)
	}
	text = append(text, "\nhost:"...)
	text = append(text, request.host...)
	text = append(text, "\nx-amz-content-sha256:"...)
	text = append(text, request.payload...)
	text = append(text, "\nx-amz-date:"...)
	text = append(text, s.stamp...)
	if s.session != "" {
		text = append(text, "\nx-amz-security-token:"...)
		text = append(text, s.session...)
	}
	if request.extra != nil {
		text = append(text, request.extra.signed...)
	}
	text = append(text, "\n\n"...)
	text = s.appendSigned(text, request)
	text = append(text, '\n')
	text = append(text, request.payload...)
	s.sum = sha256.Sum256(text)

	text = append(text[:0], algorithm+"\n"...)
	text = append(text, s.stamp...)
	text = append(text, '\n')
	text = append(text, s.scope...)
	text = append(text, '\n')
	text = hex.AppendEncode(text, s.sum[:])
	s.text = text
	s.key.Reset()
	s.key.Write(text)
	return s.key.Sum(s.sum[:0])
}

// turn makes what holds for a new second, and for a new day.
func (s *sigV4) turn(now time.Time) {
	now = now.UTC()
	s.stamp = now.AppendFormat(s.stamp[:0], "20060102T150405Z")
	day := string(s.stamp[:8])
	if day == s.day && s.key != nil {
		return
	}
	key := []byte("AWS4" + s.secret)
	for _, part := range []string{day, s.region, "s3", "aws4_request"} {
		step := hmac.New(sha256.New, key)
		step.Write([]byte(part))
		key = step.Sum(nil)
	}
	s.key = hmac.New(sha256.New, key)
	s.day = day
	s.scope = append(append(append(s.scope[:0], day...), '/'), s.region...)
	s.scope = append(s.scope, "/s3/aws4_request"...)
}

const upperHex = "0123456789ABCDEF"

// plain tells which bytes stay as they are in a path or a query (RFC 3986, "unreserved").
var plain = func() (table [256]bool) {
	for _, c := range []byte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_.~") {
		table[c] = true
	}
	return table
}()

// appendEncoded adds text in percent-encoding; slashes stay when it is a path.
func appendEncoded(line []byte, text string, path bool) []byte {
	for i := 0; i < len(text); i++ {
		c := text[i]
		if plain[c] || path && c == '/' {
			line = append(line, c)
		} else {
			line = append(line, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return line
}

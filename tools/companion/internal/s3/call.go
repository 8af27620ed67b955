package s3

import (
	"encoding/hex"
	"io"
	"strconv"
	"time"
)

// call is one HTTP request and what its answer said. An operation is one call; a MULTIPART is several.
type call struct {
	method    string
	bucket    string
	key       string // empty: the bucket itself
	query     []byte // encoded and sorted by name
	hostStyle bool
	payload   string        // what is signed for the body: its SHA-256 in hex, or unsignedPayload
	extra     *extraHeaders // nil: none
	body      Body          // nil: none
	text      []byte        // a short body instead
	into      io.Writer     // of the answer's body; nil: an object is thrown away, all else is kept as far as errors need it
	object    Expected
	until     time.Time // zero: no limit

	sent      bool      // something of it left this program
	status    int       // 0: no answer
	firstByte time.Time // zero: no answer
	bytes     int64     // of the answer's body
	most      int64     // so many may come, where the answer does not say how many; 0: no limit
	path      []byte    // encoded
}

// appendHead adds the request's head, signed. host is the value of the Host header.
func (c *call) appendHead(line []byte, sign *sigV4, host string, now time.Time) []byte {
	c.path = append(c.path[:0], '/')
	if !c.hostStyle {
		c.path = append(c.path, c.bucket...)
		c.path = append(c.path, '/')
	}
	c.path = appendEncoded(c.path, c.key, true)

	line = append(line, c.method...)
	line = append(line, ' ')
	line = append(line, c.path...)
	if len(c.query) > 0 {
		line = append(line, '?')
		line = append(line, c.query...)
	}
	line = append(line, " HTTP/1.1\r\nHost: "...)
	line = append(line, host...)
	line = append(line, "\r\nUser-Agent: cbt-load\r\n"...)
	contentType := ""
	switch {
	case c.body != nil:
		contentType = "application/octet-stream"
		line = appendLength(line, c.body.Size())
	case len(c.text) > 0:
		contentType = "application/xml"
		line = appendLength(line, int64(len(c.text)))
	case c.method == "PUT" || c.method == "POST":
		line = appendLength(line, 0)
	}
	if contentType != "" {
		line = append(line, "Content-Type: "...)
		line = append(line, contentType...)
		line = append(line, "\r\n"...)
	}
	if c.extra != nil {
		line = append(line, c.extra.lines...)
	}
	line = sign.appendHeaders(line, &signable{c.method, c.path, c.query, host, contentType, c.payload, c.extra}, now)
	return append(line, "\r\n"...)
}

func appendLength(line []byte, length int64) []byte {
	line = append(line, "Content-Length: "...)
	line = strconv.AppendInt(line, length, 10)
	return append(line, "\r\n"...)
}

// prepare makes the call that an operation is, but for MULTIPART. The body is hashed here: that is no part of the
// request's time.
func (c *call) prepare(request *Request, config *Config) {
	*c = call{bucket: request.Bucket, key: request.Key, until: request.Until, hostStyle: config.HostStyle,
		query: c.query[:0], path: c.path, payload: config.payloadOf(nil)}
	encryption := &config.Encryption
	if request.Key == "" {
		encryption = &Encryption{}
	}
	switch request.Op {
	case Get:
		c.method, c.into, c.object, c.extra = "GET", request.Sink, request.Expected, encryption.ofData
	case Put:
		c.method, c.body, c.payload, c.extra = "PUT", request.Body, config.payloadOf(request.Body), encryption.ofNew
		if request.Query != "" {
			c.query = append(c.query, request.Query...)
		}
	case Stat:
		c.method, c.object, c.extra = "HEAD", request.Expected, encryption.ofData
	case Delete:
		c.method = "DELETE"
	case List:
		c.method, c.key = "GET", ""
		c.query = appendListQuery(c.query, request.Key, request.StartAfter, request.MaxKeys)
	}
}

// payloadOf is what is signed for a body.
func (c *Config) payloadOf(body Body) string {
	switch {
	case body == nil:
		return emptyPayload
	case c.Unsigned || c.AccessKey == "":
		return unsignedPayload
	}
	sum := body.Sum()
	return hex.EncodeToString(sum[:])
}

func appendListQuery(query []byte, prefix, after string, most int) []byte {
	query = append(query, "encoding-type=url&list-type=2"...)
	if most > 0 {
		query = append(query, "&max-keys="...)
		query = strconv.AppendInt(query, int64(most), 10)
	}
	query = append(query, "&prefix="...)
	query = appendEncoded(query, prefix, false)
	if after != "" {
		query = append(query, "&start-after="...)
		query = appendEncoded(query, after, false)
	}
	return query
}

func appendPartQuery(query []byte, part int, upload string) []byte {
	query = append(query, "partNumber="...)
	query = strconv.AppendInt(query, int64(part), 10)
	return appendUploadQuery(append(query, '&'), upload)
}

func appendUploadQuery(query []byte, upload string) []byte {
	return appendEncoded(append(query, "uploadId="...), upload, false)
}

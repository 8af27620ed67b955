package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"html"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	mostParts  = 10000
	abortLimit = time.Second // for the request that throws away the parts of an upload that failed
)

// upload carries out a MULTIPART: begins it, sends the parts one after the other, completes it. All go to one host. When it
// fails its parts are removed, after the result's End and in a time of its own; but not when the completion may be
// under way: the two together can damage the object.
func (t *task) upload() {
	request, config := t.request, &t.client.config
	size := request.Body.Size()
	part := max(config.PartSize, (size+mostParts-1)/mostParts)
	var cause failure
	var id string
	var list bytes.Buffer // of the parts, for the completion
	completing := false

	t.call = call{query: t.call.query, path: t.call.path}
	if cause = t.begin(0); cause.kind == "" {
		id, cause = t.initiate()
	}
	list.WriteString("<CompleteMultipartUpload>")
	for number, offset := 1, int64(0); cause.kind == "" && (offset < size || number == 1); number++ {
		body := request.Body.Section(offset, min(part, size-offset))
		t.renew("PUT")
		t.call.query = appendPartQuery(t.call.query[:0], number, id)
		begin := time.Now()
		t.call.body, t.call.payload, t.call.extra = body, config.payloadOf(body), config.Encryption.ofData
		t.result.Hashing += time.Since(begin)
		if cause = t.again(); cause.kind == "" {
			list.WriteString("<Part><PartNumber>" + strconv.Itoa(number) + "</PartNumber><ETag>")
			list.WriteString(html.EscapeString(string(t.conn.header.Peek("ETag"))) + "</ETag></Part>")
		}
		offset += body.Size()
	}
	list.WriteString("</CompleteMultipartUpload>")
	if cause.kind == "" {
		completing = true
		cause = t.complete(id, list.Bytes())
	}

	if cause.kind == "" {
		t.result.Bytes = size
	}
	t.result.Untouched = cause.kind != "" && !(completing && t.call.sent)
	h := t.host
	t.finish(cause)
	answered := cause.kind == KindHTTP && !(completing && t.result.byProxy())
	if id != "" && cause.kind != "" && (answered || t.result.Untouched) {
		t.abort(h, id)
	}
}

// renew makes the call ready for the next of the upload's requests.
func (t *task) renew(method string) {
	r := t.request
	t.call = call{method: method, bucket: r.Bucket, key: r.Key, until: r.Until, hostStyle: t.client.config.HostStyle,
		payload: emptyPayload, query: t.call.query[:0], path: t.call.path}
}

// again sends the next call, on a new connection if the last answer was the end of the old one.
func (t *task) again() (cause failure) {
	if !t.conn.alive {
		t.drop()
		if t.conn, cause = t.client.dial(t.host, t.request.Until); cause.kind != "" {
			return cause
		}
	}
	cause = t.conn.trip(&t.call, time.Now())
	if t.result.FirstByte.IsZero() {
		t.result.FirstByte = t.call.firstByte
	}
	return cause
}

func (t *task) initiate() (id string, cause failure) {
	t.renew("POST")
	t.call.query, t.call.extra = append(t.call.query, "uploads="...), t.client.config.Encryption.ofNew
	t.conn.alive = true // nothing has been asked on it yet
	if cause = t.again(); cause.kind != "" {
		return "", cause
	}
	if id = element(t.conn.text.kept, "UploadId"); id == "" {
		return "", failure{KindProtocol, "an upload without a name"}
	}
	return id, failure{}
}

func (t *task) complete(id string, list []byte) failure {
	t.renew("POST")
	t.call.query = appendUploadQuery(t.call.query, id)
	t.call.text, t.call.payload = list, unsignedPayload
	if !t.client.config.Unsigned {
		sum := sha256.Sum256(list)
		t.call.payload = hex.EncodeToString(sum[:])
	}
	if cause := t.again(); cause.kind != "" {
		return cause
	}
	if !bytes.Contains(t.conn.text.kept, []byte("<CompleteMultipartUploadResult")) {
		return failure{KindProtocol, "a completion that is none"}
	}
	return failure{}
}

// abort removes the parts of an upload, on a connection of its own, also after Cut.
func (t *task) abort(h *host, id string) {
	var never atomic.Bool
	until := time.Now().Add(abortLimit)
	x, cause := t.client.open(context.Background(), h, until, &never)
	if cause.kind != "" {
		return
	}
	t.renew("DELETE")
	t.call.query = appendUploadQuery(t.call.query, id)
	t.call.until = until
	x.trip(&t.call, time.Now())
	x.below.Close()
}

package nulls3

import (
	"bytes"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	etag    = `"d41d8cd98f00b204e9800998ecf8427e"`
	changed = "Wed, 01 Oct 2025 00:00:00 GMT"
	xmlHead = `<?xml version="1.0" encoding="UTF-8"?>`
	// of the number in a key of cbt-load
	keyDigits = 10
	space     = ` xmlns="http://s3.amazonaws.com/doc/2006-03-01/"`
)

type handler struct {
	options
	*counts
	object []byte
}

// answer answers one request; what an upload sends is read and thrown away first, as a server does.
func (h *handler) answer(ctx *fasthttp.RequestCtx) {
	if body := ctx.RequestBodyStream(); body != nil {
		io.Copy(io.Discard, body)
	}
	if h.delay > 0 {
		time.Sleep(h.delay)
	}
	path := bytes.TrimPrefix(ctx.Path(), []byte{'/'})
	if cut := bytes.IndexByte(path, '/'); cut >= 0 && cut < len(path)-1 {
		h.onObject(ctx, string(ctx.Method()))
	} else {
		h.onBucket(ctx, string(ctx.Method()))
	}
}

func (h *handler) onObject(ctx *fasthttp.RequestCtx, method string) {
	answer := &ctx.Response
	switch method {
	case "GET", "HEAD":
		answer.Header.Set("ETag", etag)
		answer.Header.Set("Last-Modified", changed)
		answer.Header.SetContentType("application/octet-stream")
		answer.SetBodyRaw(h.object)
		if method == "HEAD" {
			h.stat.Add(1)
		} else {
			h.get.Add(1)
		}
	case "PUT":
		if h.failPut > 0 && rand.Float64()*100 < h.failPut {
			h.failed.Add(1)
			refuse(answer, fasthttp.StatusServiceUnavailable, "SlowDown")
			return
		}
		answer.Header.Set("ETag", etag)
		h.noteNumber(ctx.Path())
		if ctx.QueryArgs().Has("uploadId") {
			h.multipart.Add(1)
		} else {
			h.put.Add(1)
		}
	case "DELETE":
		answer.SetStatusCode(fasthttp.StatusNoContent)
		h.remove.Add(1)
	case "POST":
		h.multipart.Add(1)
		if ctx.QueryArgs().Has("uploads") {
			answer.SetBodyString(xmlHead + "<InitiateMultipartUploadResult" + space + "><UploadId>null</UploadId></InitiateMultipartUploadResult>")
		} else {
			answer.SetBodyString(xmlHead + "<CompleteMultipartUploadResult" + space + "><ETag>&quot;null-1&quot;</ETag></CompleteMultipartUploadResult>")
		}
	default:
		refuse(answer, fasthttp.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func (h *handler) onBucket(ctx *fasthttp.RequestCtx, method string) {
	query, answer := ctx.QueryArgs(), &ctx.Response
	switch {
	case method == "GET" && (query.Has("list-type") || query.Has("versions") || query.Has("prefix")):
		h.list.Add(1)
		from := string(query.Peek("continuation-token"))
		if from == "" {
			from = string(query.Peek("start-after"))
		}
		most := query.GetUintOrZero("max-keys")
		answer.SetBodyString(h.listing(string(query.Peek("prefix")), from, most))
		return
	case method == "DELETE":
		answer.SetStatusCode(fasthttp.StatusNoContent)
	case query.Has("location"):
		answer.SetBodyString(xmlHead + "<LocationConstraint" + space + "></LocationConstraint>")
	case query.Has("versioning"):
		answer.SetBodyString(xmlHead + "<VersioningConfiguration" + space + "/>")
	case query.Has("object-lock"):
		refuse(answer, fasthttp.StatusNotFound, "ObjectLockConfigurationNotFoundError")
	case query.Has("delete"):
		answer.SetBodyString(xmlHead + "<DeleteResult" + space + "></DeleteResult>")
	}
	h.bucket.Add(1)
}

// noteNumber notes the number of an object that is written, where its key is one of cbt-load's: a listing must find it.
func (h *handler) noteNumber(path []byte) {
	digits := len(path) - keyDigits
	if digits < 1 || '0' <= path[digits-1] && path[digits-1] <= '9' {
		return
	}
	number, err := strconv.ParseUint(string(path[digits:]), 10, 63)
	for last := h.written.Load(); err == nil && int64(number) > last && !h.written.CompareAndSwap(last, int64(number)); {
		last = h.written.Load()
	}
}

// listing is the keys PREFIX0000000001 ... that come after one of them.
func (h *handler) listing(prefix, after string, most int) string {
	if most <= 0 || most > 1000 {
		most = 1000
	}
	first := 1
	if last, err := strconv.Atoi(strings.TrimPrefix(after, prefix)); err == nil && last >= 0 {
		first = last + 1
	}
	keys := max(h.keys, int(h.written.Load()))
	last := min(keys, first+most-1)
	var text strings.Builder
	text.WriteString(xmlHead + "<ListBucketResult" + space + "><IsTruncated>" + strconv.FormatBool(last < keys) + "</IsTruncated>")
	for number := first; number <= last; number++ {
		key := escape(prefix) + padded(number)
		text.WriteString("<Contents><Key>" + key + "</Key><LastModified>2025-10-01T00:00:00.000Z</LastModified><ETag>&quot;d41d8cd98f00b204e9800998ecf8427e&quot;</ETag><Size>" +
			strconv.Itoa(h.size) + "</Size><StorageClass>STANDARD</StorageClass></Contents>")
	}
	if last < keys {
		text.WriteString("<NextContinuationToken>" + escape(prefix) + padded(last) + "</NextContinuationToken>")
	}
	text.WriteString("</ListBucketResult>")
	return text.String()
}

// padded is the number as numbered objects have it.
func padded(number int) string {
	digits := strconv.Itoa(number)
	return strings.Repeat("0", max(0, keyDigits-len(digits))) + digits
}

func escape(text string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
}

func refuse(answer *fasthttp.Response, status int, code string) {
	answer.SetStatusCode(status)
	answer.SetBodyString(xmlHead + "<Error><Code>" + code + "</Code><Message>as asked for</Message></Error>")
}

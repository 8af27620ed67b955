package s3

import (
	"errors"
	"io"
	"os"
	"strconv"
	"syscall"

	"github.com/valyala/fasthttp"
)

// Kinds of errors; a row's error is "kind: message".
const (
	KindHTTP     = "http"     // "http: 503 SlowDown": the server's own answer
	KindRefused  = "refused"  // no connection: refused or unreachable
	KindReset    = "reset"    // the connection broke
	KindTimeout  = "timeout"  // the deadline passed
	KindChecksum = "checksum" // the object is not what was written
	KindLength   = "length"   // the answer is shorter or longer than the object
	KindETag     = "etag"     // the object is another than the listing's
	KindCut      = "cut"      // the run ended first
	KindProtocol = "protocol" // an answer that is none
)

// failure is one of these kinds and a message without numbers that differ each time. Its zero is success.
type failure struct{ kind, text string }

// kindOfConnError is the kind and the text of an error of the connection.
func (x *conn) kindOfConnError(err error) failure {
	if x.cut.Load() {
		return failure{KindCut, "the run ended"}
	}
	var number syscall.Errno
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		if x.call.status == 0 && x.call.firstByte.IsZero() {
			return failure{KindTimeout, "no answer in time"}
		}
		return failure{KindTimeout, "the answer did not end in time"}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return failure{KindReset, "closed by the server"}
	case errors.As(err, &number):
		return failure{KindReset, number.Error()}
	}
	return failure{KindProtocol, oneLine(err.Error())}
}

// kindOfAnswer is the kind and the text of the error that an answer is; the zero failure for a success.
func (x *conn) kindOfAnswer(c *call) failure {
	if c.object.Sized && c.status == fasthttp.StatusOK {
		return x.kindOfObject(c)
	}
	code := errorCode(x.text.kept) // also in an answer that begins as a success
	if c.status != fasthttp.StatusOK && !(c.status == fasthttp.StatusNoContent && c.method == "DELETE") || code != "" {
		if code == "" {
			code = fasthttp.StatusMessage(c.status)
		}
		return failure{KindHTTP, strconv.Itoa(c.status) + " " + code}
	}
	switch {
	case c.method == "PUT" && c.key != "" && len(x.header.Peek("ETag")) == 0:
		return failure{KindProtocol, "no ETag: nothing was stored"}
	case c.method == "DELETE" && len(x.text.kept) > 0:
		return failure{KindProtocol, "a DELETE answered with a text"}
	}
	return failure{}
}

const (
	tooShort = "shorter than the object"
	tooLong  = "longer than the object"
)

// kindOfObject is the kind of an answer with an object: wrong length, or wrong ETag where that is known; the zero failure
// for the object that was asked for.
func (x *conn) kindOfObject(c *call) failure {
	code := errorCode(x.text.kept)
	switch {
	case c.bytes != c.object.Size && code != "":
		return failure{KindHTTP, strconv.Itoa(c.status) + " " + code}
	case c.bytes < c.object.Size:
		return failure{KindLength, tooShort}
	case c.bytes > c.object.Size:
		return failure{KindLength, tooLong}
	case c.object.ETag != 0 && Fingerprint(x.header.Peek("ETag")) != c.object.ETag:
		return failure{KindETag, "another than in the listing"}
	}
	return failure{}
}

// Refused tells whether nobody took the request: no host was there, or it was too busy.
func (r *Result) Refused() bool {
	return r.Kind == KindRefused || r.Kind == KindHTTP && (r.Status == 429 || r.Status == 503)
}

// Failing tells whether whoever asks again at once gets the same answer, as soon: no host was there, the server is too busy
// or fails, or a proxy has none.
func (r *Result) Failing() bool {
	return r.Refused() || r.Kind == KindReset || r.Kind == KindHTTP && r.Status >= 500
}

// Unsure tells whether a failed PUT or DELETE may have been carried out all the same.
func (r *Result) Unsure() bool { return r.Kind != "" && r.Doubts() > 0 }

// Doubts is how many times a PUT or DELETE was sent without a good answer, and may have been carried out all the same.
func (r *Result) Doubts() (times int64) {
	if r.Kind == KindRefused || r.Untouched {
		return 0
	}
	if r.Resent {
		times++
	}
	if r.Kind != "" && !r.Refused() && (r.Status < 400 || r.Status >= 500) {
		times++
	}
	return times
}

// Unanswered tells whether the server may still be at a PUT or DELETE that failed: it has said nothing of it.
func (r *Result) Unanswered() bool {
	return r.Resent || r.Unsure() && (r.Status == 0 || r.byProxy())
}

// byProxy tells whether a load balancer says that the server has not answered.
func (r *Result) byProxy() bool {
	return r.Kind == KindHTTP && (r.Status == 502 || r.Status == 504)
}

package s3

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strconv"
	"time"

	"github.com/valyala/fasthttp"
)

// endless is the length of a body that ends with the connection, chunked that of one which says as it goes.
const (
	chunked = -1
	endless = -2
)

// trip sends a call and reads its answer. The connection may carry another request afterwards when alive is set.
func (x *conn) trip(c *call, now time.Time) failure {
	x.call, x.alive, x.broken = c, false, nil
	if err := x.SetDeadline(c.until); err != nil {
		return x.kindOfConnError(err)
	}
	if x.cut.Load() { // after the deadline is set: Cut sets the flag first and the deadlines after
		return failure{KindCut, "before it was sent"}
	}
	if err := x.send(c, now); err != nil {
		return x.refusal(c, x.kindOfConnError(err))
	}
	return x.receive(c)
}

func (x *conn) send(c *call, now time.Time) error {
	x.out.Reset(x)
	head := c.appendHead(x.out.AvailableBuffer(), &x.sign, x.hostName(c), now)
	if _, err := x.out.Write(head); err != nil {
		return err
	}
	if c.body != nil {
		if n, err := c.body.WriteTo(x.out); err != nil {
			return err
		} else if n != c.body.Size() {
			return errors.New("the body has another length than its header says")
		}
	} else if _, err := x.out.Write(c.text); err != nil {
		return err
	}
	return x.out.Flush()
}

// refusal looks for the answer of a server that has said no in the middle of a body and closed the connection.
func (x *conn) refusal(c *call, broke failure) failure {
	if broke.kind != KindReset {
		return broke
	}
	soon := time.Now().Add(200 * time.Millisecond)
	if !c.until.IsZero() && c.until.Before(soon) {
		soon = c.until
	}
	if x.SetDeadline(soon) != nil || x.cut.Load() {
		return broke
	}
	cause := x.receive(c)
	x.alive = false
	if c.status < 300 {
		c.status, c.firstByte = 0, time.Time{}
		return broke
	}
	return cause
}

func (x *conn) receive(c *call) failure {
	if broke := x.receiveHead(c); broke.kind != "" {
		return broke
	}
	x.text.reset()
	keep := !x.header.ConnectionClose()
	length := int64(x.header.ContentLength())
	switch {
	case c.method == "HEAD" || c.status == fasthttp.StatusNoContent || c.status == fasthttp.StatusNotModified:
		if c.bytes = max(length, 0); length == endless { // no length said, and none needed: no reason to close
			keep = x.header.IsHTTP11()
		}
		x.alive = keep && x.in.Buffered() == 0
		if length < 0 && c.object.Sized && c.status == fasthttp.StatusOK {
			return failure{KindLength, "not said"}
		}
		return x.kindOfAnswer(c)
	case c.status != fasthttp.StatusOK:
		return x.receiveError(c, length, keep)
	case c.object.Sized && length != c.object.Size:
		return x.receiveOdd(c, length, keep)
	default:
		if broke := x.receiveBody(c, c.into, length); broke.kind != "" {
			return broke
		}
	}
	x.alive = keep && length != endless && x.in.Buffered() == 0
	return x.kindOfAnswer(c)
}

func (x *conn) receiveHead(c *call) failure {
	for interim := 0; interim < 8; interim++ {
		if _, err := x.in.Peek(1); err != nil {
			return x.kindOfConnError(err)
		}
		c.firstByte = time.Now()
		if err := x.header.Read(x.in); err != nil {
			if x.broken != nil {
				return x.kindOfConnError(x.broken)
			}
			return failure{KindProtocol, "the answer is not HTTP"}
		}
		switch status := x.header.StatusCode(); {
		case status >= 200 && status <= 599:
			c.status = status
			return failure{}
		case status < 100 || status > 599:
			return failure{KindProtocol, "the answer has no status"}
		}
	}
	return failure{KindProtocol, "no end of interim answers"}
}

// receiveError reads what an error answer says, up to a limit; beyond it the connection is given up.
func (x *conn) receiveError(c *call, length int64, keep bool) failure {
	if length > int64(errorLimit) {
		length, keep = errorLimit, false
	}
	broke := x.receiveBody(c, &x.text, length)
	c.bytes = 0
	x.alive = keep && broke.kind == "" && length != endless && x.in.Buffered() == 0
	return x.kindOfAnswer(c)
}

// receiveOdd reads the body of an answer whose head does not say the object's length: it may be an error, or the object
// all the same. Of one that is too long only the beginning is read, and the connection is given up.
func (x *conn) receiveOdd(c *call, length int64, keep bool) failure {
	x.odd = beginning{&x.text, c.into}
	c.most = max(c.object.Size, errorLimit)
	announced := length
	if length > c.most {
		length, keep = errorLimit, false
	}
	broke := x.receiveBody(c, &x.odd, length)
	c.bytes = max(c.bytes, announced)
	x.alive = keep && broke.kind == "" && length != endless && x.in.Buffered() == 0
	if broke.kind != "" {
		return broke
	}
	return x.kindOfAnswer(c)
}

// receiveBody passes a body on. An error of into ends it; so does the end of an answer's limit.
func (x *conn) receiveBody(c *call, into io.Writer, length int64) failure {
	if into == nil && (c.method != "GET" || c.key == "") {
		into = &x.text
	}
	if length == chunked {
		return x.receiveChunks(c, into)
	}
	return x.pass(c, into, length)
}

// pass passes length bytes on, or all that come when endless.
func (x *conn) pass(c *call, into io.Writer, length int64) failure {
	for waited := false; length != 0; {
		if x.in.Buffered() == 0 {
			if waited {
				x.host.move()
			}
			waited = true
			if into == nil && x.plain && x.raw != nil && length > readBuffer {
				n, err := x.discard(length)
				if err != nil {
					return x.cutShort(err)
				}
				c.bytes += n
				length -= n
				continue
			}
			if _, err := x.in.Peek(1); err == io.EOF && length == endless {
				return failure{}
			} else if err != nil {
				return x.cutShort(err)
			}
		}
		n := x.in.Buffered()
		if length >= 0 {
			n = int(min(int64(n), length))
			length -= int64(n)
		}
		if c.bytes += int64(n); c.most > 0 && c.bytes > c.most {
			return failure{KindLength, tooLong}
		}
		if into != nil {
			piece, _ := x.in.Peek(n)
			if _, err := into.Write(piece); isNonsense(err) {
				return failure{KindProtocol, err.Error()}
			} else if err != nil {
				return failure{KindChecksum, oneLine(err.Error())}
			}
		}
		x.in.Discard(n)
	}
	return failure{}
}

func (x *conn) receiveChunks(c *call, into io.Writer) failure {
	wrong := failure{KindProtocol, "a chunked answer that is none"}
	for {
		line, err := x.in.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			return wrong
		} else if err != nil {
			return x.cutShort(err)
		}
		digits, _, _ := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte{';'})
		size, err := strconv.ParseInt(string(bytes.TrimSpace(digits)), 16, 63)
		if err != nil || size < 0 {
			return wrong
		}
		if size == 0 {
			return x.skipTrailer(wrong)
		}
		if broke := x.pass(c, into, size); broke.kind != "" {
			return broke
		}
		if end, err := x.in.ReadSlice('\n'); err != nil && err != bufio.ErrBufferFull {
			return x.cutShort(err)
		} else if len(bytes.TrimRight(end, "\r\n")) > 0 {
			return wrong
		}
	}
}

func (x *conn) skipTrailer(wrong failure) failure {
	for lines := 0; lines < 100; lines++ {
		line, err := x.in.ReadSlice('\n')
		if err == bufio.ErrBufferFull {
			return wrong
		} else if err != nil {
			return x.cutShort(err)
		}
		if len(bytes.TrimRight(line, "\r\n")) == 0 {
			return failure{}
		}
	}
	return wrong
}

func (x *conn) cutShort(err error) failure {
	broke := x.kindOfConnError(err)
	if broke.kind == KindReset {
		broke.text = "the answer ended early"
	}
	return broke
}

package s3

import (
	"bufio"
	"crypto/tls"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

const (
	readBuffer  = 32 << 10
	writeBuffer = 16 << 10
	pieceSize   = 1 << 20 // written at once; the host is seen to move after each
)

// conn is a connection to a host and all that a request on it needs, so that a request allocates nothing.
type conn struct {
	net.Conn
	below  net.Conn        // the same without TLS
	raw    syscall.RawConn // the TCP connection below; nil: not TCP
	plain  bool            // no TLS in between
	host   *host
	cut    *atomic.Bool // the client's
	in     *bufio.Reader
	out    *bufio.Writer
	header fasthttp.ResponseHeader
	sign   sigV4
	text   excerpt // of an answer that is no object
	odd    beginning
	bucket string // of hostName
	name   string
	call   *call // under way

	reused bool      // it has carried a request before
	since  time.Time // idle since
	broken error     // the last error of a read or a write
	alive  bool      // the last answer ended where it should: another request may follow
	seen   int
	drop   func(fd uintptr) bool
	left   int64 // how much drop may throw away
	errno  syscall.Errno
}

func newConn(link net.Conn, h *host, config *Config, cut *atomic.Bool) *conn {
	x := &conn{Conn: link, host: h, cut: cut}
	x.sign = sigV4{access: config.AccessKey, secret: config.SecretKey, session: config.Session, region: config.Region}
	if secured, ok := link.(*tls.Conn); ok {
		x.below = secured.NetConn()
	} else {
		x.below, x.plain = link, true
	}
	if tcp, ok := x.below.(*net.TCPConn); ok {
		x.raw, _ = tcp.SyscallConn()
	}
	x.in, x.out = bufio.NewReaderSize(x, readBuffer), bufio.NewWriterSize(x, writeBuffer)
	x.drop = x.dropOnce
	return x
}

func (x *conn) Read(p []byte) (int, error) {
	n, err := x.Conn.Read(p)
	if err != nil {
		x.broken = err
	}
	return n, err
}

func (x *conn) Write(p []byte) (done int, err error) {
	x.call.sent = true
	for done < len(p) && err == nil {
		var n int
		n, err = x.Conn.Write(p[done:min(done+pieceSize, len(p))])
		done += n
		if len(p) >= writeBuffer {
			x.host.move()
		}
	}
	if err != nil {
		x.broken = err
	}
	return done, err
}

// hostName is the value of the Host header.
func (x *conn) hostName(c *call) string {
	if !c.hostStyle {
		return x.host.name
	}
	if x.bucket != c.bucket {
		x.bucket, x.name = c.bucket, c.bucket+"."+x.host.name
	}
	return x.name
}

// stale tells whether the server closed the connection while it was idle, or said something that nobody asked for.
func (x *conn) stale() bool {
	if x.raw == nil {
		return false
	}
	return x.raw.Control(func(fd uintptr) { x.peekOnce(fd) }) != nil || x.seen >= 0
}

// peekOnce sets seen: 0 is the end of the connection, more is data, -1 that there is nothing yet.
func (x *conn) peekOnce(fd uintptr) bool {
	var buffer [1]byte
	x.seen = -1
	n, _, err := syscall.Recvfrom(int(fd), buffer[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	if err == nil || err != syscall.EAGAIN && err != syscall.EWOULDBLOCK && err != syscall.EINTR {
		x.seen = max(n, 0)
	}
	return true
}

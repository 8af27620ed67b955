package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"
)

// connectLimit is how long a connection may take to come about, if the request has so long.
const connectLimit = 10 * time.Second

// connect is a connection to a host for one request: an idle one that is still good, or a new one. What has been idle for
// so long is looked at before it is used.
func (c *Client) connect(h *host, x *conn, until time.Time, trusted time.Duration) (*conn, failure) {
	now := time.Now()
	for x != nil {
		if now.Sub(x.since) < trusted || !x.stale() {
			x.reused = true
			return x, failure{}
		}
		c.mu.Lock()
		c.drop(x)
		x = nil
		if n := len(h.idle); n > 0 {
			x = h.idle[n-1]
			h.idle = h.idle[:n-1]
		}
		c.mu.Unlock()
	}
	return c.dial(h, until)
}

// dial makes a new connection that ends with Cut.
func (c *Client) dial(h *host, until time.Time) (*conn, failure) {
	x, cause := c.open(c.ended, h, until, &c.cut)
	if x != nil {
		c.mu.Lock()
		c.conns[x] = struct{}{}
		c.mu.Unlock()
	}
	return x, cause
}

// open makes a new connection. Whatever goes wrong here is KindRefused: the server has seen nothing of the request.
func (c *Client) open(ctx context.Context, h *host, until time.Time, cut *atomic.Bool) (*conn, failure) {
	limit := time.Now().Add(connectLimit)
	if !until.IsZero() && until.Before(limit) {
		limit = until
	}
	ctx, done := context.WithDeadline(ctx, limit)
	defer done()
	link, err := c.link(ctx, h, limit)
	if err != nil {
		if ctx.Err() == context.Canceled {
			return nil, failure{KindCut, "before it was sent"}
		}
		return nil, failure{KindRefused, dialErrorText(err)}
	}
	return newConn(link, h, &c.config, cut), failure{}
}

// link tries the host's addresses, another one first each time.
func (c *Client) link(ctx context.Context, h *host, limit time.Time) (net.Conn, error) {
	addresses, first, err := c.lookUp(ctx, h)
	if err != nil {
		return nil, err
	}
	for i := range addresses {
		var link net.Conn
		left := time.Until(limit) / time.Duration(len(addresses)-i)
		dialer := net.Dialer{Timeout: max(left, time.Millisecond)}
		link, err = dialer.DialContext(ctx, "tcp", net.JoinHostPort(addresses[(first+i)%len(addresses)], h.port))
		if err != nil {
			continue
		}
		if !h.secure {
			return link, nil
		}
		secured := tls.Client(link, h.secrets(c))
		if err = secured.HandshakeContext(ctx); err == nil {
			return secured, nil
		}
		link.Close()
	}
	return nil, err
}

func (h *host) secrets(c *Client) *tls.Config {
	return &tls.Config{ServerName: h.domain, InsecureSkipVerify: c.config.InsecureTLS, ClientSessionCache: c.sessions}
}

// lookUp is the addresses of a host, as found before unless it failed since, and which of them is next.
func (c *Client) lookUp(ctx context.Context, h *host) (addresses []string, first int, err error) {
	c.mu.Lock()
	addresses, first = h.addresses, h.next
	h.next++
	c.mu.Unlock()
	if len(addresses) > 0 {
		return addresses, first, nil
	}
	addresses, err = net.DefaultResolver.LookupHost(ctx, h.domain)
	if err == nil && len(addresses) == 0 {
		err = errors.New("the name has no address")
	}
	if err != nil {
		return nil, 0, err
	}
	c.mu.Lock()
	h.addresses = addresses
	c.mu.Unlock()
	return addresses, first, nil
}

// dialErrorText says why there is no connection, in words that do not change with each port or time.
func dialErrorText(err error) string {
	var number syscall.Errno
	var name *net.DNSError
	var unknown *tls.CertificateVerificationError
	switch {
	case errors.As(err, &number):
		return number.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "no connection in time"
	case errors.As(err, &name):
		return "name not found: " + oneLine(name.Err)
	case errors.As(err, &unknown):
		return oneLine(unknown.Error())
	}
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "no connection in time"
	}
	return oneLine(err.Error())
}

package s3

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Client makes requests for Config.Workers callers at once.
type Client struct {
	config     Config
	sessions   tls.ClientSessionCache
	cut        atomic.Bool
	ended      context.Context // done when Cut was called
	end        context.CancelFunc
	reconnects atomic.Int64
	tasks      sync.Pool // of *task

	mu      sync.Mutex
	hosts   []*host
	turn    int                // of hosts
	conns   map[*conn]struct{} // all that are open
	waiting int                // callers that have no host to go to
	wake    chan struct{}      // closed, and made anew, when a host is back
}

// HostState is what a host is doing now.
type HostState struct {
	URL      string
	InFlight int  // requests under way
	Up       bool // gets its share of new requests
}

// New checks the configuration and looks the hosts up; no connection is made yet.
func New(config Config) (*Client, error) {
	if len(config.Hosts) == 0 {
		return nil, errors.New("no hosts")
	}
	if strings.ContainsFunc(config.AccessKey+config.Session, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
		return nil, errors.New("the access key or the session token has characters that no header may have")
	}
	config.Workers = max(config.Workers, 1)
	c := &Client{config: config, conns: map[*conn]struct{}{}, wake: make(chan struct{}), sessions: tls.NewLRUClientSessionCache(0)}
	c.tasks.New = func() any { return new(task) }
	c.ended, c.end = context.WithCancel(context.Background())
	for _, text := range config.Hosts {
		h, err := newHost(text)
		if err != nil {
			return nil, err
		}
		ctx, done := context.WithTimeout(c.ended, connectLimit)
		_, _, err = c.lookUp(ctx, h)
		done()
		if err != nil {
			return nil, fmt.Errorf("host %s: %s", text, dialErrorText(err))
		}
		c.hosts = append(c.hosts, h)
	}
	return c, nil
}

// Do makes one request and fills in all of its result. Request and Result are the caller's again when it returns.
func (c *Client) Do(request *Request, result *Result) {
	*result = Result{Keys: result.Keys[:0], Sizes: result.Sizes[:0], ETags: result.ETags[:0]}
	t := c.tasks.Get().(*task)
	t.client, t.request, t.result = c, request, result
	if request.Op == Multipart {
		t.upload()
	} else {
		t.single()
	}
	t.request, t.result, t.call.body, t.call.into = nil, nil, nil, nil
	c.tasks.Put(t)
}

// Cut ends all requests under way at once, with KindCut; so do all later ones.
func (c *Client) Cut() {
	c.cut.Store(true)
	c.end()
	c.mu.Lock()
	defer c.mu.Unlock()
	for x := range c.conns {
		x.SetDeadline(began)
	}
}

// Close gives the idle connections back. Nothing may be under way.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for x := range c.conns {
		c.drop(x)
	}
	for _, h := range c.hosts {
		h.idle = nil
	}
	c.end()
}

// Hosts is what each host is doing now, in the order of Config.Hosts.
func (c *Client) Hosts() []HostState {
	c.mu.Lock()
	defer c.mu.Unlock()
	states := make([]HostState, 0, len(c.hosts))
	newest, _ := c.survey()
	for _, h := range c.hosts {
		states = append(states, HostState{h.url, h.inFlight, !h.down && !h.suspect(newest)})
	}
	return states
}

// Reconnects counts the requests sent again because the server had closed an idle connection just then: see Result.Resent.
func (c *Client) Reconnects() int64 { return c.reconnects.Load() }

// keep takes a connection back that a request has ended on. c.mu is held.
func (c *Client) keep(h *host, x *conn, now time.Time) {
	if !x.alive || c.cut.Load() || len(h.idle) >= c.config.Workers {
		c.drop(x)
		return
	}
	x.since, x.call = now, nil
	h.idle = append(h.idle, x)
}

// drop closes a connection for good. c.mu is held.
func (c *Client) drop(x *conn) {
	delete(c.conns, x)
	x.below.Close() // without a farewell of TLS, which may block
}

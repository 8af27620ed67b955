package s3

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// began is what a host's times count from: differences of a monotonic clock fit into an integer that may be set at any time.
var began = time.Now()

// host is one of the addresses that requests go to. Client.mu guards it, but for moved.
type host struct {
	url    string
	name   string // for the Host header: without the scheme's own port
	domain string // name or address to look up
	port   string
	secure bool

	inFlight  int
	idle      []*conn
	addresses []string // of domain; none: look it up again
	next      int      // of addresses

	down    bool
	probes  int // requests under way to see whether it is back
	backoff time.Duration
	probeAt time.Time
	why     string       // it is down
	errors  int          // 5xx, 429, answers that are none and those to another question since its last good one
	tryAt   time.Time    // with errors and nothing under way, it gets a request then
	busy    int64        // since began: when it got its first request after it had none
	moved   atomic.Int64 // since began: when it last answered or took or gave a piece of a large object
}

const (
	firstBackoff = 250 * time.Millisecond
	lastBackoff  = 5 * time.Second // while others are up: a request that fails each second would make each second bad
	stallTimeout = 2 * time.Second // with a host that stands still while others move
)

func newHost(text string) (*host, error) {
	parsed, err := url.Parse(text)
	if err != nil || parsed.Hostname() == "" || parsed.Scheme != "http" && parsed.Scheme != "https" {
		return nil, fmt.Errorf("host %q: not like http://NAME:PORT", text)
	}
	if strings.Trim(parsed.Path, "/") != "" || parsed.RawQuery != "" || parsed.User != nil {
		return nil, fmt.Errorf("host %q: more than scheme, name and port", parsed.Redacted())
	}
	h := &host{url: text, domain: parsed.Hostname(), port: parsed.Port(), secure: parsed.Scheme == "https"}
	usual := "80"
	if h.secure {
		usual = "443"
	}
	if h.port == "" {
		h.port = usual
	}
	h.name = net.JoinHostPort(h.domain, h.port)
	if h.port == usual {
		h.name = strings.TrimSuffix(h.name, ":"+usual)
	}
	return h, nil
}

func (h *host) move() { h.moved.Store(int64(time.Since(began))) }

// stands is when the host last showed that it works, or began to have something to do.
func (h *host) stands() int64 { return max(h.busy, h.moved.Load()) }

// suspect tells whether the host stands still with requests under way while another has moved on long since.
func (h *host) suspect(newest int64) bool {
	return h.inFlight > 0 && newest > h.stands()+int64(stallTimeout)
}

// mayBeProbed tells whether one more probe may go to the host, with so many others up: they take the load, and probes that
// hang must not hold the workers. If none is up, a probe that hangs must not keep away those that would be answered, up to
// the host's share of the workers: the others are to find out when another host is back.
func (h *host) mayBeProbed(up, share int) bool { return h.probes == 0 || up == 0 && h.probes < share }

// load is how busy the host is. One that fails fast seems idle: errors count like requests, up to as many as there may be.
func (h *host) load(workers int) int { return h.inFlight + min(h.errors, workers) }

// leave takes the host down; only a probe that fails makes the wait longer, not the others that fail with it.
func (h *host) leave(now time.Time, probe bool, why string) {
	switch {
	case !h.down:
		h.down, h.backoff = true, firstBackoff
	case probe:
		h.backoff = min(2*h.backoff, lastBackoff)
	default:
		return
	}
	h.why, h.probeAt = why, now.Add(h.backoff)
	h.addresses = nil
}

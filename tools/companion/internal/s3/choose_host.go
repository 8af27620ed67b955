package s3

import "time"

// chooseHost takes a host for a new request, and an idle connection to it if there is one. While none is up it waits, until
// the request's deadline at the latest: then there is no host but the one that was last tried.
func (c *Client) chooseHost(now, until time.Time) (h *host, x *conn, probe bool) {
	for {
		c.mu.Lock()
		h, probe = c.pickHost(now)
		if h != nil {
			if h.inFlight == 0 {
				h.busy = int64(now.Sub(began))
			}
			h.inFlight++
			if n := len(h.idle); n > 0 {
				x = h.idle[n-1]
				h.idle = h.idle[:n-1]
			}
			c.mu.Unlock()
			return h, x, probe
		}
		c.hasten(now) // the last one that was up may hang
		pause, wake := c.pause(now), c.wake
		c.waiting++
		c.mu.Unlock()
		if !until.IsZero() {
			pause = min(pause, until.Sub(now))
		}
		awake := pause > 0 && c.sleep(pause, wake)
		c.mu.Lock()
		c.waiting--
		c.mu.Unlock()
		if !awake {
			return nil, nil, false
		}
		now = time.Now()
	}
}

// sleep waits for a time or a reason; false: the run ended.
func (c *Client) sleep(pause time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-wake:
	case <-c.ended.Done():
		return false
	}
	return true
}

// pickHost is a host that may be back, else one of those that are up: the next in turn, or the least busy; nil: none. In turn,
// one that holds its share is left out while others are less busy: a host that hangs would catch everybody.
func (c *Client) pickHost(now time.Time) (best *host, probe bool) {
	newest, up := c.survey()
	workers, inTurn := c.config.Workers, c.config.RoundRobin
	share := (workers + up - 1) / max(up, 1)
	turn := c.turn
	for i := range c.hosts {
		at := (turn + i) % len(c.hosts)
		h := c.hosts[at]
		switch {
		case h.down && h.mayBeProbed(up, c.config.Workers/len(c.hosts)) && !now.Before(h.probeAt):
			h.probes++
			h.probeAt = now.Add(h.backoff)
			c.hasten(now)
			return h, true
		case h.down || h.suspect(newest):
		case !inTurn && h.errors > 0 && h.inFlight == 0 && !now.Before(h.tryAt):
			return h, false
		case best == nil, h.load(workers) < best.load(workers) && (!inTurn || best.inFlight >= share):
			best, c.turn = h, at+1
		}
	}
	return best, false
}

// hasten lets no host wait for long while none is up: the load is to come back as soon as a host does.
func (c *Client) hasten(now time.Time) {
	if _, up := c.survey(); up > 0 {
		return
	}
	soon := now.Add(firstBackoff)
	for _, h := range c.hosts {
		if h.probeAt.After(soon) {
			h.probeAt = soon
		}
	}
}

// survey counts the hosts that are up, and says when the last of all moved.
func (c *Client) survey() (newest int64, up int) {
	for _, h := range c.hosts {
		newest = max(newest, h.moved.Load())
	}
	for _, h := range c.hosts {
		if !h.down && !h.suspect(newest) {
			up++
		}
	}
	return newest, up
}

// pause is how long to wait when there is no host: until one may be tried again. A host that moves wakes all.
func (c *Client) pause(now time.Time) time.Duration {
	_, up := c.survey()
	pause := firstBackoff // a suspect that moves within a large object wakes nobody
	for _, h := range c.hosts {
		if h.down && h.mayBeProbed(up, c.config.Workers/len(c.hosts)) {
			pause = min(pause, max(h.probeAt.Sub(now), time.Millisecond))
		}
	}
	return pause
}

// release ends a request at a host: what came of it says whether the host is up. One that passed its deadline says
// nothing when others have just been answered. status is that of its answer; 0: none.
func (c *Client) release(h *host, x *conn, probe bool, sent time.Time, cause failure, status int) {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	h.inFlight--
	if probe {
		h.probes--
	}
	alive := max(int64(sent.Sub(began)), int64(now.Add(-stallTimeout).Sub(began))) // one that moved since is
	stuck := cause.kind == KindTimeout && h.moved.Load() < alive
	switch {
	case cause.kind == KindCut:
	case stuck || cause.kind == KindRefused || cause.kind == KindReset:
		h.leave(now, probe, cause.kind+": "+cause.text)
		c.hasten(now)
	case status != 0 || cause.kind == KindProtocol:
		h.moved.Store(int64(now.Sub(began)))
		h.down = false
		if wrong := cause.kind != "" && status < 300; wrong || cause.kind == KindProtocol || status == 429 || status >= 500 {
			h.errors, h.tryAt = h.errors+1, now.Add(firstBackoff)
		} else {
			h.errors = 0
		}
		if c.waiting > 0 {
			close(c.wake)
			c.wake = make(chan struct{})
		}
	}
	if x != nil {
		c.keep(h, x, now)
	}
}

// lastError is the host that is tried next and why it is down.
func (c *Client) lastError() (url, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	best := c.hosts[0]
	for _, h := range c.hosts {
		if h.down && (!best.down || h.probeAt.Before(best.probeAt)) {
			best = h
		}
	}
	if !best.down {
		return best.url, "no host answers"
	}
	return best.url, "no host is up; " + best.why
}

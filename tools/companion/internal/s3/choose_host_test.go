package s3

import (
	"slices"
	"testing"
	"time"
)

// chosen is a client of so many hosts whose requests are never made: only the choice is under test.
func chosen(t *testing.T, hosts, workers int, roundRobin bool) *Client {
	config := Config{RoundRobin: roundRobin, Workers: workers}
	for i := range hosts {
		config.Hosts = append(config.Hosts, "http://127.0.0."+string(rune('1'+i))+":1")
	}
	return newClient(t, config)
}

func (c *Client) takes(t *testing.T, now time.Time, n int) (loads []int) {
	t.Helper()
	for range n {
		if h, _, _ := c.chooseHost(now, now); h == nil {
			t.Fatal("no host")
		}
	}
	for _, h := range c.hosts {
		loads = append(loads, h.inFlight)
	}
	return loads
}

func TestTheLeastBusyHost(t *testing.T) {
	now := time.Now()
	client := chosen(t, 3, 30, false)
	client.hosts[1].inFlight = 5
	if got := client.takes(t, now, 7); !slices.Equal(got, []int{4, 5, 3}) && !slices.Equal(got, []int{3, 5, 4}) {
		t.Fatal(got)
	}
	client.hosts[0].leave(now, false, "why")
	if got := client.takes(t, now, 10); got[0] > 4 || got[1]-got[2] > 1 || got[2]-got[1] > 1 {
		t.Fatal(got)
	}
}

func TestInTurn(t *testing.T) {
	now := time.Now()
	client := chosen(t, 3, 9, true)
	client.hosts[1].inFlight = 2
	if got := client.takes(t, now, 6); !slices.Equal(got, []int{3, 3, 2}) && !slices.Equal(got, []int{2, 3, 3}) && !slices.Equal(got, []int{3, 2, 3}) {
		t.Fatal("a host holds more than its share of nine:", got)
	}
	client = chosen(t, 3, 300, true)
	client.hosts[0].leave(now, false, "why")
	if got := client.takes(t, now, 100); !slices.Equal(got, []int{0, 50, 50}) {
		t.Fatal("the share of a host that is down does not go to all others:", got)
	}
}

func TestAHostThatStandsStill(t *testing.T) {
	now := time.Now()
	client := chosen(t, 2, 8, false)
	client.takes(t, now, 4)
	moved := func(i int, after time.Duration) { client.hosts[i].moved.Store(int64(now.Add(after).Sub(began))) }
	moved(0, stallTimeout)
	if states := client.Hosts(); !states[0].Up || !states[1].Up {
		t.Fatal("suspected too early")
	}
	moved(0, stallTimeout+time.Millisecond)
	if states := client.Hosts(); !states[0].Up || states[1].Up {
		t.Fatal("not suspected:", states)
	}
	if got := client.takes(t, now, 4); !slices.Equal(got, []int{6, 2}) {
		t.Fatal(got)
	}
	moved(1, stallTimeout)
	if states := client.Hosts(); !states[1].Up {
		t.Fatal("still suspected though it answered")
	}
	client.hosts[1].inFlight = 0
	moved(0, time.Hour)
	if states := client.Hosts(); !states[1].Up {
		t.Fatal("a host with nothing to do is suspected")
	}
}

// A host that is down gets one request at a time, after 0.25 s, 0.5 s ... 5 s; whatever else fails with
// it changes nothing. If no host is up, it gets one each time, also while others hang.
func TestProbes(t *testing.T) {
	now := time.Now()
	client := chosen(t, 2, 8, false)
	h, refused := client.hosts[1], failure{KindRefused, "why"}
	h.inFlight = 3
	client.release(h, nil, false, now, refused, 0)
	first := h.probeAt
	client.release(h, nil, false, now, refused, 0)
	if h.probeAt != first || h.backoff != firstBackoff {
		t.Fatal("the second failure counts as a probe")
	}
	wait := firstBackoff
	for range 8 {
		if got, _ := client.pickHost(h.probeAt.Add(-1)); got == h {
			t.Fatal("tried before its time")
		}
		got, probe := client.pickHost(h.probeAt)
		if got != h || !probe {
			t.Fatal("not tried in its time")
		}
		next := h.probeAt
		if got, _ := client.pickHost(next.Add(time.Hour)); got == h {
			t.Fatal("tried by two at once")
		}
		client.hosts[0].down, client.hosts[0].probeAt = true, next.Add(2*time.Hour)
		if got, _ := client.pickHost(next.Add(-1)); got != nil {
			t.Fatal("tried before its time")
		}
		if got, probe := client.pickHost(next); got != h || !probe {
			t.Fatal("a request that hangs keeps all others away")
		}
		h.probes, client.hosts[0].down = 1, false
		h.inFlight++
		client.release(h, nil, true, now, refused, 0)
		if wait = min(2*wait, 5*time.Second); h.backoff != wait {
			t.Fatalf("%v instead of %v", h.backoff, wait)
		}
	}
	client.release(h, nil, false, now, failure{}, 200)
	if !client.Hosts()[1].Up {
		t.Fatal("an answer, and still down")
	}
	h.inFlight++
	client.release(h, nil, false, now, refused, 0)
	if h.backoff != firstBackoff {
		t.Fatal("the waits do not begin anew")
	}
}

// One host answers after ten steps, the other one at once, with errors: eight workers do not all run into it.
func TestAHostThatFailsFast(t *testing.T) {
	hostThatFailsFast(t, 503, failure{KindHTTP, "503 SlowDown"})
	hostThatFailsFast(t, 200, failure{KindLength, tooShort})
}

func hostThatFailsFast(t *testing.T, status int, said failure) {
	for inTurn, most := range map[bool]int{false: 30, true: 55} {
		client := chosen(t, 2, 8, inTurn)
		slow, broken := client.hosts[0], client.hosts[1]
		now := time.Now()
		goods, fails := 0, 0
		work := func(steps int, status int, said failure) {
			var ends []int
			for step := range steps {
				now = now.Add(time.Microsecond)
				for len(ends) > 0 && ends[0] == step {
					client.release(slow, nil, false, now, failure{}, 200)
					ends = ends[1:]
				}
				for len(ends) < 8 {
					h, _, _ := client.chooseHost(now, now)
					if h == slow {
						goods++
						ends = append(ends, step+10)
					} else {
						fails++
						client.release(h, nil, false, now, said, status)
						break // it takes a step to ask again
					}
				}
			}
			for range ends {
				client.release(slow, nil, false, now, failure{}, 200)
			}
		}
		work(1000, status, said)
		if 100*fails > most*(goods+fails) || fails == 0 {
			t.Fatalf("%d of %d at the host that fails, in turn: %v", fails, goods+fails, inTurn)
		}
		now = now.Add(time.Second)
		before := goods + fails
		fails = 0
		work(1000, 200, failure{}) // it is tried, and has its share of what is done again
		if broken.errors != 0 || fails < (goods+fails-before)/3 {
			t.Fatalf("%d of %d at the host that works again, in turn: %v", fails, goods+fails-before, inTurn)
		}
	}
}

// When all fail, all are asked.
func TestAllHostsFail(t *testing.T) {
	client := chosen(t, 2, 4, false)
	for i, h := range client.hosts {
		h.errors, h.tryAt = 1000*(i+1), time.Now().Add(time.Hour)
	}
	if got := client.takes(t, time.Now(), 4); !slices.Equal(got, []int{2, 2}) {
		t.Fatal(got)
	}
}

// One request that passes its deadline says nothing about a host that answered others meanwhile.
func TestADeadlineAndAHost(t *testing.T) {
	client := chosen(t, 1, 8, false)
	h, late := client.hosts[0], failure{KindTimeout, "no answer in time"}
	sent := time.Now()
	h.inFlight = 3
	client.release(h, nil, false, sent, failure{}, 200)
	client.release(h, nil, false, sent, late, 0)
	if h.down {
		t.Fatal("down though it answered")
	}
	client.release(h, nil, false, time.Now(), late, 0)
	if !h.down {
		t.Fatal("up though it did not answer")
	}
	h.inFlight, h.down = 1, false
	h.moved.Store(int64(time.Since(began) - 2*stallTimeout))
	client.release(h, nil, false, sent.Add(-time.Minute), late, 0)
	if !h.down {
		t.Fatal("up though it has not answered for long")
	}
}

// While no host is up each gets a request every 0.25 s, also while earlier ones hang: all others wait for their answer.
func TestNoHostIsUp(t *testing.T) {
	client := chosen(t, 1, 8, false)
	h, now := client.hosts[0], time.Now()
	h.inFlight = 1
	client.release(h, nil, false, now, failure{KindRefused, "why"}, 0)
	for range 8 {
		now = h.probeAt
		if got, _ := client.pickHost(now.Add(-1)); got != nil {
			t.Fatal("tried before its time")
		}
		if got, probe := client.pickHost(now); got != h || !probe {
			t.Fatal("a request that hangs keeps all others away")
		}
		if again := client.pause(now); again > firstBackoff {
			t.Fatal("the next one waits for", again)
		}
	}
	if got, _ := client.pickHost(h.probeAt); got != nil {
		t.Fatal("more probes than workers")
	}
	h.inFlight++
	client.release(h, nil, true, now, failure{KindRefused, "why"}, 0)
	if wait := time.Until(h.probeAt); wait > firstBackoff {
		t.Fatal("a refusal makes the next one wait for", wait)
	}
}

// The last host that was up hangs: the one that is down is asked soon, however long its wait was.
func TestTheLastHostHangs(t *testing.T) {
	client := chosen(t, 2, 8, false)
	hung, gone, now := client.hosts[0], client.hosts[1], time.Now()
	gone.down, gone.backoff, gone.probeAt = true, lastBackoff, now.Add(time.Hour)
	gone.moved.Store(int64(now.Add(2 * stallTimeout).Sub(began)))
	hung.inFlight, hung.busy = 1, int64(now.Sub(began))
	if h, _, probe := client.chooseHost(now, now.Add(time.Minute)); h != gone || !probe {
		t.Fatal("not asked")
	}
}

// Of two hosts that are down one hangs: it gets its share of the workers, and the others ask the other host.
func TestAHostThatHangsWhileNoneIsUp(t *testing.T) {
	client := chosen(t, 2, 8, false)
	hung, gone := client.hosts[0], client.hosts[1]
	now := time.Now()
	for _, h := range client.hosts {
		h.inFlight = 1
		client.release(h, nil, false, now, failure{KindRefused, "why"}, 0)
	}
	for range 100 {
		now = now.Add(time.Second)
		if h, _ := client.pickHost(now); h == gone {
			h.inFlight++
			client.release(h, nil, true, now, failure{KindRefused, "why"}, 0)
		}
	}
	if hung.probes != 4 {
		t.Fatal(hung.probes, "of 8 workers hang")
	}
}

func TestHostNames(t *testing.T) {
	for text, want := range map[string][3]string{
		"http://rgw1:7480":   {"rgw1:7480", "rgw1", "7480"},
		"http://rgw1":        {"rgw1", "rgw1", "80"},
		"https://rgw1:443/":  {"rgw1", "rgw1", "443"},
		"https://rgw1:80":    {"rgw1:80", "rgw1", "80"},
		"http://[fe80::1]:8": {"[fe80::1]:8", "fe80::1", "8"},
		"http://[fe80::1]":   {"[fe80::1]", "fe80::1", "80"},
		"http://10.0.0.1:80": {"10.0.0.1", "10.0.0.1", "80"},
	} {
		h, err := newHost(text)
		if err != nil || [3]string{h.name, h.domain, h.port} != want {
			t.Errorf("%s: %+v, %v", text, h, err)
		}
	}
	for _, text := range []string{"", "rgw1:7480", "ftp://rgw1", "http://", "http://rgw1/path", "http://u:secret@rgw1"} {
		if h, err := newHost(text); err == nil {
			t.Errorf("%q is taken: %+v", text, h)
		}
	}
	if _, err := New(Config{Hosts: []string{"http://no-such-name.invalid:1"}}); err == nil {
		t.Error("a host without an address is taken")
	}
}

package s3

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestASilentServerTimesOut(t *testing.T) {
	url, _ := server(t, silent)
	client := newClient(t, Config{Hosts: []string{url}})
	for _, op := range []Op{Get, Put} {
		client.hosts[0].down = false
		until := time.Now().Add(100 * time.Millisecond)
		result := do(client, Request{Op: op, Until: until})
		expect(t, result, "timeout: no answer in time")
		if result.End.Before(until) || !result.FirstByte.IsZero() || !result.Unsure() {
			t.Fatalf("%+v", result)
		}
	}
	if client.Hosts()[0].Up || client.Hosts()[0].InFlight != 0 {
		t.Fatal("the host is taken for one that works")
	}
}

func TestAServerThatTakesNoBodyTimesOut(t *testing.T) {
	over := make(chan struct{})
	url, _ := server(t, func(net.Conn, int) { <-over })
	defer close(over)
	client := newClient(t, Config{Hosts: []string{url}, Unsigned: true})
	result := do(client, Request{Op: Put, Body: make(block, 64<<20), Until: time.Now().Add(200 * time.Millisecond)})
	expect(t, result, "timeout: no answer in time")
}

func TestAnAnswerThatStops(t *testing.T) {
	url, _ := server(t, func(link net.Conn, _ int) {
		io.WriteString(link, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nhello")
		silent(link, 0)
	})
	client := newClient(t, Config{Hosts: []string{url}})
	result := do(client, Request{Op: Get, Until: time.Now().Add(100 * time.Millisecond)})
	expect(t, result, "timeout: the answer did not end in time")
	if result.Status != 200 || result.FirstByte.IsZero() || result.Bytes != 0 {
		t.Fatalf("%+v", result)
	}
}

func TestAResetInTheMiddleOfAnObject(t *testing.T) {
	url, _ := server(t, func(link net.Conn, _ int) {
		readAsked(bufio.NewReader(link))
		io.WriteString(link, "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\nhello")
		breakOff(link)
	})
	client := newClient(t, Config{Hosts: []string{url}})
	result := do(client, Request{Op: Get})
	if result.Kind != KindReset || client.Reconnects() != 0 {
		t.Fatalf("%+v", result)
	}
}

func TestASlowHead(t *testing.T) {
	url, _ := server(t, func(link net.Conn, _ int) {
		readAsked(bufio.NewReader(link))
		for _, c := range []byte(fine) {
			link.Write([]byte{c})
		}
	})
	client := newClient(t, Config{Hosts: []string{url}})
	result := do(client, Request{Op: Get})
	expect(t, result, "")
	if result.Bytes != 5 || result.FirstByte.IsZero() {
		t.Fatalf("%+v", result)
	}
}

// rest makes the idle connections as old as those that a server may close.
func (c *Client) rest() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, h := range c.hosts {
		for _, x := range h.idle {
			x.since = x.since.Add(-2 * resting)
		}
	}
}

// On a connection that was hardly idle a reset is the server's error, and the row says so.
func TestAResetOfABusyConnectionIsNoReconnect(t *testing.T) {
	var requests atomic.Int32
	url, _ := server(t, func(link net.Conn, _ int) {
		for r := bufio.NewReader(link); ; {
			if _, err := readAsked(r); err != nil {
				return
			}
			if requests.Add(1)%2 == 0 {
				breakOff(link)
				return
			}
			io.WriteString(link, fine)
		}
	})
	client := newClient(t, Config{Hosts: []string{url}})
	expect(t, do(client, Request{Op: Put}), "")
	client.hosts[0].idle[0].since = time.Now().Add(resting / 2) // a slow machine is no reason
	result := do(client, Request{Op: Put})
	if result.Kind != KindReset || !result.Unsure() || result.Resent || requests.Load() != 2 || client.Reconnects() != 0 {
		t.Fatalf("%d requests: %+v", requests.Load(), result)
	}
}

// The answer to the second one says nothing about the first one.
func TestWhatWasSentTwiceIsUnsure(t *testing.T) {
	url, _ := server(t, func(link net.Conn, number int) {
		r := bufio.NewReader(link)
		readAsked(r)
		if number > 1 {
			io.WriteString(link, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
			return
		}
		io.WriteString(link, fine)
		readAsked(r)
	})
	client := newClient(t, Config{Hosts: []string{url}})
	expect(t, do(client, Request{Op: Put}), "")
	client.rest()
	if result := do(client, Request{Op: Put}); result.Status != 403 || !result.Resent || result.Doubts() != 1 {
		t.Fatalf("%+v", result)
	}
}

// The server answers one request on its first connection and closes it when the next comes: that one is sent again.
func TestAConnectionClosedWhileItWasIdle(t *testing.T) {
	for name, end := range map[string]func(net.Conn){"end": func(net.Conn) {}, "reset": breakOff} {
		t.Run(name, func(t *testing.T) {
			var connections atomic.Int32
			url, _ := server(t, func(link net.Conn, number int) {
				connections.Store(int32(number))
				r := bufio.NewReader(link)
				for served := 0; number > 1 || served == 0; served++ {
					if _, err := readAsked(r); err != nil {
						return
					}
					io.WriteString(link, fine)
				}
				r.Peek(1)
				end(link)
			})
			client := newClient(t, Config{Hosts: []string{url}})
			for i := range 3 {
				client.rest()
				result := do(client, Request{Op: Put, Body: block(bytes.Repeat([]byte{1}, 30_000))})
				expect(t, result, "")
				if result.Resent != (i == 1) {
					t.Fatalf("%d: %+v", i, result)
				}
			}
			if client.Reconnects() != 1 || connections.Load() != 2 {
				t.Fatalf("%d reconnects, %d connections", client.Reconnects(), connections.Load())
			}
		})
	}
}

func TestWhatMayHaveBeenCarriedOut(t *testing.T) {
	for status, unsure := range map[int]bool{400: false, 403: false, 429: false, 500: true, 502: true, 503: false, 504: true} {
		url, _ := server(t, answering("HTTP/1.1 "+strconv.Itoa(status)+" No\r\nContent-Length: 0\r\n\r\n"))
		result := do(newClient(t, Config{Hosts: []string{url}}), Request{Op: Put})
		if result.Status != status || result.Unsure() != unsure || result.Refused() != (status == 429 || status == 503) {
			t.Errorf("%d: %+v", status, result)
		}
	}
}

// A server that closes every connection without an answer gets a request twice at most, and a new connection's never.
func TestARequestIsSentAgainOnce(t *testing.T) {
	var requests atomic.Int32
	url, _ := server(t, func(link net.Conn, number int) {
		r := bufio.NewReader(link)
		for served := 0; ; served++ {
			if _, err := readAsked(r); err != nil {
				return
			}
			requests.Add(1)
			if number > 1 || served > 0 {
				return
			}
			io.WriteString(link, fine)
		}
	})
	client := newClient(t, Config{Hosts: []string{url}})
	for i, want := range []struct {
		said     string
		requests int32
	}{{"", 1}, {"reset: closed by the server", 3}, {"reset: closed by the server", 4}} {
		client.hosts[0].down = false
		client.rest()
		result := do(client, Request{Op: Put})
		expect(t, result, want.said)
		if requests.Load() != want.requests || (result.Kind != "" && !result.Unsure()) {
			t.Fatalf("%d requests after %d operations: %+v", requests.Load(), i+1, result)
		}
	}
}

// When the server is gone after it took a request, that is what counts, not that no new connection could be had.
func TestAServerThatDiesIsNoRefusal(t *testing.T) {
	var listener net.Listener
	ready := make(chan struct{})
	url, listener := server(t, func(link net.Conn, _ int) {
		<-ready
		r := bufio.NewReader(link)
		readAsked(r)
		io.WriteString(link, fine)
		readAsked(r)
		listener.Close()
	})
	close(ready)
	client := newClient(t, Config{Hosts: []string{url}})
	expect(t, do(client, Request{Op: Put}), "")
	client.rest()
	result := do(client, Request{Op: Put})
	expect(t, result, "reset: closed by the server")
	if !result.Unsure() {
		t.Fatal("it may have been carried out")
	}
}

// A refusal in the middle of a large body is an answer, also when the connection is reset after it.
func TestAnAnswerBeforeTheEndOfTheBody(t *testing.T) {
	url, _ := server(t, func(link net.Conn, _ int) {
		link.Read(make([]byte, 1000))
		io.WriteString(link, "HTTP/1.1 403 Forbidden\r\nConnection: close\r\nContent-Length: 26\r\n\r\n<Code>QuotaExceeded</Code>")
		link.(*net.TCPConn).CloseWrite()
		io.CopyN(io.Discard, link, 4<<20)
	})
	client := newClient(t, Config{Hosts: []string{url}, Unsigned: true})
	result := do(client, Request{Op: Put, Body: make(block, 64<<20)})
	if result.Kind != KindHTTP && result.Kind != KindReset { // a reset may overtake the answer
		t.Fatalf("%+v", result)
	}
	if result.Kind == KindHTTP && (result.Message != "403 QuotaExceeded" || result.Unsure()) {
		t.Fatalf("%+v", result)
	}
}

func closedPort(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	return listener.Addr().String()
}

// With no host there, errors are seen, but a closed loop does not spin.
func TestAllHostsDown(t *testing.T) {
	client := newClient(t, Config{Hosts: []string{"http://" + closedPort(t), "http://" + closedPort(t)}})
	refused := 0
	for end := time.Now().Add(600 * time.Millisecond); time.Now().Before(end); {
		result := do(client, Request{Op: Put, Until: end})
		if result.Kind != KindRefused || result.Unsure() || !result.Untouched || result.Endpoint == "" {
			t.Fatalf("%+v", result)
		}
		refused++
	}
	if refused < 2 || refused > 10 {
		t.Fatalf("%d errors in 0.6 s", refused)
	}
	expect(t, do(client, Request{Op: Put, Until: time.Now().Add(-time.Second)}), "refused: no host is up; refused: connection refused")
}

func TestAHostThatComesBack(t *testing.T) {
	good, _ := server(t, answering(fine))
	address := closedPort(t)
	client := newClient(t, Config{Hosts: []string{good, "http://" + address}, Workers: 2})
	failed := 0
	for range 100 {
		if result := do(client, Request{Op: Get}); result.Kind != "" {
			expect(t, result, "refused: connection refused")
			failed++
		}
	}
	if failed == 0 || failed > 5 || client.Hosts()[1].Up {
		t.Fatalf("%d of 100 failed", failed)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Skip(err) // somebody else has the port now
	}
	serveOn(t, listener, answering(fine))
	eventually(t, "the host is up again", func() bool {
		expect(t, do(client, Request{Op: Get}), "")
		return client.Hosts()[1].Up
	})
}

// Several callers that wait for the only host all go on when it is back.
func TestWaitingForTheOnlyHost(t *testing.T) {
	address := closedPort(t)
	client := newClient(t, Config{Hosts: []string{"http://" + address}, Workers: 8})
	expect(t, do(client, Request{Op: Get}), "refused: connection refused")
	var all sync.WaitGroup
	var good atomic.Int32
	for range 8 {
		all.Add(1)
		go func() {
			defer all.Done()
			for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
				if do(client, Request{Op: Get}).Kind == "" {
					good.Add(1)
					return
				}
			}
		}()
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		client.Cut()
		t.Skip(err)
	}
	serveOn(t, listener, answering(fine))
	all.Wait()
	if good.Load() != 8 {
		t.Fatalf("%d of 8", good.Load())
	}
}

// A host that hangs holds its share of the callers and no more; the others go on with the rest.
func TestAHungHostDoesNotCatchEverybody(t *testing.T) {
	for _, roundRobin := range []bool{false, true} {
		good, _ := server(t, answering(fine))
		hung, _ := server(t, silent)
		client := newClient(t, Config{Hosts: []string{good, hung}, RoundRobin: roundRobin, Workers: 8})
		var all sync.WaitGroup
		var done atomic.Int32
		for range 8 {
			all.Add(1)
			go func() {
				defer all.Done()
				for !client.cut.Load() {
					if do(client, Request{Op: Get}).Kind == "" {
						done.Add(1)
					}
				}
			}()
		}
		eventually(t, "a thousand requests at the good host", func() bool { return done.Load() > 1000 })
		if caught := client.Hosts()[1].InFlight; caught > 4 {
			t.Fatalf("%d of 8 caught, in turn: %v", caught, roundRobin)
		}
		eventually(t, "the hung host is found out", func() bool { return !client.Hosts()[1].Up })
		client.Cut()
		all.Wait()
		if left := client.Hosts(); left[0].InFlight+left[1].InFlight != 0 {
			t.Fatalf("%+v", left)
		}
	}
}

func TestCutEndsAll(t *testing.T) {
	hung, _ := server(t, silent)
	closed := "http://" + closedPort(t)
	handshake := strings.Replace(hung, "http:", "https:", 1)
	for _, url := range []string{hung, closed, handshake} {
		client := newClient(t, Config{Hosts: []string{url}, Workers: 4})
		results := make(chan Result)
		for range 4 {
			go func() {
				for {
					if result := do(client, Request{Op: Put}); result.Kind != KindRefused || url == handshake {
						results <- result
						return
					}
				}
			}()
		}
		eventually(t, "under way", func() bool {
			client.mu.Lock()
			defer client.mu.Unlock()
			return client.waiting+client.hosts[0].inFlight == 4
		})
		client.Cut()
		for range 4 {
			if result := <-results; result.Kind != KindCut || (url != hung && !result.Untouched) {
				t.Fatalf("%s: %+v", url, result)
			}
		}
		result := do(client, Request{Op: Put})
		expect(t, result, "cut: before it was sent")
		if result.Unsure() || len(client.conns) != 0 {
			t.Fatalf("%+v, %d connections", result, len(client.conns))
		}
	}
}

package s3

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// What each answer is taken for, and whether its connection is used again.
func TestAnswers(t *testing.T) {
	long := strings.Repeat("x", 300_000)
	for name, c := range map[string]struct {
		op     Op
		answer string
		want   string
		bytes  int64
		again  bool
	}{
		"length":            {Get, fine, "", 5, true},
		"nothing":           {Get, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", 0, true},
		"long":              {Get, "HTTP/1.1 200 OK\r\nContent-Length: 300000\r\n\r\n" + long, "", 300_000, true},
		"partial":           {Get, "HTTP/1.1 206 Partial Content\r\nContent-Length: 5\r\n\r\nhello", "http: 206 Partial Content", 0, true},
		"close":             {Get, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello", "", 5, false},
		"http 1.0":          {Get, "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", "", 5, false},
		"chunks":            {Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;ext=1\r\nlo\r\n0\r\n\r\n", "", 5, true},
		"long chunks":       {Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n493E0\r\n" + long + "\r\n0\r\nTrailer: 1\r\n\r\n", "", 300_000, true},
		"chunk of nonsense": {Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello", "protocol: a chunked answer that is none", 0, false},
		"negative chunk":    {Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello", "protocol: a chunked answer that is none", 0, false},
		"huge chunk":        {Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nhello", "protocol: a chunked answer that is none", 0, false},
		"chunk too long":    {Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n", "protocol: a chunked answer that is none", 0, false},
		"short chunks":      {Get, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", "reset: the answer ended early", 0, false},
		"short":             {Get, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhello", "reset: the answer ended early", 0, false},
		"long and short":    {Get, "HTTP/1.1 200 OK\r\nContent-Length: 300001\r\n\r\n" + long, "reset: the answer ended early", 0, false},
		"very short":        {Get, "HTTP/1.1 200 OK\r\nContent-Length: 900000\r\n\r\n" + long, "reset: the answer ended early", 0, false},
		"too much":          {Get, fine + "more", "", 5, false},
		"until the end":     {Get, "HTTP/1.1 200 OK\r\n\r\nhello", "", 5, false},
		"continue":          {Get, "HTTP/1.1 100 Continue\r\n\r\n" + fine, "", 5, true},
		"continue for ever": {Get, strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 9), "protocol: no end of interim answers", 0, false},
		"missing":           {Get, "HTTP/1.1 404 Not Found\r\nContent-Length: 55\r\n\r\n<?xml?><Error>\n<Code>NoSuchKey</Code><Message/></Error>", "http: 404 NoSuchKey", 0, true},
		"slow down":         {Put, "HTTP/1.1 503 Slow\r\nContent-Length: 0\r\n\r\n", "http: 503 Service Unavailable", 0, true},
		"evil code":         {Put, "HTTP/1.1 500 Bad\r\nContent-Length: 18\r\n\r\n<Code>a\tb\nc</Code>", "http: 500 Internal Server Error", 0, true},
		"long error":        {Put, "HTTP/1.1 500 Bad\r\nContent-Length: 300000\r\n\r\n<Code>E</Code>" + long, "http: 500 E", 0, false},
		"long error chunks": {Put, "HTTP/1.1 500 Bad\r\nTransfer-Encoding: chunked\r\n\r\n493E0\r\n<Code>E</Code>" + long, "http: 500 E", 0, false},
		"short error":       {Put, "HTTP/1.1 507 Full\r\nContent-Length: 30\r\n\r\n<Code>Full</Code>", "http: 507 Full", 0, false},
		"moved":             {Get, "HTTP/1.1 301 Moved\r\nLocation: x\r\nContent-Length: 0\r\n\r\n", "http: 301 Moved Permanently", 0, true},
		"no object":         {Get, "HTTP/1.1 204 No Content\r\n\r\n", "http: 204 No Content", 0, true},
		"put":               {Put, "HTTP/1.1 200 OK\r\nETag: e\r\nContent-Length: 0\r\n\r\n", "", 5, true},
		"stat":              {Stat, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "", 0, true},
		"stat, no length":   {Stat, "HTTP/1.1 200 OK\r\n\r\n", "", 0, true},
		"stat, chunked":     {Stat, "HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n", "http: 404 Not Found", 0, true},
		"delete":            {Delete, "HTTP/1.1 204 No Content\r\n\r\n", "", 0, true},
		"not http":          {Get, "SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n\r\n", "protocol: the answer is not HTTP", 0, false},
		"no status":         {Get, "HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n", "protocol: the answer has no status", 0, false},
		"endless head":      {Get, "HTTP/1.1 200 OK\r\nX: " + long + "\r\n\r\n", "protocol: the answer is not HTTP", 0, false},
		"half a head":       {Get, "HTTP/1.1 200 OK\r\nX: ", "reset: closed by the server", 0, false},
		"list of nothing":   {List, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "protocol: a listing that is none", 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			var connections atomic.Int32
			url, _ := server(t, func(link net.Conn, number int) {
				connections.Store(int32(number))
				r := bufio.NewReader(link)
				for {
					if _, err := readAsked(r); err != nil {
						return
					}
					io.WriteString(link, c.answer)
					if !c.again {
						link.(*net.TCPConn).CloseWrite()
					}
				}
			})
			client := newClient(t, Config{Hosts: []string{url}})
			for round := 1; round <= 2; round++ {
				client.hosts[0].down = false
				result := do(client, Request{Op: c.op})
				expect(t, result, c.want)
				if result.Bytes != c.bytes || result.Endpoint != url {
					t.Fatalf("%d bytes from %s", result.Bytes, result.Endpoint)
				}
			}
			if n := connections.Load(); (n == 1) != c.again {
				t.Fatalf("%d connections for two requests", n)
			}
		})
	}
}

func TestTheSinkGetsTheObject(t *testing.T) {
	object := bytes.Repeat([]byte("0123456789"), 20_000)
	url, _ := server(t, answering(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(object), object)))
	client := newClient(t, Config{Hosts: []string{url}})
	var sink bytes.Buffer
	expect(t, do(client, Request{Op: Get, Sink: &sink}), "")
	if !bytes.Equal(sink.Bytes(), object) {
		t.Fatal("not the object")
	}
	expect(t, do(client, Request{Op: Get, Sink: unhappy{}}), "checksum: not what was written")
	expect(t, do(client, Request{Op: Get}), "")
}

func TestRequestsHaveTheirBodyAndItsHash(t *testing.T) {
	got := make(chan asked, 1)
	url, _ := server(t, func(link net.Conn, _ int) {
		for r := bufio.NewReader(link); ; {
			request, err := readAsked(r)
			if err != nil {
				return
			}
			got <- request
			io.WriteString(link, fine)
		}
	})
	for _, size := range []int{0, 1, 5000, 20_000, 3 << 20} {
		body := block(bytes.Repeat([]byte{'b'}, size))
		for _, unsigned := range []bool{false, true} {
			client := newClient(t, Config{Hosts: []string{url}, Unsigned: unsigned})
			result := do(client, Request{Op: Put, Body: body})
			expect(t, result, "")
			request := <-got
			want := fmt.Sprintf("%x", body.Sum())
			if unsigned {
				want = unsignedPayload
			}
			if hash := request.head.Get("X-Amz-Content-Sha256"); hash != want || !bytes.Equal(request.body, body) || result.Bytes != int64(size) {
				t.Fatalf("%d bytes, hash %s, instead of %d and %s", len(request.body), hash, size, want)
			}
			if request.line != "PUT /bucket/key HTTP/1.1" {
				t.Fatal(request.line)
			}
		}
	}
}

func TestABucketIsMade(t *testing.T) {
	got := make(chan string, 3)
	url, _ := server(t, func(link net.Conn, _ int) {
		for r := bufio.NewReader(link); ; {
			request, err := readAsked(r)
			if err != nil {
				return
			}
			got <- request.line
			io.WriteString(link, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
	})
	client := newClient(t, Config{Hosts: []string{url}})
	for op, want := range map[Op]string{Put: "PUT", Stat: "HEAD", Delete: "DELETE"} {
		var result Result
		client.Do(&Request{Op: op, Bucket: "bucket", Until: time.Now().Add(20 * time.Second)}, &result)
		expect(t, result, "")
		if line := <-got; line != want+" /bucket/ HTTP/1.1" {
			t.Fatal(line)
		}
	}
}

// Whatever a server says, there is no panic, no endless loop, and one of the known kinds.
func FuzzAnswer(f *testing.F) {
	f.Add(uint8(0), []byte(fine))
	f.Add(uint8(1), []byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n2;ext=1\r\nlo\r\n0\r\nA: b\r\n\r\n"))
	f.Add(uint8(2), []byte("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n<ListBucketResult><Contents><Key>a&amp;%20</Key><Size>1</Size></Contents></ListBucketResult>"))
	f.Add(uint8(3), []byte("HTTP/1.1 503 Slow\r\nContent-Length: 19\r\n\r\n<Code>SlowDown</Code>"))
	f.Add(uint8(4), []byte("HTTP/1.0 204 \r\n\r\n"))
	kinds := map[string]bool{"": true, KindHTTP: true, KindReset: true, KindTimeout: true, KindChecksum: true, KindProtocol: true}
	f.Fuzz(func(t *testing.T, what uint8, answer []byte) {
		ours, theirs := net.Pipe()
		go io.Copy(io.Discard, theirs)
		go func() {
			theirs.Write(answer)
			theirs.Close()
		}()
		var cut atomic.Bool
		h, err := newHost("http://h:1")
		if err != nil {
			t.Fatal(err)
		}
		x := newConn(ours, h, &Config{AccessKey: "a", SecretKey: "s"}, &cut)
		var list listing
		list.reset(&Request{WantKeys: true}, &Result{})
		c := call{method: []string{"GET", "PUT", "GET", "HEAD", "DELETE"}[what%5], bucket: "b", key: "k", payload: emptyPayload, until: time.Now().Add(10 * time.Second)}
		if what%5 == 2 {
			c.into = &list
		}
		said := x.trip(&c, time.Now())
		if !kinds[said.kind] || strings.ContainsAny(said.text, "\t\n\"") || c.bytes < 0 || len(x.text.kept) > errorLimit {
			t.Fatalf("%v, %d bytes, %d of text", said, c.bytes, len(x.text.kept))
		}
		if said.kind == "" && list.finish() == nil && (len(list.keys) != len(list.sizes) || int64(len(list.keys)) != list.count) {
			t.Fatalf("%d keys, %d sizes, %d counted", len(list.keys), len(list.sizes), list.count)
		}
		ours.Close()
	})
}

package s3

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/textproto"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// asked is one request that a test's server has read to its end.
type asked struct {
	line string // GET /b/k HTTP/1.1
	head textproto.MIMEHeader
	body []byte
}

func readAsked(r *bufio.Reader) (asked, error) {
	text := textproto.NewReader(r)
	line, err := text.ReadLine()
	if err != nil {
		return asked{}, err
	}
	head, err := text.ReadMIMEHeader()
	if err != nil {
		return asked{}, err
	}
	length, _ := strconv.Atoi(head.Get("Content-Length"))
	body := make([]byte, length)
	_, err = io.ReadFull(r, body)
	return asked{line, head, body}, err
}

// server listens on 127.0.0.1 and gives each connection to serve, with its number from 1 on, until the test ends.
func server(t testing.TB, serve func(link net.Conn, number int)) (url string, listener net.Listener) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	serveOn(t, listener, serve)
	return "http://" + listener.Addr().String(), listener
}

func serveOn(t testing.TB, listener net.Listener, serve func(link net.Conn, number int)) {
	var mu sync.Mutex
	var links []net.Conn
	var all sync.WaitGroup
	all.Add(1)
	go func() {
		defer all.Done()
		for number := 1; ; number++ {
			link, err := listener.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			links = append(links, link)
			mu.Unlock()
			all.Add(1)
			go func() {
				defer all.Done()
				defer link.Close()
				serve(link, number)
			}()
		}
	}()
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		for _, link := range links {
			link.Close()
		}
		mu.Unlock()
		all.Wait()
	})
}

// answering serves each request of a connection with the same answer.
func answering(answer string) func(net.Conn, int) {
	return func(link net.Conn, _ int) {
		for r := bufio.NewReader(link); ; {
			if _, err := readAsked(r); err != nil {
				return
			}
			io.WriteString(link, answer)
		}
	}
}

// silent takes all requests and says nothing.
func silent(link net.Conn, _ int) { io.Copy(io.Discard, link) }

// breakOff ends a connection with a reset.
func breakOff(link net.Conn) {
	link.(*net.TCPConn).SetLinger(0)
	link.Close()
}

const fine = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"e\"\r\n\r\nhello"

func newClient(t testing.TB, config Config) *Client {
	t.Helper()
	config.AccessKey, config.SecretKey = "ACCESS", "SECRETSECRET"
	config.Region, config.Workers = "us-east-1", max(config.Workers, 1)
	client, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func do(client *Client, request Request) Result {
	var result Result
	if request.Until.IsZero() {
		request.Until = time.Now().Add(20 * time.Second)
	}
	if request.Bucket == "" {
		request.Bucket, request.Key = "bucket", "key"
	}
	if request.Op == Put && request.Body == nil {
		request.Body = block("hello")
	}
	client.Do(&request, &result)
	return result
}

func expect(t testing.TB, result Result, want string) {
	t.Helper()
	if got := strings.TrimSuffix(result.Kind+": "+result.Message, ": "); got != want {
		t.Fatalf("%q instead of %q: %+v", got, want, result)
	}
	if result.Sent.IsZero() || result.End.Before(result.Sent) {
		t.Fatalf("sent %v, ended %v", result.Sent, result.End)
	}
	if first := result.FirstByte; !first.IsZero() && (first.Before(result.Sent) || first.After(result.End)) {
		t.Fatalf("first byte %v outside of %v ... %v", first, result.Sent, result.End)
	}
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("never: " + what)
		}
	}
}

// numbered is a body that tells when its writing begins.
type numbered struct {
	block
	begun func()
}

func (n numbered) Section(offset, size int64) Body {
	return numbered{n.block[offset : offset+size], n.begun}
}
func (n numbered) WriteTo(to io.Writer) (int64, error) {
	n.begun()
	return n.block.WriteTo(to)
}

var errMismatch = errors.New("not what\twas \"written\"")

type unhappy struct{}

func (unhappy) Write([]byte) (int, error) { return 0, errMismatch }

package s3

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	initiated = "<InitiateMultipartUploadResult><UploadId>up/1 &amp;2</UploadId></InitiateMultipartUploadResult>"
	completed = "<CompleteMultipartUploadResult><ETag>&quot;e&quot;</ETag></CompleteMultipartUploadResult>"
	uploadID  = "uploadId=up%2F1%20%262"
)

// uploads is a server of one upload; a test may answer some of its requests otherwise, by how they begin.
type uploads struct {
	mu       sync.Mutex
	lines    []string
	parts    []byte
	complete string
	instead  map[string]func(link net.Conn) (goOn bool)
}

func (u *uploads) serve(link net.Conn, _ int) {
	for r := bufio.NewReader(link); ; {
		request, err := readAsked(r)
		if err != nil {
			return
		}
		line := strings.TrimSuffix(request.line, " HTTP/1.1")
		u.mu.Lock()
		u.lines = append(u.lines, line)
		text := ""
		switch {
		case strings.HasPrefix(line, "PUT"):
			u.parts = append(u.parts, request.body...)
		case strings.HasSuffix(line, "?uploads="):
			text = initiated
		case strings.HasPrefix(line, "POST"):
			u.complete = string(request.body)
			text = "   \n" + completed
			if hash := fmt.Sprintf("%x", sha256.Sum256(request.body)); request.head.Get("X-Amz-Content-Sha256") != hash {
				text = "the hash is wrong"
			}
		}
		instead := u.instead[line]
		u.mu.Unlock()
		if instead != nil {
			if !instead(link) {
				return
			}
			continue
		}
		fmt.Fprintf(link, "HTTP/1.1 200 OK\r\nETag: \"<%d>\"\r\nContent-Length: %d\r\n\r\n%s", len(request.body), len(text), text)
	}
}

func (u *uploads) asked() []string {
	u.mu.Lock()
	defer u.mu.Unlock()
	return slices.Clone(u.lines)
}

const (
	lineInitiate = "POST /bucket/key?uploads="
	linePart2    = "PUT /bucket/key?partNumber=2&" + uploadID
	lineComplete = "POST /bucket/key?" + uploadID
	lineAbort    = "DELETE /bucket/key?" + uploadID
)

func saying(text string) func(net.Conn) bool {
	return func(link net.Conn) bool {
		io.WriteString(link, text)
		return !strings.Contains(text, "Connection: close")
	}
}

func TestAnUpload(t *testing.T) {
	u := &uploads{}
	url, _ := server(t, u.serve)
	client := newClient(t, Config{Hosts: []string{url}, PartSize: 1000})
	body := block(bytes.Repeat([]byte("0123456789"), 250))
	result := do(client, Request{Op: Multipart, Body: body})
	expect(t, result, "")
	want := []string{lineInitiate, "PUT /bucket/key?partNumber=1&" + uploadID, linePart2, "PUT /bucket/key?partNumber=3&" + uploadID, lineComplete}
	if !slices.Equal(u.asked(), want) || !bytes.Equal(u.parts, body) {
		t.Fatalf("%q", u.asked())
	}
	if list := "<CompleteMultipartUpload><Part><PartNumber>1</PartNumber><ETag>&#34;&lt;1000&gt;&#34;</ETag></Part>"; !strings.HasPrefix(u.complete, list) {
		t.Fatal(u.complete)
	}
	if result.Bytes != 2500 || result.Objects != 1 || result.FirstByte.IsZero() || result.Untouched {
		t.Fatalf("%+v", result)
	}
	u.lines = nil
	expect(t, do(client, Request{Op: Multipart, Body: block{}}), "")
	if len(u.asked()) != 3 {
		t.Fatalf("an empty object: %q", u.asked())
	}
}

// An upload that fails leaves no parts behind, unless its completion may be under way.
func TestUploadsThatFail(t *testing.T) {
	hang := func(link net.Conn) bool { io.Copy(io.Discard, link); return false }
	lost := func(net.Conn) bool { return false }
	slow := "HTTP/1.1 503 Slow\r\nContent-Length: 21\r\n\r\n<Code>SlowDown</Code>"
	failed := "<Error><Code>InternalError</Code></Error>"
	for name, c := range map[string]struct {
		line    string
		instead func(net.Conn) bool
		want    string
		aborted bool
		unsure  bool
	}{
		"initiate refused":     {lineInitiate, saying(slow), "http: 503 SlowDown", false, false},
		"initiate nonsense":    {lineInitiate, saying(fine), "protocol: an upload without a name", false, false},
		"part refused":         {linePart2, saying(slow), "http: 503 SlowDown", true, false},
		"part lost":            {linePart2, lost, "reset: closed by the server", true, false},
		"part hangs":           {linePart2, hang, "timeout: no answer in time", true, false},
		"part closes":          {linePart2, saying("HTTP/1.1 200 OK\r\nETag: e\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"), "", false, false},
		"completion refused":   {lineComplete, saying(slow), "http: 503 SlowDown", true, false},
		"completion breaks":    {lineComplete, saying("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), "http: 500 Internal Server Error", true, true},
		"completion fails":     {lineComplete, saying(fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(failed), failed)), "http: 200 InternalError", true, true},
		"completion, proxy":    {lineComplete, saying("HTTP/1.1 502 No\r\nContent-Length: 0\r\n\r\n"), "http: 502 Bad Gateway", false, true},
		"completion, late":     {lineComplete, saying("HTTP/1.1 504 No\r\nContent-Length: 0\r\n\r\n"), "http: 504 Gateway Timeout", false, true},
		"completion lost":      {lineComplete, lost, "reset: closed by the server", false, true},
		"completion hangs":     {lineComplete, hang, "timeout: no answer in time", false, true},
		"completion, nonsense": {lineComplete, saying(fine), "protocol: a completion that is none", false, true},
	} {
		t.Run(name, func(t *testing.T) {
			u := &uploads{instead: map[string]func(net.Conn) bool{c.line: c.instead}}
			url, _ := server(t, u.serve)
			client := newClient(t, Config{Hosts: []string{url}, PartSize: 1000})
			until := time.Now().Add(20 * time.Second)
			if strings.HasPrefix(c.want, "timeout") {
				until = time.Now().Add(200 * time.Millisecond)
			}
			result := do(client, Request{Op: Multipart, Body: make(block, 2500), Until: until})
			expect(t, result, c.want)
			lines := u.asked()
			if slices.Contains(lines, lineAbort) != c.aborted || result.Unsure() != c.unsure {
				t.Fatalf("unsure: %v; %q", result.Unsure(), lines)
			}
		})
	}
}

func TestAnUploadThatIsCut(t *testing.T) {
	u := &uploads{}
	var client *Client
	u.instead = map[string]func(net.Conn) bool{linePart2: func(link net.Conn) bool {
		client.Cut()
		io.Copy(io.Discard, link)
		return false
	}}
	url, _ := server(t, u.serve)
	client = newClient(t, Config{Hosts: []string{url}, PartSize: 1000})
	result := do(client, Request{Op: Multipart, Body: make(block, 2500)})
	expect(t, result, "cut: the run ended")
	if lines := u.asked(); lines[len(lines)-1] != lineAbort || result.Unsure() {
		t.Fatalf("%q", lines)
	}
}

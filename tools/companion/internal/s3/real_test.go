package s3

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// block is a body of bytes in memory.
type block []byte

func (b block) Size() int64                             { return int64(len(b)) }
func (b block) Sum() [32]byte                           { return sha256.Sum256(b) }
func (b block) Section(offset, size int64) Body         { return b[offset : offset+size] }
func (b block) WriteTo(to io.Writer) (n int64, _ error) { return bytes.NewReader(b).WriteTo(to) }

var oddKeys = []string{"plain", "with space", "plus+plus", "percent%41", "a//b", "/leading", "trailing/", "ünï/日本語/🎉", "?query=1&x", "#hash",
	"quote\"'<>&", "semi;colon:at@comma,", "dots/../x/./y", "tilde~_-.", "brackets[]{}|\\^`", "new\nline\ttab", "$!*()=", "\u00a0nbsp"}

// Everything that the client can do, against a real server: S3_TEST_HOST=http://rgw1:7480 and the keys in AWS_*.
func TestARealServer(t *testing.T) {
	url := os.Getenv("S3_TEST_HOST")
	if url == "" {
		t.Skip("S3_TEST_HOST names no server")
	}
	for _, unsigned := range []bool{false, true} {
		t.Run(fmt.Sprintf("unsigned=%v", unsigned), func(t *testing.T) {
			client, err := New(Config{Hosts: []string{url}, Workers: 4, Unsigned: unsigned, PartSize: 5 << 20, InsecureTLS: true,
				AccessKey: os.Getenv("AWS_ACCESS_KEY_ID"), SecretKey: os.Getenv("AWS_SECRET_ACCESS_KEY"), Session: os.Getenv("AWS_SESSION_TOKEN")})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			bucket := fmt.Sprintf("cbt-client-%d", rand.Int63())
			toBucket(t, client, "PUT", bucket)
			do := func(want string, request Request) Result {
				t.Helper()
				var result Result
				request.Bucket, request.Until = bucket, time.Now().Add(30*time.Second)
				client.Do(&request, &result)
				if said := strings.TrimSuffix(result.Kind+": "+result.Message, ": "); said != want {
					t.Errorf("%s %q: %q instead of %q (status %d)", request.Op, request.Key, said, want, result.Status)
				}
				return result
			}
			for number, key := range oddKeys {
				content := bytes.Repeat([]byte{byte(number)}, []int{0, 1, 4096, 100_000}[number%4])
				do("", Request{Op: Put, Key: key, Body: block(content)})
				var sink bytes.Buffer
				if got := do("", Request{Op: Get, Key: key, Sink: &sink}); !bytes.Equal(sink.Bytes(), content) || got.Bytes != int64(len(content)) {
					t.Errorf("GET %q: %d bytes, %d in the sink, instead of %d", key, got.Bytes, sink.Len(), len(content))
				}
				do("", Request{Op: Get, Key: key})
				do("", Request{Op: Stat, Key: key})
			}
			var keys []string
			for after, more := "", true; more; {
				page := do("", Request{Op: List, StartAfter: after, MaxKeys: 5, WantKeys: true})
				if len(page.Keys) == 0 || len(page.Keys) != len(page.Sizes) || page.Objects != int64(len(page.Keys)) {
					t.Fatalf("a page of %d keys, %d sizes, %d objects", len(page.Keys), len(page.Sizes), page.Objects)
				}
				keys = append(keys, page.Keys...)
				after, more = page.Keys[len(page.Keys)-1], page.Truncated
			}
			want := slices.Clone(oddKeys)
			slices.Sort(want)
			if !slices.Equal(keys, want) {
				t.Errorf("LIST found %q instead of %q", keys, want)
			}
			if one := do("", Request{Op: List, Key: "with ", MaxKeys: 5}); one.Objects != 1 || one.Truncated {
				t.Errorf("LIST of a prefix: %+v", one)
			}
			large := make(block, 12<<20)
			rand.New(rand.NewSource(1)).Read(large)
			var sink bytes.Buffer
			do("", Request{Op: Multipart, Key: "large object+", Body: large})
			if got := do("", Request{Op: Get, Key: "large object+", Sink: &sink}); got.Bytes != large.Size() || !bytes.Equal(sink.Bytes(), large) {
				t.Error("the object of a MULTIPART is not what was sent")
			}
			if got := do("", Request{Op: Get, Key: "large object+"}); got.Bytes != large.Size() {
				t.Errorf("%d bytes thrown away", got.Bytes)
			}
			for _, key := range append(want, "large object+") {
				do("", Request{Op: Delete, Key: key})
			}
			do("", Request{Op: Delete, Key: "never there"})
			do("http: 404 NoSuchKey", Request{Op: Get, Key: "plain"})
			do("http: 404 Not Found", Request{Op: Stat, Key: "plain"})
			toBucket(t, client, "DELETE", bucket)
			do("http: 404 NoSuchBucket", Request{Op: Put, Key: "plain", Body: block("x")})
			do("http: 404 NoSuchBucket", Request{Op: Multipart, Key: "plain", Body: block("x")})
			if len(client.conns) != 1 || client.Reconnects() != 0 {
				t.Errorf("%d connections, %d reconnects: it should have been one connection for all", len(client.conns), client.Reconnects())
			}
		})
	}
}

func toBucket(t *testing.T, client *Client, method, bucket string) {
	t.Helper()
	x, said := client.dial(client.hosts[0], time.Now().Add(10*time.Second))
	if said.kind == "" {
		said = x.trip(&call{method: method, bucket: bucket, payload: emptyPayload, until: time.Now().Add(10 * time.Second)}, time.Now())
		client.mu.Lock()
		client.drop(x)
		client.mu.Unlock()
	}
	if said.kind != "" {
		t.Fatalf("%s %s: %v", method, bucket, said)
	}
}

// An upload that is cut leaves no parts on a real server.
func TestARealServerHasNoPartsLeft(t *testing.T) {
	url := os.Getenv("S3_TEST_HOST")
	if url == "" {
		t.Skip("S3_TEST_HOST names no server")
	}
	config := Config{Hosts: []string{url}, Workers: 1, PartSize: 5 << 20, InsecureTLS: true, AccessKey: os.Getenv("AWS_ACCESS_KEY_ID"),
		SecretKey: os.Getenv("AWS_SECRET_ACCESS_KEY"), Session: os.Getenv("AWS_SESSION_TOKEN")}
	client, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	other, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	bucket := fmt.Sprintf("cbt-client-%d", rand.Int63())
	toBucket(t, other, "PUT", bucket)
	defer toBucket(t, other, "DELETE", bucket)
	parts := 0
	body := numbered{make(block, 30<<20), func() {
		if parts++; parts == 3 {
			client.Cut()
		}
	}}
	var result Result
	client.Do(&Request{Op: Multipart, Bucket: bucket, Key: "large", Body: body, Until: time.Now().Add(time.Minute)}, &result)
	if result.Kind != KindCut || result.Unsure() || parts != 3 {
		t.Fatalf("%d parts; %+v", parts, result)
	}
	x, said := other.dial(other.hosts[0], time.Now().Add(10*time.Second))
	if said.kind != "" {
		t.Fatal(said)
	}
	defer x.Close()
	var answer excerpt
	said = x.trip(&call{method: "GET", bucket: bucket, query: []byte("uploads="), payload: emptyPayload, into: &answer, until: time.Now().Add(10 * time.Second)}, time.Now())
	if said.kind != "" || !bytes.Contains(answer.kept, []byte("<ListMultipartUploadsResult")) || bytes.Contains(answer.kept, []byte("<UploadId>")) {
		t.Fatalf("%v: %s", said, answer.kept)
	}
}

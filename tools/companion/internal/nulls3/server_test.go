package nulls3

import (
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"cbt-plugins/companion/internal/s3"
)

type block []byte

func (b block) Size() int64                             { return int64(len(b)) }
func (b block) Sum() [32]byte                           { return sha256.Sum256(b) }
func (b block) Section(offset, size int64) s3.Body      { return b[offset : offset+size] }
func (b block) WriteTo(to io.Writer) (n int64, _ error) { return bytes.NewReader(b).WriteTo(to) }

// start serves until the function is called that it returns: that gives what the server printed.
func start(t *testing.T, o options) (client *s3.Client, stop func() map[string]int64) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	signals, ended := make(chan os.Signal, 1), make(chan error, 1)
	go func() {
		ended <- serve(listener, o, signals, write)
		write.Close()
	}()
	client, err = s3.New(s3.Config{Hosts: []string{"http://" + listener.Addr().String()}, AccessKey: "a", SecretKey: "s", Workers: 1, PartSize: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return client, func() map[string]int64 {
		signals <- syscall.SIGTERM
		var counts map[string]int64
		if err := json.NewDecoder(read).Decode(&counts); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		client.Close()
		return counts
	}
}

func ask(client *s3.Client, request s3.Request) (result s3.Result) {
	request.Bucket, request.Until = "bucket", time.Now().Add(20*time.Second)
	client.Do(&request, &result)
	return result
}

func TestEveryOperation(t *testing.T) {
	client, stop := start(t, options{size: 70_000, keys: 25})
	for range 2 {
		for _, request := range []s3.Request{{Op: s3.Put, Key: "k", Body: block{}}, {Op: s3.Put, Key: "a/b c", Body: make(block, 3<<20)},
			{Op: s3.Stat, Key: "k"}, {Op: s3.Delete, Key: "k"}, {Op: s3.Multipart, Key: "k", Body: make(block, 3<<20)}} {
			if result := ask(client, request); result.Kind != "" {
				t.Fatalf("%s: %+v", request.Op, result)
			}
		}
	}
	// a listing finds numbers of cbt-load that were written, and takes no other name for such a number
	for key, last := range map[string]int{"p<&/0000000027": 27, "p/9999999999.rnd": 0, "p/19999999999": 0} {
		client, stop := start(t, options{keys: 25})
		ask(client, s3.Request{Op: s3.Put, Key: key, Body: block{}})
		page := ask(client, s3.Request{Op: s3.List, Key: "p<&/", StartAfter: "p<&/0000000025", MaxKeys: 10})
		if page.Kind != "" || page.Truncated || page.Objects != int64(max(0, last-25)) {
			t.Fatalf("%s: %+v", key, page)
		}
		stop()
	}
	var sink bytes.Buffer
	if result := ask(client, s3.Request{Op: s3.Get, Key: "k", Sink: &sink}); result.Kind != "" || sink.Len() != 70_000 {
		t.Fatalf("%+v", result)
	}
	var keys []string
	for after, more := "", true; more; {
		page := ask(client, s3.Request{Op: s3.List, Key: "p<&/", StartAfter: after, MaxKeys: 10, WantKeys: true})
		if page.Kind != "" || len(page.Keys) == 0 || page.Sizes[0] != 70_000 {
			t.Fatalf("%+v", page)
		}
		keys = append(keys, page.Keys...)
		after, more = page.Keys[len(page.Keys)-1], page.Truncated
	}
	if len(keys) != 25 || keys[0] != "p<&/0000000001" || keys[24] != "p<&/0000000025" || !slices.IsSorted(keys) {
		t.Fatalf("%q", keys)
	}
	want := map[string]int64{"GET": 1, "PUT": 4, "STAT": 2, "DELETE": 2, "LIST": 3, "MULTIPART": 2 * (1 + 3 + 1), "bucket": 0, "failed": 0}
	for name, n := range stop() {
		if n != want[name] {
			t.Errorf("%s: %d instead of %d", name, n, want[name])
		}
	}
}

func TestPutsThatFail(t *testing.T) {
	client, stop := start(t, options{failPut: 100})
	if result := ask(client, s3.Request{Op: s3.Put, Key: "k", Body: make(block, 10)}); result.Kind != s3.KindHTTP || result.Message != "503 SlowDown" {
		t.Fatalf("%+v", result)
	}
	if counts := stop(); counts["failed"] != 1 || counts["PUT"] != 0 {
		t.Fatal(counts)
	}
}

func TestFlags(t *testing.T) {
	for _, line := range [][]string{{"--size", "-1"}, {"--fail-put", "101"}, {"--unknown"}} {
		if status := Main(line); status != 2 {
			t.Errorf("%q: exit status %d", line, status)
		}
	}
	if status := Main([]string{"--listen", "127.0.0.1:0", "--", "/no/such/program"}); status != 1 {
		t.Errorf("exit status %d without a program", status)
	}
	if status := Main([]string{"--listen", "no-such-address.invalid:1"}); status != 1 {
		t.Errorf("exit status %d without an address", status)
	}
}

func TestServesAsLongAsAProgramRuns(t *testing.T) {
	for script, status := range map[string]int{
		"exec 3<>/dev/tcp/127.0.0.1/$PORT && printf 'HEAD /b/k HTTP/1.0\\r\\n\\r\\n' >&3 && grep -q '200 OK' <&3": 0,
		"exit 7": 7, "kill -9 $$": 1} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("PORT", strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
		if found := beside(listener, options{size: 1}, []string{"bash", "-c", script}); found != status {
			t.Errorf("%s: exit status %d, not %d", script, found, status)
		}
	}
}

func TestHTTPS(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan os.Signal, 1)
	ended := make(chan error, 1)
	go func() { ended <- serve(encrypted(listener), options{size: 5}, stop, io.Discard) }()
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	answer, err := client.Get("https://" + listener.Addr().String() + "/b/k")
	if err != nil || answer.ContentLength != 5 {
		t.Fatal(answer, err)
	}
	stop <- syscall.SIGTERM
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

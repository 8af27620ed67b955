package s3_test

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"cbt-plugins/companion/internal/nulls3"
	"cbt-plugins/companion/internal/s3"
)

// TestMain is also the null server, in a process of its own: its processor time must not count as the client's.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "null" {
		go func() { // the test has ended, in whatever way
			io.Copy(io.Discard, os.Stdin)
			os.Exit(1)
		}()
		os.Exit(nulls3.Main(os.Args[2:]))
	}
	os.Exit(m.Run())
}

func nullServer(tb testing.TB, flags ...string) string {
	tb.Helper()
	server := exec.Command(os.Args[0], append([]string{"null", "--listen", "127.0.0.1:0"}, flags...)...)
	said, err := server.StderrPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := server.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	if err := server.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		server.Process.Signal(syscall.SIGTERM)
		server.Wait()
	})
	line, err := bufio.NewReader(said).ReadString('\n')
	_, url, found := strings.Cut(strings.TrimSpace(line), ": ")
	if err != nil || !found {
		tb.Fatalf("the null server said %q, %v", line, err)
	}
	return url
}

func TestNullServerNamesItsScheme(t *testing.T) {
	for scheme, flags := range map[string][]string{"http": nil, "https": {"--tls"}} {
		if url := nullServer(t, flags...); !strings.HasPrefix(url, scheme+"://") {
			t.Errorf("%s instead of %s", url, scheme)
		}
	}
}

// block is a body of bytes in memory.
type block []byte

func (b block) Size() int64                             { return int64(len(b)) }
func (b block) Sum() [32]byte                           { return sha256.Sum256(b) }
func (b block) Section(offset, size int64) s3.Body      { return b[offset : offset+size] }
func (b block) WriteTo(to io.Writer) (n int64, _ error) { return bytes.NewReader(b).WriteTo(to) }

func processorTime() time.Duration {
	var used syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkClient prints the processor time of a request as cpu-us/op, with 32 requests under way.
func BenchmarkClient(b *testing.B) {
	url := nullServer(b)
	large := nullServer(b, "--size", fmt.Sprint(16<<20))
	small := block(bytes.Repeat([]byte("x"), 4096))
	for name, c := range map[string]struct {
		url      string
		ops      []s3.Op
		body     block
		unsigned bool
	}{
		"stat":         {url, []s3.Op{s3.Stat}, small, false},
		"get":          {url, []s3.Op{s3.Get}, small, false},
		"put-signed":   {url, []s3.Op{s3.Put}, small, false},
		"put-unsigned": {url, []s3.Op{s3.Put}, small, true},
		"mixed":        {url, mix(), small, false},
		"list":         {url, []s3.Op{s3.List}, small, false},
		"get-16MiB":    {large, []s3.Op{s3.Get}, nil, false},
		"put-16MiB":    {url, []s3.Op{s3.Put}, make(block, 16<<20), true},
	} {
		b.Run(name, func(b *testing.B) {
			expected := s3.Expected{Sized: true, Size: 4096, ETag: s3.Fingerprint([]byte("d41d8cd98f00b204e9800998ecf8427e"))}
			if c.url == large {
				expected.Size = 16 << 20
			}
			client, err := s3.New(s3.Config{Hosts: []string{c.url}, AccessKey: "a", SecretKey: "s", Workers: 32, Unsigned: c.unsigned})
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close()
			var next atomic.Int64
			var workers sync.WaitGroup
			b.ReportAllocs()
			b.ResetTimer()
			before := processorTime()
			for worker := 0; worker < 32; worker++ {
				workers.Add(1)
				go func() {
					defer workers.Done()
					request, result := s3.Request{Bucket: "bucket", Key: "cbt-load/01-4KiB/0000000017", Body: c.body, MaxKeys: 1000, Expected: expected}, s3.Result{}
					for {
						n := next.Add(1)
						if n > int64(b.N) {
							return
						}
						request.Op, request.Until = c.ops[n%int64(len(c.ops))], time.Now().Add(30*time.Second)
						if client.Do(&request, &result); result.Kind != "" {
							b.Errorf("%s: %s", result.Kind, result.Message)
							return
						}
					}
				}()
			}
			workers.Wait()
			b.ReportMetric(float64(processorTime()-before)/1e3/float64(b.N), "cpu-us/op")
		})
	}
}

// mix is 45 % GET, 35 % PUT, 15 % STAT, 5 % DELETE, spread evenly.
func mix() []s3.Op {
	var ops []s3.Op
	for i := 0; i < 100; i++ {
		switch at := i * 37 % 100; {
		case at < 45:
			ops = append(ops, s3.Get)
		case at < 80:
			ops = append(ops, s3.Put)
		case at < 95:
			ops = append(ops, s3.Stat)
		default:
			ops = append(ops, s3.Delete)
		}
	}
	return ops
}

// A day's run must not feed the garbage collector with every request: none that is made without a body's hash allocates.
func TestRequestsDoNotAllocate(t *testing.T) {
	client, err := s3.New(s3.Config{Hosts: []string{nullServer(t)}, AccessKey: "a", SecretKey: "s", Workers: 1, Unsigned: true})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var result s3.Result
	for _, op := range []s3.Op{s3.Get, s3.Put, s3.Stat, s3.Delete} {
		request := s3.Request{Op: op, Bucket: "bucket", Key: "key", Body: make(block, 4096), Expected: s3.Expected{Sized: true, Size: 4096}}
		if n := testing.AllocsPerRun(500, func() {
			request.Until = time.Now().Add(10 * time.Second)
			if client.Do(&request, &result); result.Kind != "" {
				t.Fatalf("%+v", result)
			}
		}); n >= 1 {
			t.Errorf("%s: %v allocations", op, n)
		}
	}
}

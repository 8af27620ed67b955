// Package nulls3 is an S3 server that keeps nothing: the ceiling of a load generator is measured against it.
package nulls3

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/valyala/fasthttp"
)

// options are the flags of `cbt-load null`.
type options struct {
	listen  string
	size    int
	keys    int
	delay   time.Duration
	failPut float64
}

// counts are the requests that were answered, by what they were.
type counts struct{ get, put, stat, remove, list, multipart, bucket, failed atomic.Int64 }

// Main is `cbt-load null`: serves until SIGTERM or SIGINT, prints what it was asked and returns the exit status.
func Main(args []string) int {
	var o options
	flags := flag.NewFlagSet("cbt-load null", flag.ContinueOnError)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:7099", "address and port")
	flags.IntVar(&o.size, "size", 4096, "bytes of every object")
	flags.IntVar(&o.keys, "keys", 10000, "objects that a listing finds below its prefix")
	flags.DurationVar(&o.delay, "delay", 0, "time that each answer takes")
	flags.Float64Var(&o.failPut, "fail-put", 0, "percent of the PUTs that are refused with 503 SlowDown")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if flags.NArg() > 0 || o.size < 0 || o.keys < 0 || o.delay < 0 || o.failPut < 0 || o.failPut > 100 {
		fmt.Fprintln(os.Stderr, "cbt-load null: a value is out of range, or there is more than flags")
		return 2
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cbt-load null:", err)
		return 1
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	fmt.Fprintf(os.Stderr, "cbt-load null: http://%s\n", listener.Addr())
	if err := serve(listener, o, stop, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cbt-load null:", err)
		return 1
	}
	return 0
}

// serve answers until a signal comes, then prints the counts as one line of JSON.
func serve(listener net.Listener, o options, stop <-chan os.Signal, out io.Writer) error {
	n := &counts{}
	handler := &handler{options: o, counts: n, object: make([]byte, o.size)}
	server := &fasthttp.Server{Handler: handler.answer, Name: "cbt-load-null", StreamRequestBody: true,
		MaxRequestBodySize: 1 << 20, NoDefaultContentType: true, ReadBufferSize: 16 << 10}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case err := <-ended:
		return err
	case <-stop:
	}
	listener.Close()
	return json.NewEncoder(out).Encode(n.byName())
}

func (n *counts) byName() map[string]int64 {
	return map[string]int64{"GET": n.get.Load(), "PUT": n.put.Load(), "STAT": n.stat.Load(), "DELETE": n.remove.Load(),
		"LIST": n.list.Load(), "MULTIPART": n.multipart.Load(), "bucket": n.bucket.Load(), "failed": n.failed.Load()}
}

// Package nulls3 is an S3 server that keeps nothing: the ceiling of a load generator is measured against it.
package nulls3

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
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
	tls     bool
}

// counts are the requests that were answered, by what they were.
type counts struct {
	get, put, stat, remove, list, multipart, bucket, failed atomic.Int64
	written                                                 atomic.Int64 // greatest number of a key
}

// Main is `cbt-load null`: serves until SIGTERM or SIGINT, prints what it was asked and returns the exit status. With a
// program behind its options it serves as long as that runs, and returns its exit status.
func Main(args []string) int {
	var o options
	flags := flag.NewFlagSet("cbt-load null", flag.ContinueOnError)
	flags.StringVar(&o.listen, "listen", "127.0.0.1:7099", "address and port")
	flags.IntVar(&o.size, "size", 4096, "bytes of every object")
	flags.IntVar(&o.keys, "keys", 10000, "objects that a listing finds below its prefix; more if a greater number was written")
	flags.DurationVar(&o.delay, "delay", 0, "time that each answer takes")
	flags.Float64Var(&o.failPut, "fail-put", 0, "percent of the PUTs that are refused with 503 SlowDown")
	flags.BoolVar(&o.tls, "tls", false, "https, with a certificate that nobody has signed")
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return 0
	} else if err != nil {
		return 2
	}
	if o.size < 0 || o.keys < 0 || o.delay < 0 || o.failPut < 0 || o.failPut > 100 {
		fmt.Fprintln(os.Stderr, "cbt-load null: a value is out of range")
		return 2
	}
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cbt-load null:", err)
		return 1
	}
	scheme := "http"
	if o.tls {
		scheme, listener = "https", encrypted(listener)
	}
	if flags.NArg() > 0 {
		return beside(listener, o, flags.Args())
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	fmt.Fprintf(os.Stderr, "cbt-load null: %s://%s\n", scheme, listener.Addr())
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

// encrypted is a listener of https with a certificate of its own.
func encrypted(listener net.Listener) net.Listener {
	certificate, key, err := fasthttp.GenerateTestCertificate("localhost")
	if err != nil {
		panic(err) // no entropy
	}
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		panic(err)
	}
	return tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}})
}

// beside serves while a program runs that has our input and output, and ends with us: a killed server leaves nobody behind.
func beside(listener net.Listener, o options, argv []string) int {
	runtime.LockOSThread() // the kernel sends Pdeathsig when the thread ends that started the program
	program := exec.Command(argv[0], argv[1:]...)
	program.Stdin, program.Stdout, program.Stderr = os.Stdin, os.Stdout, os.Stderr
	program.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := program.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "cbt-load null:", err)
		return 1
	}
	signals, ended := make(chan os.Signal, 1), make(chan os.Signal)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		for received := range signals {
			program.Process.Signal(received)
		}
	}()
	go serve(listener, o, ended, io.Discard)
	program.Wait()
	if status := program.ProcessState.ExitCode(); status >= 0 {
		return status
	}
	return 1 // a signal ended it
}

func (n *counts) byName() map[string]int64 {
	return map[string]int64{"GET": n.get.Load(), "PUT": n.put.Load(), "STAT": n.stat.Load(), "DELETE": n.remove.Load(),
		"LIST": n.list.Load(), "MULTIPART": n.multipart.Load(), "bucket": n.bucket.Load(), "failed": n.failed.Load()}
}

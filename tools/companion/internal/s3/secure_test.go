package s3

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"
)

func certificate(t *testing.T) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	signed, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{signed}, PrivateKey: key}
}

func TestOverTLS(t *testing.T) {
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	object := bytes.Repeat([]byte{1}, 500_000)
	answer := fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(object), object)
	serveOn(t, tls.NewListener(plain, &tls.Config{Certificates: []tls.Certificate{certificate(t)}}), answering(answer))
	url := "https://" + plain.Addr().String()
	client := newClient(t, Config{Hosts: []string{url}, InsecureTLS: true})
	for range 3 {
		result := do(client, Request{Op: Get})
		expect(t, result, "")
		if result.Bytes != int64(len(object)) {
			t.Fatalf("%+v", result)
		}
		expect(t, do(client, Request{Op: Get, Expected: Expected{true, int64(len(object)), 0}}), "")
		for _, h := range client.hosts { // as if they had been idle for long
			for _, x := range h.idle {
				x.since = time.Time{}
			}
		}
	}
	if len(client.conns) != 1 {
		t.Fatalf("%d connections", len(client.conns))
	}
	result := do(newClient(t, Config{Hosts: []string{url}}), Request{Op: Put})
	if result.Kind != KindRefused || !strings.Contains(result.Message, "certificate") || !result.Untouched {
		t.Fatalf("%+v", result)
	}
}

func TestAddresses(t *testing.T) {
	for _, host := range []string{"[::1]", "localhost"} {
		listener, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Skip(err)
		}
		serveOn(t, listener, answering(fine))
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		client := newClient(t, Config{Hosts: []string{"http://" + host + ":" + port}})
		expect(t, do(client, Request{Op: Get}), "")
	}
}

// Connections that ended while nobody used them are found before a request goes out, if they were idle for long.
func TestAConnectionThatEndedLongAgo(t *testing.T) {
	ended := make(chan struct{}, 10)
	url, _ := server(t, func(link net.Conn, _ int) {
		link.Read(make([]byte, 4096))
		fmt.Fprint(link, fine)
		link.(*net.TCPConn).CloseWrite()
		ended <- struct{}{}
		link.Read(make([]byte, 4096))
	})
	client := newClient(t, Config{Hosts: []string{url}})
	for range 3 {
		expect(t, do(client, Request{Op: Get}), "")
		<-ended
		x := client.hosts[0].idle[0]
		eventually(t, "the end has come", x.stale)
		x.since = time.Time{}
	}
	if client.Reconnects() != 0 || len(client.conns) != 1 {
		t.Fatalf("%d sent again, %d connections", client.Reconnects(), len(client.conns))
	}
}

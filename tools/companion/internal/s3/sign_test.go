package s3

import (
	"encoding/hex"
	"math/rand"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7/pkg/signer"
)

const alphabet = "abcXYZ019 -_.~/+%&=?#:;,@!$'()*[]{}|\\^`\"<>\täßñ日本語🎉\u00a0"

func randomText(chance *rand.Rand, longest int) string {
	runes := []rune(alphabet)
	var text strings.Builder
	for n := chance.Intn(longest) + 1; n > 0; n-- {
		text.WriteRune(runes[chance.Intn(len(runes))])
	}
	return text.String()
}

// The signature is that of minio-go for the same request, whatever the key, the query, the host and the credentials.
func TestSignaturesAreThoseOfMinioGo(t *testing.T) {
	chance := rand.New(rand.NewSource(7))
	for round := 0; round < 1000; round++ {
		access, secret, region := "AK"+hex.EncodeToString([]byte(randomText(chance, 4))), randomText(chance, 30), "us-east-1"
		session := ""
		if chance.Intn(3) == 0 {
			session = hex.EncodeToString([]byte(randomText(chance, 40)))
		}
		if chance.Intn(3) == 0 {
			region = "default"
		}
		c := call{method: []string{"GET", "PUT", "HEAD", "DELETE", "POST"}[chance.Intn(5)], bucket: "b-1.x", key: randomText(chance, 40)}
		c.hostStyle = chance.Intn(2) == 0
		c.payload = []string{emptyPayload, unsignedPayload, strings.Repeat("ab", 32)}[chance.Intn(3)]
		switch chance.Intn(3) {
		case 0:
			c.key = ""
			c.query = appendListQuery(nil, randomText(chance, 20), []string{"", randomText(chance, 20)}[chance.Intn(2)], chance.Intn(1000)+1)
		case 1:
			c.query = appendPartQuery(nil, chance.Intn(10000)+1, randomText(chance, 30))
		}
		if chance.Intn(3) == 0 {
			c.text = []byte("<x/>") // a body with a Content-Type, which must be signed
		}
		authority := []string{"rgw1:7480", "10.0.0.1", "[::1]:7480", "s3.example.org"}[chance.Intn(4)]
		ours := &sigV4{access: access, secret: secret, session: session, region: region}

		path := "/" + c.bucket + "/" + c.key
		host := authority
		if c.key == "" {
			path = "/" + c.bucket + "/"
		}
		if c.hostStyle {
			path, host = "/"+c.key, c.bucket+"."+authority
		}
		theirs := &http.Request{Method: c.method, Host: host, URL: &url.URL{Scheme: "http", Host: host, Path: path, RawQuery: string(c.query)}, Header: http.Header{}}
		theirs.Header.Set("X-Amz-Content-Sha256", c.payload)
		if len(c.text) > 0 {
			theirs.Header.Set("Content-Type", "application/xml")
		}
		switch chance.Intn(4) {
		case 0:
			c.extra = ByCustomer([]byte("0123456789abcdef0123456789abcdef")).ofData
		case 1:
			c.extra = ByServer([]string{"", "key-1"}[chance.Intn(2)]).ofNew
		}
		if c.extra != nil {
			for _, line := range strings.Split(strings.TrimSpace(c.extra.lines), "\r\n") {
				name, value, _ := strings.Cut(line, ": ")
				theirs.Header.Set(name, value)
			}
		}
		theirs = signer.SignV4(*theirs, access, secret, session, region)
		stamp, err := time.Parse("20060102T150405Z", theirs.Header.Get("X-Amz-Date"))
		if err != nil {
			t.Fatal(err)
		}
		head := string(c.appendHead(nil, ours, host, stamp))
		want := "\r\nAuthorization: " + theirs.Header.Get("Authorization") + "\r\n"
		if !strings.Contains(head, want) {
			t.Fatalf("round %d, key %q, query %q:\nwant %s\ngot\n%s", round, c.key, c.query, want, head)
		}
		if session != "" && !strings.Contains(head, "\r\nX-Amz-Security-Token: "+session+"\r\n") {
			t.Fatal("no session token")
		}
	}
}

// A connection that has signed before signs as a new one does, also after the second, the day and the year have changed.
func TestSignaturesOverTime(t *testing.T) {
	at := time.Date(2026, 12, 31, 23, 59, 58, 0, time.UTC)
	old := &sigV4{access: "a", secret: "s", region: "r"}
	seen := map[string]bool{}
	for range 4 {
		fresh := &sigV4{access: "a", secret: "s", region: "r"}
		c := call{method: "GET", bucket: "b", key: "k", payload: emptyPayload}
		want := string(c.appendHead(nil, fresh, "h", at))
		if got := string(c.appendHead(nil, old, "h", at)); got != want || seen[got] {
			t.Fatalf("%v:\n%s\ninstead of\n%s", at, got, want)
		}
		seen[want] = true
		at = at.Add(time.Second)
	}
}

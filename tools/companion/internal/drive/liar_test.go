package drive

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"cbt-plugins/companion/internal/s3"
	"cbt-plugins/companion/internal/spec"
)

// All objects of the liar have one size.
const (
	size   = 100
	head   = "HTTP/1.1 200 OK\r\n"
	tagged = head + "ETag: \"e\"\r\n"
)

// answer writes an answer; false: the connection ends with it.
type answer func(w io.Writer) bool

// text is an answer as it stands there.
func text(whole string) answer {
	return func(w io.Writer) bool {
		_, err := io.WriteString(w, whole)
		return err == nil
	}
}

// lasting is a text before the end of the connection.
func lasting(whole string) answer {
	return func(w io.Writer) bool {
		io.WriteString(w, whole)
		return false
	}
}

// body is a text with its length.
func body(of, content string) answer {
	return text(of + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(content), content))
}

func chunked(pieces ...string) answer {
	whole := tagged + "Transfer-Encoding: chunked\r\n\r\n"
	for _, one := range pieces {
		whole += fmt.Sprintf("%x\r\n%s\r\n", len(one), one)
	}
	return text(whole + "0\r\n\r\n")
}

// endless is a text and then another one, as often as somebody takes it; slowly with a pause.
func endless(begin, more string, pause time.Duration) answer {
	if pause == 0 {
		more = strings.Repeat(more, 100)
	}
	return func(w io.Writer) bool {
		io.WriteString(w, begin)
		for {
			if _, err := io.WriteString(w, more); err != nil {
				return false
			}
			time.Sleep(pause)
		}
	}
}

func silence(w io.Writer) bool { return endless("", "", time.Millisecond)(w) }

const wait = 10 * time.Millisecond

var bytes100 = strings.Repeat("x", size)

func contents(keys ...string) (all string) {
	for _, key := range keys {
		all += fmt.Sprintf("<Contents><Key>%s</Key><ETag>&quot;e&quot;</ETag><Size>%d</Size></Contents>", key, size)
	}
	return all
}

func page(truncated bool, inner string) answer {
	return body(head, fmt.Sprintf("<ListBucketResult><IsTruncated>%v</IsTruncated>%s</ListBucketResult>", truncated, inner))
}

const failing = "<?xml version=\"1.0\"?><Error><Code>SlowDown</Code></Error>"

// lies are what each answer to an operation gives: the error in the rows.
var lies = map[s3.Op]map[string]struct {
	answer answer
	gives  string
}{
	s3.Get: {
		"nothing":                     {body(tagged, ""), "length: shorter than the object"},
		"ten bytes":                   {body(tagged, bytes100[:10]), "length: shorter than the object"},
		"a byte more":                 {body(tagged, bytes100+"x"), "length: longer than the object"},
		"a gigabyte":                  {endless(tagged+"Content-Length: 1073741824\r\n\r\n", bytes100, 0), "length: longer than the object"},
		"no length, and a part":       {lasting(tagged + "\r\n" + bytes100[:40]), "length: shorter than the object"},
		"no length, and no end":       {endless(tagged+"\r\n", bytes100, 0), "length: longer than the object"},
		"its length, and a part":      {lasting(tagged + "Content-Length: 100\r\n\r\n" + bytes100[:40]), "reset: the answer ended early"},
		"short chunks":                {chunked("x", "y"), "length: shorter than the object"},
		"long chunks":                 {chunked(bytes100, bytes100), "length: longer than the object"},
		"chunks without an end":       {endless(tagged+"Transfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", 0), "length: longer than the object"},
		"chunks of nothing":           {endless(tagged+"Transfer-Encoding: chunked\r\n\r\n1;", bytes100, 0), "protocol: a chunked answer that is none"},
		"chunks that are none":        {text(tagged + "Transfer-Encoding: chunked\r\n\r\nzz\r\n" + bytes100), "protocol: a chunked answer that is none"},
		"trailers without an end":     {endless(tagged+"Transfer-Encoding: chunked\r\n\r\n0\r\n", "X: y\r\n", 0), "protocol: a chunked answer that is none"},
		"a part":                      {body("HTTP/1.1 206 Partial Content\r\n", bytes100), "http: 206 Partial Content"},
		"created":                     {body("HTTP/1.1 201 Created\r\n", bytes100), "http: 201 Created"},
		"no content":                  {text("HTTP/1.1 204 No Content\r\n\r\n"), "http: 204 No Content"},
		"not modified":                {text("HTTP/1.1 304 Not Modified\r\n\r\n"), "http: 304 Not Modified"},
		"a redirect to itself":        {body("HTTP/1.1 307 Temporary Redirect\r\nLocation: /b/p/0000000001\r\n", ""), "http: 307 Temporary Redirect"},
		"an error, as 200":            {body(head, failing), "http: 200 SlowDown"},
		"an error, as 200, in chunks": {chunked(failing), "http: 200 SlowDown"},
		"a page, as 200":              {body(head, "<html>welcome</html>"), "length: shorter than the object"},
		"an error without an end":     {endless("HTTP/1.1 500 No\r\n\r\n<Code>No</Code>", bytes100, 0), "http: 500 No"},
		"only interim answers":        {endless("", "HTTP/1.1 100 Continue\r\n\r\n", 0), "protocol: no end of interim answers"},
		"a head without an end":       {endless(head, "X: "+bytes100+"\r\n", 0), "protocol: the answer is not HTTP"},
		"a trickling head":            {endless(head+"X: ", "x", wait), "timeout: the answer did not end in time"},
		"a trickling object":          {endless(tagged+"Content-Length: 100\r\n\r\n", "x", wait), "timeout: the answer did not end in time"},
		"silence":                     {silence, "timeout: no answer in time"},
		"a length that is none":       {text(tagged + "Content-Length: -7\r\n\r\n" + bytes100), "protocol: the answer is not HTTP"},
		"a length of words":           {text(tagged + "Content-Length: many\r\n\r\n" + bytes100), "protocol: the answer is not HTTP"},
		"another protocol":            {text("SSH-2.0-OpenSSH_9.2\r\n\r\n"), "protocol: the answer is not HTTP"},
	},
	s3.Stat: {
		"another length":       {text(tagged + "Content-Length: 99\r\n\r\n"), "length: shorter than the object"},
		"a byte more":          {text(tagged + "Content-Length: 101\r\n\r\n"), "length: longer than the object"},
		"no length":            {text(tagged + "\r\n"), "length: not said"},
		"chunks":               {text(tagged + "Transfer-Encoding: chunked\r\n\r\n"), "length: not said"},
		"a part":               {text("HTTP/1.1 206 Partial Content\r\nContent-Length: 100\r\n\r\n"), "http: 206 Partial Content"},
		"no content":           {text("HTTP/1.1 204 No Content\r\n\r\n"), "http: 204 No Content"},
		"a redirect to itself": {text("HTTP/1.1 301 Moved\r\nLocation: /b/p/0000000001\r\n\r\n"), "http: 301 Moved Permanently"},
		"a trickling head":     {endless(head+"X: ", "x", wait), "timeout: the answer did not end in time"},
	},
	s3.Put: {
		"an error, as 200":       {body(tagged, failing), "http: 200 SlowDown"},
		"no ETag":                {body(head, ""), "protocol: no ETag: nothing was stored"},
		"a page, as 200":         {body(head, "<html>welcome</html>"), "protocol: no ETag: nothing was stored"},
		"a text without an end":  {endless(tagged+"\r\n", bytes100, 0), "protocol: more than such an answer says"},
		"accepted":               {body("HTTP/1.1 202 Accepted\r\nETag: \"e\"\r\n", ""), "http: 202 Accepted"},
		"no content":             {text("HTTP/1.1 204 No Content\r\nETag: \"e\"\r\n\r\n"), "http: 204 No Content"},
		"a redirect to itself":   {body("HTTP/1.1 307 Temporary Redirect\r\nLocation: /b/p/0000000001\r\n", ""), "http: 307 Temporary Redirect"},
		"a trickling text":       {endless(tagged+"Content-Length: 999\r\n\r\n", "x", wait), "timeout: the answer did not end in time"},
		"an answer cut off":      {lasting(tagged + "Content-Length: 999\r\n\r\n"), "reset: the answer ended early"},
		"the end before a word":  {lasting(""), "reset: closed by the server"},
		"silence":                {silence, "timeout: no answer in time"},
		"interim answers only":   {endless("", "HTTP/1.1 100 Continue\r\n\r\n", 0), "protocol: no end of interim answers"},
		"chunks that are none":   {text(tagged + "Transfer-Encoding: chunked\r\n\r\n-1\r\n"), "protocol: a chunked answer that is none"},
		"an error, as it should": {body("HTTP/1.1 503 Slow\r\n", failing), "http: 503 SlowDown"},
	},
	s3.Delete: {
		"an error, as 200":      {body(head, failing), "http: 200 SlowDown"},
		"a page, as 200":        {body(head, "<html>welcome</html>"), "protocol: a DELETE answered with a text"},
		"accepted":              {body("HTTP/1.1 202 Accepted\r\n", ""), "http: 202 Accepted"},
		"a redirect to itself":  {body("HTTP/1.1 307 Temporary Redirect\r\nLocation: /b/p/0000000001\r\n", ""), "http: 307 Temporary Redirect"},
		"a text without an end": {endless(head+"\r\n", bytes100, 0), "protocol: more than such an answer says"},
		"a trickling text":      {endless(head+"Content-Length: 999\r\n\r\n", "x", wait), "timeout: the answer did not end in time"},
	},
	s3.List: {
		"an error, as 200":       {body(head, failing), "protocol: a listing that is none"},
		"nothing":                {body(head, ""), "protocol: a listing that is none"},
		"half a page":            {body(head, "<ListBucketResult>"+contents("p/0000000001")), "protocol: a listing that is none"},
		"a part":                 {body("HTTP/1.1 206 Partial Content\r\n", ""), "http: 206 Partial Content"},
		"no content":             {text("HTTP/1.1 204 No Content\r\n\r\n"), "http: 204 No Content"},
		"others' keys":           {page(false, contents("q/1")), "protocol: a listing of keys that were not asked for, or in no order"},
		"others' keys, later":    {page(false, contents("p/1", "q/1")), "protocol: a listing of keys that were not asked for, or in no order"},
		"a key twice":            {page(false, contents("p/1", "p/1")), "protocol: a listing of keys that were not asked for, or in no order"},
		"keys in no order":       {page(false, contents("p/2", "p/3", "p/1")), "protocol: a listing of keys that were not asked for, or in no order"},
		"more, but no keys":      {page(true, ""), "protocol: a listing of nothing that says that there is more"},
		"no keys":                {page(false, ""), "protocol: a listing without an object that exists"},
		"not the first key":      {page(true, contents("p/0000000002", "p/0000000003")), "protocol: a listing without an object that exists"},
		"more than was asked":    {page(false, contents("p/1", "p/2", "p/3", "p/4")), "protocol: a listing of more keys than were asked for"},
		"keys without an end":    {endless(head+"\r\n<ListBucketResult>", contents("p/1"), 0), "protocol: a listing of more keys than were asked for"},
		"elements without end":   {endless(head+"\r\n<ListBucketResult>", "<CommonPrefixes><Prefix>p</Prefix></CommonPrefixes>", 0), "protocol: a listing without an end"},
		"a key without an end":   {endless(head+"\r\n<ListBucketResult><Contents><Key>", bytes100, 0), "protocol: a listing that is none"},
		"a trickling page":       {endless(head+"\r\n<ListBucketResult>", " ", wait), "timeout: the answer did not end in time"},
		"a redirect to itself":   {body("HTTP/1.1 301 Moved\r\nLocation: /b/\r\n", ""), "http: 301 Moved Permanently"},
		"its length, and a part": {lasting(head + "Content-Length: 999\r\n\r\n<ListBucketResult>"), "reset: the answer ended early"},
	},
}

// uploadLies are those of the requests of a MULTIPART, by how they begin.
var uploadLies = map[string]map[string]struct {
	answer answer
	gives  string
}{
	"POST uploads": {
		"an error, as 200": {body(head, failing), "http: 200 SlowDown"},
		"no name":          {body(head, "<InitiateMultipartUploadResult/>"), "protocol: an upload without a name"},
		"no end":           {endless(head+"\r\n", bytes100, 0), "protocol: more than such an answer says"},
	},
	"PUT part": {
		"an error, as 200": {body(tagged, failing), "http: 200 SlowDown"},
		"no ETag":          {body(head, ""), "protocol: no ETag: nothing was stored"},
		"no content":       {text("HTTP/1.1 204 No Content\r\n\r\n"), "http: 204 No Content"},
	},
	"POST": {
		"an error, as 200": {body(head, failing), "http: 200 SlowDown"},
		"a page, as 200":   {body(head, "<html>welcome</html>"), "protocol: a completion that is none"},
		"no end":           {endless(head+"\r\n", " ", 0), "protocol: more than such an answer says"},
		"spaces, slowly":   {endless(head+"\r\n", " ", wait), "timeout: the answer did not end in time"},
	},
}

// preparationLies are those of a listing before the load: what the run says when it gives up.
var preparationLies = map[string]struct {
	answer answer
	gives  string
}{
	"the same page for ever": {page(true, contents("p/0000000001")), "a listing of keys that were not asked for, or in no order"},
	"keys in no order":       {page(false, contents("p/0000000002", "p/0000000001")), "a listing of"}, // too many, where one was asked for
	"more, but no keys":      {page(true, ""), "a listing of nothing that says that there is more"},
	"others' keys":           {page(false, contents("q/1")), "a listing of keys that were not asked for, or in no order"},
	"no end":                 {endless(head+"\r\n<ListBucketResult>", contents("p/1"), 0), "a listing of more keys than were asked for"},
	"no sizes":               {page(false, "<Contents><Key>p/0000000001</Key></Contents>"), "a listing that is none"},
	"a size that is none":    {page(false, "<Contents><Key>p/0000000001</Key><Size>-</Size></Contents>"), "a listing that is none"},
	"a negative size":        {page(false, "<Contents><Key>p/0000000001</Key><Size>-1</Size></Contents>"), "a listing that is none"},
	"a size of exabytes":     {page(false, "<Contents><Key>p/0000000001</Key><Size>1000000000000000000</Size></Contents>"), "a listing that is none"},
	"a trickling page":       {endless(head+"\r\n<ListBucketResult>", " ", wait), "the answer did not end in time"},
}

// liar is a server that answers as one should, but for those requests that a test has an answer for.
type liar struct {
	mu    sync.Mutex
	seen  map[string]int
	lying map[string]answer // by what kindOf says
}

// kindOf is GET, PUT, STAT, DELETE, LIST of the load, or "prepare", "POST uploads", "PUT part", "POST".
func kindOf(r *http.Request, loading bool) string {
	query := r.URL.Query()
	switch {
	case query.Has("list-type") && loading && query.Get("max-keys") == "3":
		return "LIST"
	case query.Has("list-type"):
		return "prepare"
	case query.Has("uploads"):
		return "POST uploads"
	case query.Has("partNumber"):
		return "PUT part"
	case r.Method == "HEAD":
		return "STAT"
	}
	return r.Method
}

// honest are the right answers. Of a listing: one object, where that comes after what was asked for.
func honest(kind string, query url.Values) answer {
	switch kind {
	case "GET":
		return body(tagged, bytes100)
	case "STAT":
		return text(tagged + "Content-Length: 100\r\n\r\n")
	case "PUT", "PUT part":
		return body(tagged, "")
	case "DELETE":
		return text("HTTP/1.1 204 No Content\r\n\r\n")
	case "POST uploads":
		return body(head, "<InitiateMultipartUploadResult><UploadId>u</UploadId></InitiateMultipartUploadResult>")
	case "POST":
		return body(head, "<CompleteMultipartUploadResult/>")
	}
	if query.Get("start-after") < "p/0000000001" {
		return page(false, contents("p/0000000001"))
	}
	return page(false, "")
}

func (l *liar) serve(link net.Conn) {
	defer link.Close()
	for in := bufio.NewReader(link); ; {
		request, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		io.Copy(io.Discard, request.Body)
		kind := kindOf(request, true)
		l.mu.Lock()
		l.seen[kind]++
		reply := l.lying[kind]
		l.mu.Unlock()
		if reply == nil {
			reply = honest(kind, request.URL.Query())
		}
		if !reply(link) {
			return
		}
	}
}

// start listens until the test ends, which waits for nobody.
func (l *liar) start(t *testing.T) (url string) {
	t.Helper()
	l.seen = map[string]int{}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			link, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { link.Close() })
			go l.serve(link)
		}
	}()
	return "http://" + listener.Addr().String()
}

// numbered is a space whose objects are found by listing, old that of somebody else.
const (
	numbered = `"spaces":[{"name":"a","bucket":"b","prefix":"p/","sizes":[[100,100,1]],"rebuild":true}],`
	old      = `"spaces":[{"name":"a","bucket":"b","prefix":"p/","numbered":false}],`
)

// lieTo makes a run against a liar.
func lieTo(t *testing.T, l *liar, deadline float64, text string, change ...func(*Options)) *outcome {
	t.Helper()
	address := l.start(t)
	s, err := spec.Parse([]byte(fmt.Sprintf(`{"version":1,"hosts":[%q],"grace":1,"list_keys":3,"workers":1,"deadline":%g,%s}`, address, deadline, text)))
	if err != nil {
		t.Fatal(err)
	}
	made := func() *s3.Client {
		client, err := s3.New(s3.Config{Hosts: s.Hosts, AccessKey: "a", SecretKey: "s", Workers: 1, PartSize: 60})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
	client := made()
	t.Cleanup(client.Close)
	surroundings := func(o *Options) {
		o.Spec, o.Client, o.Cut, o.Hosts = s, client, client.Cut, client.Hosts
		o.Second = func() Client { return made() }
		for _, f := range change {
			f(o)
		}
	}
	return run(t, newServer(), `"duration":1,`+oneSpace+`"ops":[{"op":"GET","spaces":["a"]}]`, surroundings)
}

// gave checks that all requests of a run failed, the first one as it should, and that none of their bytes counts. What
// follows may find that no host is up, or the end of the run.
func gave(t *testing.T, got *outcome, want string) {
	t.Helper()
	if got.status != ExitGood || len(got.rows) == 0 || got.rows[0][columnError] != want {
		t.Fatalf("status %d, %q instead of %q\n%s", got.status, got.rows, want, got.text)
	}
	for text := range got.column(columnError) {
		if text != want && !strings.HasPrefix(text, "refused: ") && !strings.HasPrefix(text, "cut: ") {
			t.Fatalf("%q besides %q", text, want)
		}
	}
	wrong := isOtherObject(strings.SplitN(want, ":", 2)[0])
	if (got.end.Checksums > 0) != wrong {
		t.Fatalf("%d other objects", got.end.Checksums)
	}
}

// what is the part of a spec with one request of an operation, or, of listings, with requests for a moment.
func what(op s3.Op, space string) string {
	if op == s3.List {
		return fmt.Sprintf(`"duration":0.05,%s"ops":[{"op":"LIST","spaces":["a"]}]`, space)
	}
	return fmt.Sprintf(`%s"ops":[{"op":%q,"select":"r(1,1)","spaces":["a"]}]`, space, op)
}

// deadline is short where nothing else ends a request.
func deadline(gives string) float64 {
	if strings.HasPrefix(gives, s3.KindTimeout) {
		return 0.3
	}
	return 60
}

func TestEveryLieIsAFailedRequest(t *testing.T) {
	for op, answers := range lies {
		for name, lie := range answers {
			t.Run(string(op)+" "+name, func(t *testing.T) {
				t.Parallel()
				lying := map[string]answer{string(op): lie.answer}
				gave(t, lieTo(t, &liar{lying: lying}, deadline(lie.gives), what(op, numbered)), lie.gives)
				if op == s3.Get || op == s3.Stat { // of others: the same against the listing
					gave(t, lieTo(t, &liar{lying: lying}, deadline(lie.gives), what(op, old)), lie.gives)
				}
			})
		}
	}
	for kind, answers := range uploadLies {
		for name, lie := range answers {
			t.Run(kind+" "+name, func(t *testing.T) {
				t.Parallel()
				gave(t, lieTo(t, &liar{lying: map[string]answer{kind: lie.answer}}, deadline(lie.gives), what(s3.Multipart, numbered)), lie.gives)
			})
		}
	}
	for _, op := range []s3.Op{s3.Get, s3.Stat} {
		t.Run(string(op)+" another ETag", func(t *testing.T) {
			t.Parallel()
			other := text(head + "ETag: \"f\"\r\nContent-Length: 100\r\n\r\n")
			if op == s3.Get {
				other = body(head+"ETag: \"f\"\r\n", bytes100)
			}
			lying := map[string]answer{string(op): other}
			gave(t, lieTo(t, &liar{lying: lying}, 60, what(op, old)), "etag: another than in the listing")
		})
	}
}

func TestTheTruthIsASuccess(t *testing.T) {
	for _, op := range s3.Ops {
		for _, space := range []string{numbered, old} {
			if space == old && op != s3.Get && op != s3.Stat && op != s3.List {
				continue
			}
			got := lieTo(t, &liar{}, 5, what(op, space))
			if errors := got.column(columnError); got.status != ExitGood || len(errors) != 1 || errors[""] == 0 {
				t.Fatalf("%s: %v\n%s", op, errors, got.text)
			}
		}
	}
	chunks := map[string]answer{"GET": chunked(bytes100[:40], bytes100[40:])}
	if got := lieTo(t, &liar{lying: chunks}, 5, what(s3.Get, numbered)); got.column(columnError)[""] != 1 {
		t.Fatal(got.rows)
	}
}

// TestAnObjectThatItsOwnerChanges is about an object of 40 bytes that the LIST before the load has shown with 100.
func TestAnObjectThatItsOwnerChanges(t *testing.T) {
	changed := strings.NewReplacer("<Size>100", "<Size>40", "&quot;e&quot;", "&quot;f&quot;").Replace(contents("p/0000000001"))
	now := head + "ETag: \"f\"\r\n"
	for name, one := range map[string]struct {
		op     s3.Op
		relist answer
		answer answer
		gives  string
	}{
		"GET":                         {s3.Get, page(false, changed), body(now, bytes100[:40]), ""},
		"GET of more":                 {s3.Get, page(false, strings.Replace(changed, ">40<", ">101<", 1)), body(now, bytes100+"x"), ""},
		"GET of the same length":      {s3.Get, page(false, strings.Replace(changed, ">40<", ">100<", 1)), body(now, bytes100), ""},
		"STAT":                        {s3.Stat, page(false, changed), text(now + "Content-Length: 40\r\n\r\n"), ""},
		"GET of a part":               {s3.Get, page(false, changed), body(now, bytes100[:10]), "length: shorter than the object"},
		"GET of the object before":    {s3.Get, page(false, changed), body(tagged, bytes100[:40]), "etag: another than in the listing"},
		"GET, and the listing agrees": {s3.Get, page(false, contents("p/0000000001")), body(now, bytes100[:40]), "length: shorter than the object"},
		"GET, and it is not listed":   {s3.Get, page(false, ""), body(now, bytes100[:40]), "length: shorter than the object"},
		"GET, and no listing":         {s3.Get, body("HTTP/1.1 503 Slow\r\n", failing), body(now, bytes100[:40]), "length: shorter than the object"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lists := 0
			l := &liar{lying: map[string]answer{string(one.op): one.answer}}
			l.lying["prepare"] = func(w io.Writer) bool {
				if lists++; lists == 1 { // one worker: one request at a time
					return page(false, contents("p/0000000001"))(w)
				}
				return one.relist(w)
			}
			got := lieTo(t, l, 60, fmt.Sprintf(`"duration":0.2,%s"ops":[{"op":%q,"spaces":["a"]}]`, old, one.op))
			errors := got.column(columnError)
			if got.status != ExitGood || len(got.rows) < 2 || len(errors) != 1 || errors[one.gives] == 0 || lists != 2 {
				t.Fatalf("%d listings, %v\n%s", lists, errors, got.text)
			}
			warned := len(got.end.Warnings) == 1 && got.end.Warnings[0][0] == "objects-changed"
			relisted := one.gives == "" || name == "GET of a part" || name == "GET of the object before"
			if warned != relisted || got.end.Checksums != int64(len(got.rows)-errors[""]) {
				t.Fatal(got.text)
			}
		})
	}
}

func TestAListingBeforeTheLoadThatLies(t *testing.T) {
	limit, pause := listLimit, firstBackOff
	t.Cleanup(func() { listLimit, firstBackOff = limit, pause })
	listLimit, firstBackOff = 200*time.Millisecond, time.Millisecond
	for name, lie := range preparationLies {
		for _, space := range []string{numbered, old} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				got := lieTo(t, &liar{lying: map[string]answer{"prepare": lie.answer}}, 0.1, what(s3.Get, space))
				if got.status != ExitFailed || !strings.Contains(got.text, lie.gives) || len(got.rows) > 0 {
					t.Fatalf("%d %v %s", got.status, got.rows, got.text)
				}
			})
		}
	}
}

// Whatever a server does not end: a signal does, before the load and in it. Otherwise this test would not end.
func TestASignalEndsWhatAServerDoesNot(t *testing.T) {
	trickle := endless(head+"\r\n<ListBucketResult>", " ", wait)
	for kind, op := range map[string]s3.Op{"prepare": s3.Get, "LIST": s3.List, "GET": s3.Get, "STAT": s3.Stat, "PUT": s3.Put,
		"DELETE": s3.Delete, "POST": s3.Multipart, "PUT part": s3.Multipart} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			l := &liar{lying: map[string]answer{kind: trickle}}
			if kind == "STAT" {
				l.lying[kind] = endless(head+"X: ", "x", wait)
			}
			stop := make(chan struct{})
			go func() {
				for {
					l.mu.Lock()
					asked := l.seen[kind]
					l.mu.Unlock()
					if asked > 0 {
						close(stop)
						return
					}
					time.Sleep(time.Millisecond)
				}
			}()
			forever := strings.Replace(what(op, numbered), "0.05", "1e6", 1)
			got := lieTo(t, l, 1e6, forever, func(o *Options) { o.Stop = stop })
			if got.status != ExitGood || got.end.Reason != endSignal {
				t.Fatalf("%d %s", got.status, got.text)
			}
		})
	}
}

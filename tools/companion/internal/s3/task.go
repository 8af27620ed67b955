package s3

import "time"

const (
	trusted = time.Second // a connection that was idle for less is used without a look at it
	resting = time.Second // a server does not close a connection that was idle for less
	race    = time.Second // the end of a connection that the server closed while it was idle shows within this
)

// task is one operation: a host and a connection for it, its call, and what came of it.
type task struct {
	client  *Client
	request *Request
	result  *Result
	host    *host
	conn    *conn
	probe   bool
	call    call
	list    listing
	sent    bool // by a call before this one
}

// single carries out an operation that is one call.
func (t *task) single() {
	t.call.prepare(t.request, &t.client.config)
	if t.request.Op == List {
		t.list.reset(t.request, t.result)
		t.call.into = &t.list
	}
	cause := t.begin(trusted)
	if cause.kind == "" {
		cause = t.send()
	}
	r := t.result
	switch {
	case cause.kind != "":
		r.Untouched = !t.call.sent && !t.sent
	case t.request.Op == Get:
		r.Bytes = t.call.bytes
	case t.request.Op == Put && t.request.Body != nil:
		r.Bytes = t.request.Body.Size()
	case t.request.Op == List:
		if err := t.list.finish(); err != nil {
			cause = failure{KindProtocol, err.Error()}
		}
	}
	if t.request.Op == List {
		r.Keys, r.Sizes, r.ETags, r.Truncated = t.list.keys, t.list.sizes, t.list.etags, t.list.truncated
		t.list.keys, t.list.sizes, t.list.etags = nil, nil, nil
	}
	t.finish(cause)
	if t.request.Op == List {
		r.Objects = t.list.count
	}
}

// begin starts the clock and finds a host and a connection.
func (t *task) begin(trusted time.Duration) (cause failure) {
	c, r := t.client, t.result
	t.host, t.conn, t.sent = nil, nil, false
	r.Sent = time.Now()
	if c.cut.Load() {
		return failure{KindCut, "before it was sent"}
	}
	t.host, t.conn, t.probe = c.chooseHost(r.Sent, t.request.Until)
	if t.host == nil {
		if c.cut.Load() {
			return failure{KindCut, "before it was sent"}
		}
		r.Endpoint, cause.text = c.lastError()
		cause.kind = KindRefused
		return cause
	}
	r.Endpoint = t.host.url
	t.conn, cause = c.connect(t.host, t.conn, t.request.Until, trusted)
	return cause
}

// send makes the call, and makes it again on a new connection when the server had closed the old one just before. That
// shows at once, before any answer, on a connection that was idle; if no new one can be had, the first end counts.
func (t *task) send() failure {
	began := time.Now()
	idle := t.conn.reused && began.Sub(t.conn.since) >= resting
	cause := t.conn.trip(&t.call, began)
	if cause.kind != KindReset || !idle || !t.call.firstByte.IsZero() || time.Since(began) > race {
		return cause
	}
	fresh, refused := t.client.dial(t.host, t.request.Until)
	if refused.kind != "" {
		return cause
	}
	t.drop()
	t.conn, t.sent = fresh, true
	t.client.reconnects.Add(1)
	return fresh.trip(&t.call, time.Now())
}

// drop closes the connection.
func (t *task) drop() {
	t.client.mu.Lock()
	t.client.drop(t.conn)
	t.client.mu.Unlock()
	t.conn = nil
}

// finish writes down what came of it and gives the host and the connection back.
func (t *task) finish(cause failure) {
	r := t.result
	r.Status, r.Kind, r.Message, r.Objects, r.Resent = t.call.status, cause.kind, cause.text, 1, t.sent
	if r.FirstByte.IsZero() {
		r.FirstByte = t.call.firstByte
	}
	r.End = time.Now()
	if t.host != nil {
		t.client.release(t.host, t.conn, t.probe, r.Sent, cause, r.Status)
		t.host, t.conn = nil, nil
	}
}

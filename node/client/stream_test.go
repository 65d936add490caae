package client_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/client"
	"tidal/node/internal/wire"
)

// streamNode is a node that gives streams, and answers on them as the test says.
type streamNode struct {
	*node
	name string
	row  func(s *served, id uint64, q *wire.ClientRequest)
	none atomic.Bool // it gives no streams
	mu   struct {
		sync.Mutex
		streams []*served
		rows    int
	}
}

// served is the node's end of a stream.
type served struct {
	conn net.Conn
	mu   sync.Mutex
}

func (s *served) write(kind wire.FrameKind, payload []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, _ = s.conn.Write(wire.AppendFrame(nil, kind, payload))
}

func (s *served) serve(id uint64, owner string) {
	resp := wire.ClientResponse{Response: api.Response{Found: true, Version: api.Version{Table: 2, Index: 12}, Owner: owner, Value: []byte("v"), Size: 1}, Position: api.Position{Table: 2, Index: 13}}
	s.write(wire.FrameReply, wire.AppendReply(nil, wire.Reply{ID: id, Payload: wire.AppendClientResponse(nil, &resp)}))
}

func (s *served) refuse(id uint64, e *api.Error) {
	s.write(wire.FrameReply, wire.AppendReply(nil, wire.Reply{ID: id, Err: e}))
}

// newStreamNode starts a node which says of every row that owner served it.
func newStreamNode(t *testing.T, name, owner string) *streamNode {
	t.Helper()
	n := &streamNode{name: name}
	n.row = func(s *served, id uint64, _ *wire.ClientRequest) { s.serve(id, owner) }
	n.node = newNode(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		w.Header().Set(api.HeaderNode, name)
		switch {
		case r.URL.Path != "/v1/stream":
			w.Header().Set("ETag", `"2-99"`)
			w.Header().Set(api.HeaderOwner, owner)
		case n.none.Load():
			problem(w, api.CodeNotReady)
		default:
			n.stream(w)
		}
	})
	t.Cleanup(func() {
		for _, s := range n.streams() {
			_ = s.conn.Close()
		}
	})
	return n
}

func (n *streamNode) streams() []*served {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.mu.streams)
}

// rows returns how many requests came on streams.
func (n *streamNode) rows() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.mu.rows
}

func (n *streamNode) stream(w http.ResponseWriter) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\nTidal-Node: %s\r\n\r\n", wire.ClientProtocol, n.name)
	s := &served{conn: conn}
	n.mu.Lock()
	n.mu.streams = append(n.mu.streams, s)
	n.mu.Unlock()
	go n.read(s, rw.Reader)
}

func (n *streamNode) read(s *served, br *bufio.Reader) {
	for {
		kind, payload, err := wire.ReadFrame(br, wire.MaxFrame)
		if err != nil {
			return
		}
		if kind != wire.FrameCall {
			continue // the pings of a node that is dead are not answered
		}
		c, err := wire.DecodeCall(payload)
		if err != nil {
			return
		}
		q, err := wire.DecodeClientRequest(c.Payload)
		if err != nil {
			return
		}
		n.mu.Lock()
		n.mu.rows++
		n.mu.Unlock()
		n.row(s, c.ID, q)
	}
}

func streamClient(t *testing.T, o client.Options, nodes ...*streamNode) *client.Client {
	t.Helper()
	o.Streams = true
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	for _, n := range nodes {
		o.Endpoints = append(o.Endpoints, n.URL)
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// eventually waits until a condition holds, by doing what may bring it about.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(10 * time.Second); !f(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatal(what)
		}
	}
}

func put(t *testing.T, c *client.Client, table string) {
	t.Helper()
	if _, err := c.Put(t.Context(), table, "k", []byte("v"), client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestStreamRows: what is asked arrives, and what is answered comes back, many at a
// time on one connection.
func TestStreamRows(t *testing.T) {
	n := newStreamNode(t, "a", "a")
	var mu sync.Mutex
	var last *wire.ClientRequest
	n.row = func(s *served, id uint64, q *wire.ClientRequest) {
		mu.Lock()
		last = q
		mu.Unlock()
		if q.Key == "none" {
			resp := wire.ClientResponse{Response: api.Response{Owner: "a"}}
			s.write(wire.FrameReply, wire.AppendReply(nil, wire.Reply{ID: id, Payload: wire.AppendClientResponse(nil, &resp)}))
			return
		}
		s.serve(id, "a")
	}
	c := streamClient(t, client.Options{}, n)
	row, err := c.Get(t.Context(), "t", "k", client.ReadOptions{})
	at := api.Position{Table: 2, Index: 13}
	if err != nil || string(row.Value) != "v" || row.Size != 1 || row.Node != "a" || row.Owner != "a" || row.Version.Index != 12 || row.Position != at {
		t.Errorf("%+v, %v", row, err)
	}
	if _, err = c.Get(t.Context(), "t", "none", client.ReadOptions{}); api.CodeOf(err) != api.CodeRowNotFound {
		t.Errorf("of a row that is not there: %v", err)
	}
	o := client.WriteOptions{IfMatch: []api.Version{{Table: 2, Index: 7}}, Key: "one", Position: at}
	v, err := c.Put(t.Context(), "t", "k", []byte("v"), o)
	if err != nil || v.Index != 12 || last.Op != api.OpPut || string(last.Value) != "v" || last.Idem != "one" || last.Born != at || last.IfMatch[0].Index != 7 {
		t.Errorf("%v, %v, sent %+v", v, err, last)
	}
	if err = c.Delete(t.Context(), "t", "k", client.WriteOptions{IfExists: true}); err != nil || last.Op != api.OpDelete || !last.IfExists || len(last.Idem) < 16 {
		t.Errorf("%v, sent %+v", err, last)
	}
	b, err := c.Batch(t.Context(), "t", []api.Change{{Key: "a", Value: []byte("1")}, {Key: "b", Delete: true}}, client.BatchOptions{Key: "two"})
	if err != nil || b.Index != 12 || last.Op != api.OpBatch || last.Idem != "two" || string(last.Value) != "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"delete\":true}\n" {
		t.Errorf("%v, %v, sent %+v", b, err, last)
	}
	if _, err = c.Head(t.Context(), "t", "k", client.ReadOptions{Local: true}); err != nil || !last.Local || last.Op != api.OpHead {
		t.Errorf("%v, sent %+v", err, last)
	}
	// What no node takes a node refuses, in its own words.
	if _, err = c.Put(t.Context(), "t", string(make([]byte, 1025)), nil, client.WriteOptions{}); err != nil {
		t.Error(err) // the fake takes it over HTTP
	}

	held := make(chan uint64, 50)
	n.row = func(_ *served, id uint64, _ *wire.ClientRequest) { held <- id }
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { put(t, c, "t") })
	}
	ids := make([]uint64, 0, 50)
	for range 50 {
		ids = append(ids, <-held)
	}
	slices.Reverse(ids)
	for _, id := range ids {
		n.streams()[0].serve(id, "a")
	}
	wg.Wait()
	if len(n.streams()) != 1 {
		t.Errorf("%d streams", len(n.streams()))
	}
	last2 := n.asked()
	if len(last2) != 2 { // the upgrade, and what does not fit
		t.Errorf("over HTTP: %d requests", len(last2))
	}
}

// TestStreamToOwner: once it is known who owns a table, requests go there; one that no
// endpoint is of is found among the members.
func TestStreamToOwner(t *testing.T) {
	a, b, c := newStreamNode(t, "a", "c"), newStreamNode(t, "b", "c"), newStreamNode(t, "c", "c")
	answer := a.Config.Handler
	a.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/cluster/status" {
			_, _ = fmt.Fprintf(w, `{"members":[{"node":"a","lease":{"node":"a","address":%q}},{"node":"c","lease":{"node":"c","address":%q}},{"node":"d"}]}`, a.URL, c.URL)
			return
		}
		answer.ServeHTTP(w, r)
	})
	b.none.Store(true)
	cl := streamClient(t, client.Options{}, a, b)
	eventually(t, "requests do not reach the owner", func() bool {
		put(t, cl, "t")
		return c.rows() > 0
	})
	before := a.rows()
	for range 10 {
		put(t, cl, "t")
	}
	if a.rows() != before || len(c.streams()) != 1 {
		t.Errorf("%d more requests went the long way, over %d streams to the owner", a.rows()-before, len(c.streams()))
	}
	// The owner changes: the new one is told with the answer.
	c.row = func(s *served, id uint64, _ *wire.ClientRequest) { s.serve(id, "a") }
	a.row = c.row
	put(t, cl, "t")
	put(t, cl, "t")
	if a.rows() != before+1 {
		t.Errorf("%d requests went to the new owner", a.rows()-before)
	}
	// And when the owner dies, the others are asked.
	c.row = func(s *served, _ uint64, _ *wire.ClientRequest) { _ = s.conn.Close() }
	a.row = func(s *served, id uint64, _ *wire.ClientRequest) { s.serve(id, "c") }
	put(t, cl, "t")
	put(t, cl, "t")
	if got := a.rows() - before - 1; got != 2 {
		t.Errorf("%d requests went to the node that lives", got)
	}
}

// TestStreamResends: a request is sent again exactly where its outcome allows that,
// with the same key.
func TestStreamResends(t *testing.T) {
	n := newStreamNode(t, "a", "a")
	var mu sync.Mutex
	var keys []string
	var first func(s *served, id uint64)
	n.row = func(s *served, id uint64, q *wire.ClientRequest) {
		mu.Lock()
		defer mu.Unlock()
		if keys = append(keys, q.Idem); len(keys) == 1 {
			first(s, id)
			return
		}
		s.serve(id, "a")
	}
	cut := func(s *served, _ uint64) { _ = s.conn.Close() }
	refusing := func(code api.Code) func(*served, uint64) {
		return func(s *served, id uint64) {
			s.refuse(id, &api.Error{Code: code, Message: "for the test", RetryAfter: time.Millisecond})
		}
	}
	for name, tt := range map[string]struct {
		first func(*served, uint64)
		once  bool
		sent  int
		code  api.Code
	}{
		"the stream breaks":              {cut, false, 2, ""},
		"nothing was done":               {refusing(api.CodeTooMany), false, 2, ""},
		"the outcome is unknown":         {refusing(api.CodeOutcomeUnknown), false, 2, ""},
		"it is decided":                  {refusing(api.CodePreconditionFailed), false, 1, api.CodePreconditionFailed},
		"the stream breaks, and once":    {cut, true, 1, api.CodeOutcomeUnknown},
		"nothing was done, and once":     {refusing(api.CodeTooMany), true, 1, api.CodeTooMany},
		"an internal error is not again": {refusing(api.CodeInternal), false, 1, api.CodeInternal},
	} {
		t.Run(name, func(t *testing.T) {
			mu.Lock()
			keys, first = nil, tt.first
			mu.Unlock()
			before := len(n.asked())
			c := streamClient(t, client.Options{Once: tt.once}, n)
			_, err := c.Put(t.Context(), "t", "k", nil, client.WriteOptions{})
			mu.Lock()
			defer mu.Unlock()
			for _, r := range n.asked()[before:] {
				if r.method == http.MethodPut { // after a stream that broke it goes over HTTP
					keys = append(keys, r.header.Get(api.HeaderIdempotency))
				}
			}
			if api.CodeOf(err) != tt.code || len(keys) != tt.sent {
				t.Errorf("%v, sent %d times", err, len(keys))
			}
			if tt.sent == 2 && (keys[0] != keys[1] || keys[0] == "") || tt.once && keys[0] != "" {
				t.Errorf("keys %q", keys)
			}
		})
	}
}

// TestStreamFallsBack: where there is no stream there is HTTP, and what is in doubt
// stays so on the way there.
func TestStreamFallsBack(t *testing.T) {
	n := newStreamNode(t, "a", "a")
	n.none.Store(true)
	c := streamClient(t, client.Options{}, n)
	for range 5 {
		if v, err := c.Put(t.Context(), "t", "k", nil, client.WriteOptions{}); err != nil || v.Index != 0x99 {
			t.Errorf("%v, %v", v, err)
		}
	}
	upgrades := 0
	for _, r := range n.asked() {
		if r.path == "/v1/stream" {
			upgrades++
		}
	}
	if upgrades != 1 {
		t.Errorf("%d attempts to get a stream within a moment", upgrades)
	}

	doubt := newStreamNode(t, "b", "b")
	doubt.row = func(s *served, _ uint64, _ *wire.ClientRequest) {
		doubt.none.Store(true)
		_ = s.conn.Close()
	}
	doubt.Config.Handler = func(inner http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/v1/stream" {
				problem(w, api.CodeTooMany)
				return
			}
			inner.ServeHTTP(w, r)
		})
	}(doubt.Config.Handler)
	c = streamClient(t, client.Options{Timeout: 500 * time.Millisecond}, doubt)
	_, err := c.Put(t.Context(), "t", "k", nil, client.WriteOptions{})
	if api.CodeOf(err) != api.CodeOutcomeUnknown {
		t.Errorf("sent on a stream that broke, then refused over HTTP: %v", err)
	}
}

// TestStreamLeaves: when a node asks its clients to come anew, what is under way is
// answered, nothing new is sent there, and the stream ends.
func TestStreamLeaves(t *testing.T) {
	n := newStreamNode(t, "a", "a")
	c := streamClient(t, client.Options{}, n)
	put(t, c, "t")
	held := make(chan uint64, 1)
	serve := n.row
	n.row = func(s *served, id uint64, q *wire.ClientRequest) {
		if q.Key == "held" {
			held <- id
			return
		}
		serve(s, id, q)
	}
	answered := make(chan error, 1)
	go func() {
		_, err := c.Put(t.Context(), "t", "held", nil, client.WriteOptions{})
		answered <- err
	}()
	id := <-held
	old := n.streams()[0]
	old.write(wire.FrameRenew, nil)
	eventually(t, "no other stream was asked for", func() bool {
		put(t, c, "t")
		return len(n.streams()) == 2
	})
	old.serve(id, "a")
	if err := <-answered; err != nil {
		t.Error(err)
	}
	if _, err := old.conn.Read(make([]byte, 1)); err == nil {
		t.Error("the old stream stands")
	}
}

// TestStreamSilence: a node that is silent though it owes an answer is given up for
// another, and not asked again before that.
func TestStreamSilence(t *testing.T) {
	frozen, lives := newStreamNode(t, "a", "a"), newStreamNode(t, "b", "a")
	frozen.row = func(*served, uint64, *wire.ClientRequest) {}
	c := streamClient(t, client.Options{}, frozen, lives)
	start := time.Now()
	eventually(t, "the owner is not asked", func() bool {
		put(t, c, "t")
		return frozen.rows() > 0
	})
	if took := time.Since(start); took < 2*time.Second || took > 20*time.Second || frozen.rows() != 1 {
		t.Errorf("it took %s, the silent node was asked %d times", took, frozen.rows())
	}
}

// TestStreamRenewed: with another certificate there is another stream.
func TestStreamRenewed(t *testing.T) {
	n := newStreamNode(t, "a", "a")
	var mu sync.Mutex
	serial := uint64(1)
	c := streamClient(t, client.Options{Renewed: func() uint64 {
		mu.Lock()
		defer mu.Unlock()
		return serial
	}}, n)
	put(t, c, "t")
	put(t, c, "t")
	mu.Lock()
	serial++
	mu.Unlock()
	put(t, c, "t")
	if len(n.streams()) != 2 {
		t.Errorf("%d streams", len(n.streams()))
	}
}

// TestStreamClose: nothing of a closed client goes on.
func TestStreamClose(t *testing.T) {
	n := newStreamNode(t, "a", "a")
	n.row = func(*served, uint64, *wire.ClientRequest) {}
	c := streamClient(t, client.Options{Once: true}, n)
	ended := make(chan error, 1)
	go func() {
		_, err := c.Get(t.Context(), "t", "k", client.ReadOptions{})
		ended <- err
	}()
	eventually(t, "the call did not arrive", func() bool { return n.rows() == 1 })
	c.Close()
	if err := <-ended; err == nil || !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("%v", err)
	}
}

// TestStreamPatience: a call returns when its time is over, also while the node takes
// nothing of what is sent.
func TestStreamPatience(t *testing.T) {
	n := newStreamNode(t, "a", "a")
	c := streamClient(t, client.Options{}, n)
	put(t, c, "t")
	stuck := make(chan struct{})
	defer close(stuck)
	n.row = func(*served, uint64, *wire.ClientRequest) { <-stuck } // it reads no more
	start := time.Now()
	var wg sync.WaitGroup
	for range 24 { // more than the system takes off a writer's hands
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			defer cancel()
			if _, err := c.Put(ctx, "t", "k", make([]byte, api.MaxValue), client.WriteOptions{}); err == nil {
				t.Error("a write that nobody read is done")
			}
		})
	}
	wg.Wait()
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("calls with a time of 300 ms took %s", took)
	}
}

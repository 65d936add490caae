package server_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// asStream is a client's end of a stream.
type asStream struct {
	t    *testing.T
	conn net.Conn
	br   *bufio.Reader
	last uint64
}

const upgrade = "GET /v1/stream HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: " + wire.ClientProtocol + "\r\n\r\n"

// openStream has a connection become a stream.
func openStream(t *testing.T, conn net.Conn, br *bufio.Reader) *asStream {
	t.Helper()
	_, _ = io.WriteString(conn, upgrade)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != wire.ClientProtocol || resp.Header.Get(api.HeaderNode) != "a" {
		t.Fatalf("the upgrade: %d %v", resp.StatusCode, resp.Header)
	}
	return &asStream{t: t, conn: conn, br: br}
}

// send sends a call.
func (s *asStream) send(q wire.ClientRequest, timeout time.Duration) uint64 {
	s.last++
	c := wire.Call{ID: s.last, Method: wire.ClientRow, Timeout: timeout, Payload: wire.AppendClientRequest(nil, &q)}
	_, _ = s.conn.Write(wire.AppendFrame(nil, wire.FrameCall, wire.AppendCall(nil, c)))
	return s.last
}

// reply reads the next frame, which must be a reply.
func (s *asStream) reply() wire.Reply {
	s.t.Helper()
	kind, payload, err := wire.ReadFrame(s.br, wire.MaxFrame)
	if err != nil || kind != wire.FrameReply {
		s.t.Fatalf("a frame of kind %d, %v", kind, err)
	}
	r, err := wire.DecodeReply(payload)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func (s *asStream) do(q wire.ClientRequest) (*wire.ClientResponse, *api.Error) {
	s.t.Helper()
	id := s.send(q, 0)
	r := s.reply()
	if r.ID != id {
		s.t.Fatalf("the reply is to call %d, want %d", r.ID, id)
	}
	if r.Err != nil {
		return nil, r.Err
	}
	resp, err := wire.DecodeClientResponse(r.Payload)
	if err != nil {
		s.t.Fatal(err)
	}
	return resp, nil
}

func rowReq(op api.Op) wire.ClientRequest {
	q := wire.ClientRequest{Request: api.Request{Op: op, Table: "t", Key: "k"}}
	if op == api.OpPut {
		q.Value = []byte("v")
	}
	return q
}

// TestStream: requests on a stream reach the rows as those over HTTP do, and are
// counted as those are.
func TestStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		conn, br := g.many(t, nil)()
		s := openStream(t, conn, br)
		g.born = api.Position{Table: 2, Index: 17}
		g.resp.Value, g.resp.Size = []byte("v"), 1

		q := rowReq(api.OpGet)
		q.Local = true
		got, e := s.do(q)
		want := &wire.ClientResponse{Response: g.resp, Position: api.Position{Table: 2, Index: 18}}
		if e != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v, want %+v", got, e, want)
		}
		if !g.req.Local || g.req.Table != "t" || g.req.Key != "k" || g.req.Principal.Name != "local" || !g.req.Deadline.IsZero() {
			t.Errorf("handed down: %+v", g.req)
		}

		s.send(rowReq(api.OpHead), 2*time.Second)
		if r := s.reply(); r.Err != nil || g.req.Op != api.OpHead || time.Until(g.req.Deadline) != 2*time.Second {
			t.Errorf("%v, handed down: %+v", r.Err, g.req)
		}

		q = rowReq(api.OpPut)
		q.IfMatch = []api.Version{{Table: 2, Index: 7}}
		if _, e := s.do(q); e != nil || g.req.Keyed || g.req.ID != (api.RequestID{0xee}) || string(g.req.Value) != "v" || g.req.IfMatch[0].Index != 7 {
			t.Errorf("%v, handed down: %+v", e, g.req)
		}

		// The same key is the same write, whichever way it comes.
		g.ask(http.MethodDelete, rowK, "", header("Idempotency-Key: one"), header("Tidal-Position: 2-9"))
		byHTTP := *g.req
		q = rowReq(api.OpDelete)
		q.Idem, q.Born = "one", api.Position{Table: 2, Index: 9}
		if _, e := s.do(q); e != nil || !g.req.Keyed || g.req.ID != byHTTP.ID || g.req.Born != byHTTP.Born {
			t.Errorf("%v, handed down: %+v, and over HTTP %+v", e, g.req, byHTTP)
		}

		q = wire.ClientRequest{Request: api.Request{Op: api.OpBatch, Table: "t", Value: []byte(`{"key":"a","value":"1"}` + "\n" + `{"key":"b","delete":true}`)}}
		want3 := []api.Change{{Key: "a", Value: []byte("1")}, {Key: "b", Delete: true}}
		if _, e := s.do(q); e != nil || g.req.Op != api.OpBatch || !reflect.DeepEqual(g.req.Changes, want3) || g.req.Value != nil {
			t.Errorf("%v, handed down: %+v", e, g.req)
		}

		g.resp = api.Response{}
		if got, e := s.do(rowReq(api.OpGet)); e != nil || got.Found {
			t.Errorf("of a row that is not there: %+v, %v", got, e)
		}
		_, _ = conn.Write(wire.AppendFrame(nil, wire.FramePing, nil))
		if kind, _, err := wire.ReadFrame(br, wire.MaxFrame); kind != wire.FramePong || err != nil {
			t.Errorf("a ping is answered with a frame of kind %d, %v", kind, err)
		}
		synctest.Wait()
		var counted []string
		for _, e := range g.events() {
			if !strings.HasPrefix(e.Route, "/v1/tables/{table}/rows") || strings.HasSuffix(e.Route, "{key}") == (e.Method == http.MethodPost) {
				t.Errorf("route %q", e.Route)
			}
			counted = append(counted, fmt.Sprint(e.Method, " ", e.Status, " ", e.Code))
		}
		slices.Sort(counted) // one is counted while the next is under way
		if got := strings.Join(counted, ", "); got != "DELETE 204 , DELETE 204 , GET 200 , GET 404 row-not-found, HEAD 200 , POST 200 , PUT 204 " {
			t.Errorf("counted: %s", got)
		}
		if n, last := g.Activity(); n != 0 || time.Since(last) != 0 {
			t.Errorf("%d in flight, the last %v ago", n, time.Since(last))
		}
		if g.Bodies() != 0 {
			t.Errorf("%d bytes of bodies are held", g.Bodies())
		}
	})
}

// TestStreamRefuses: what HTTP refuses is refused on a stream, and nothing is done.
func TestStreamRefuses(t *testing.T) {
	with := func(op api.Op, change func(*wire.ClientRequest)) wire.ClientRequest {
		q := rowReq(op)
		change(&q)
		return q
	}
	tests := []struct {
		who  string
		q    wire.ClientRequest
		code api.Code
	}{
		{"reader", rowReq(api.OpPut), api.CodeForbidden},
		{"reader", rowReq(api.OpDelete), api.CodeForbidden},
		{"reader", rowReq(api.OpGet), ""},
		{"writer", rowReq(api.OpPut), ""},
		{"writer", with(api.OpPut, func(q *wire.ClientRequest) { q.Table = "T" }), api.CodeBadRequest},
		{"writer", with(api.OpPut, func(q *wire.ClientRequest) { q.Key = "" }), api.CodeBadRequest},
		{"writer", with(api.OpPut, func(q *wire.ClientRequest) { q.Key = "\xff" }), api.CodeBadRequest},
		{"writer", with(api.OpPut, func(q *wire.ClientRequest) { q.Local = true }), api.CodeBadRequest},
		{"writer", with(api.OpPut, func(q *wire.ClientRequest) { q.IfExists, q.IfNoneMatch = true, true }), api.CodeBadRequest},
		{"writer", with(api.OpPut, func(q *wire.ClientRequest) { q.Table, q.Idem = "u", "one" }), api.CodeTableNotFound},
		{"writer", with(api.OpPut, func(q *wire.ClientRequest) { q.Idem, q.Born = "one", api.Position{Table: 1, Index: 2} }), api.CodeTableNotFound},
		{"writer", with(api.OpBatch, func(q *wire.ClientRequest) { q.Value = []byte(`{"key":"a","value":"1"}`) }), api.CodeBadRequest}, // it has a key
		{"writer", with(api.OpBatch, func(q *wire.ClientRequest) { q.Key, q.Value = "", []byte(`{"key":"a"}`) }), api.CodeBadRequest},
		{"writer", with(api.OpBatch, func(q *wire.ClientRequest) { q.Key, q.IfExists = "", true }), api.CodeBadRequest},
		{"reader", with(api.OpBatch, func(q *wire.ClientRequest) { q.Key = "" }), api.CodeForbidden},
		{"writer", with(api.OpDelete, func(q *wire.ClientRequest) { q.Value = []byte("v") }), api.CodeBadRequest},
		{"writer", with(api.OpGet, func(q *wire.ClientRequest) { q.IfExists = true }), api.CodeBadRequest},
		{"writer", with(api.OpGet, func(q *wire.ClientRequest) { q.Idem = "one" }), api.CodeBadRequest},
		{"writer", with(api.OpGet, func(q *wire.ClientRequest) { q.Op = 99 }), api.CodeBadRequest},
	}
	for _, tt := range tests {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t)
			s := g.secureStream(t, tt.who, time.Hour)
			_, e := s.do(tt.q)
			if (e == nil) != (tt.code == "") || e != nil && e.Code != tt.code || (g.req == nil) != (e != nil) {
				t.Errorf("%s: %+v: %v, handed down %v", tt.who, tt.q, e, g.req)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		s := g.secureStream(t, "admin", time.Hour)
		g.err = &api.Error{Code: api.CodeStaleOwner, Message: "it moves", Hint: "wait", Owner: "c", RetryAfter: time.Second}
		if _, e := s.do(rowReq(api.OpPut)); !reflect.DeepEqual(e, g.err) {
			t.Errorf("%+v, want %+v", e, g.err)
		}
		g.err = errors.New("secret")
		if _, e := s.do(rowReq(api.OpPut)); e == nil || e.Code != api.CodeInternal || strings.Contains(e.Message, "secret") {
			t.Errorf("%+v", e)
		}
		g.err, g.panics = nil, true
		if _, e := s.do(rowReq(api.OpPut)); e == nil || e.Code != api.CodeInternal {
			t.Errorf("%+v", e)
		}
		_, _ = s.conn.Write(wire.AppendFrame(nil, wire.FrameCall, wire.AppendCall(nil, wire.Call{ID: 9, Method: 9})))
		if r := s.reply(); r.ID != 9 || r.Err == nil || r.Err.Code != api.CodeBadRequest {
			t.Errorf("of a kind of call that there is not: %+v", r)
		}
	})
}

// secureStream opens a stream over TLS as somebody whose certificate ends.
func (g *rig) secureStream(t *testing.T, who string, life time.Duration) *asStream {
	t.Helper()
	dial := g.many(t, &tls.Config{Certificates: []tls.Certificate{brief(t, 100*time.Hour)}, ClientAuth: tls.RequireAnyClientCert})
	raw, _ := dial()
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{named(t, who, life)}})
	return openStream(t, c, bufio.NewReader(c))
}

// TestStreamUpgrade: who asks for no stream gets an answer, and who may not have one none.
func TestStreamUpgrade(t *testing.T) {
	g := newRig(t)
	w := g.ask(http.MethodGet, "/v1/stream", "")
	if p := problemOf(t, w); p.Code != api.CodeBadRequest || !strings.Contains(p.Detail, wire.ClientProtocol) {
		t.Errorf("%+v", p)
	}
	if p := problemOf(t, g.ask(http.MethodGet, "/v1/stream", "", header("Upgrade: "+wire.ClientProtocol), as("nobody"))); p.Code != api.CodeForbidden {
		t.Errorf("%+v", p)
	}
	g.Draining()
	w = g.ask(http.MethodGet, "/v1/stream", "", header("Upgrade: "+wire.ClientProtocol), as("reader"))
	if p := problemOf(t, w); p.Code != api.CodeNotReady || w.Header().Get("Retry-After") == "" {
		t.Errorf("while it stops: %+v", p)
	}
}

// TestStreamLimits: one client can neither have too much under way nor hold too much.
func TestStreamLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.block, g.entered = make(chan struct{}), make(chan struct{}, 2000)
		dial := g.many(t, nil)
		conn, br := dial()
		s := openStream(t, conn, br)
		for range 1024 {
			s.send(rowReq(api.OpGet), 0)
		}
		if id, r := s.send(rowReq(api.OpGet), 0), s.reply(); r.ID != id || r.Err == nil || r.Err.Code != api.CodeTooMany || r.Err.RetryAfter == 0 {
			t.Errorf("one too many: %+v", r)
		}
		close(g.block)
		for range 1024 {
			if r := s.reply(); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
		synctest.Wait()
		if e := g.events(); len(e) != 1025 || e[0].Code != api.CodeTooMany {
			t.Errorf("%d events, the first %+v", len(e), e[0])
		}

		g.BoundBodies(2 << 20)
		q := rowReq(api.OpPut)
		q.Value = make([]byte, api.MaxValue)
		if _, e := s.do(q); e != nil {
			t.Error(e)
		}
		g.resp.Value = make([]byte, 1<<20+1)
		if _, e := s.do(q); e == nil || e.Code != api.CodeTooMany {
			t.Errorf("past the bound: %v", e)
		}
		// What has come of a frame counts too, before anybody knows what it is.
		_, _ = conn.Write(append([]byte{0, 0x40, 0, 0, byte(wire.FrameCall)}, make([]byte, 3<<20)...))
		if _, err := br.ReadByte(); !errors.Is(err, io.EOF) || g.Bodies() != 0 {
			t.Errorf("in the middle of a frame of 4 MiB: %v, %d bytes are held", err, g.Bodies())
		}
		conn, br = dial()
		openStream(t, conn, br)
		_, _ = conn.Write([]byte{0, 0x90, 0, 0, byte(wire.FrameCall)})
		if _, err := br.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("after a frame of 9 MiB: %v", err)
		}
	})
}

// TestStreamMalformed: nothing after a damage is believed.
func TestStreamMalformed(t *testing.T) {
	for name, frame := range map[string][]byte{
		"kind":    wire.AppendFrame(nil, wire.FrameHello, nil),
		"call":    wire.AppendFrame(nil, wire.FrameCall, []byte{0xff}),
		"request": wire.AppendFrame(nil, wire.FrameCall, wire.AppendCall(nil, wire.Call{ID: 1, Method: wire.ClientRow, Payload: []byte{1, 0xff}})),
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t)
			conn, br := g.many(t, nil)()
			s := openStream(t, conn, br)
			_, _ = s.conn.Write(frame)
			if _, err := br.ReadByte(); !errors.Is(err, io.EOF) || g.req != nil {
				t.Errorf("%s: %v, handed down %v", name, err, g.req)
			}
		})
	}
}

// TestStreamTimes: a client that says nothing for long, or stops within a frame, is
// closed; one that only is slow is not.
func TestStreamTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		dial := g.many(t, nil)
		conn, br := dial()
		openStream(t, conn, br)
		start := time.Now()
		if _, err := br.ReadByte(); !errors.Is(err, io.EOF) || time.Since(start) != 2*time.Minute {
			t.Errorf("silent: %v after %v", err, time.Since(start))
		}
		conn, br = dial()
		s := openStream(t, conn, br)
		q := rowReq(api.OpPut)
		q.Value = make([]byte, 300_000)
		frame := wire.AppendFrame(nil, wire.FrameCall, wire.AppendCall(nil, wire.Call{ID: 1, Method: wire.ClientRow, Payload: wire.AppendClientRequest(nil, &q)}))
		for part := range 4 {
			_, _ = conn.Write(frame[part*70_000 : part*70_000+70_000])
			<-time.After(20 * time.Second)
		}
		_, _ = conn.Write(frame[280_000:])
		if r := s.reply(); r.Err != nil || len(g.req.Value) != 300_000 {
			t.Errorf("slow: %+v", r)
		}
		start = time.Now()
		_, _ = conn.Write(frame[:1000])
		if _, err := br.ReadByte(); !errors.Is(err, io.EOF) || time.Since(start) != 30*time.Second {
			t.Errorf("within a frame: %v after %v", err, time.Since(start))
		}
	})
}

// TestStreamClientLeft: what a client does not wait for is no error, and is given up.
func TestStreamClientLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.block, g.entered = make(chan struct{}), make(chan struct{}, 1)
		conn, br := g.many(t, nil)()
		s := openStream(t, conn, br)
		s.send(rowReq(api.OpGet), 0)
		<-g.entered
		_ = conn.Close()
		synctest.Wait()
		if e := g.events(); len(e) != 2 || e[0].Status != 499 || e[0].Code != "" || g.log.Len() != 0 {
			t.Errorf("events %+v, log %q", e, g.log.String())
		}
		if g.Connections() != 0 {
			t.Errorf("%d connections are left", g.Connections())
		}
	})
}

// renewed reads the word to come anew.
func (s *asStream) renewed() {
	s.t.Helper()
	if kind, _, err := wire.ReadFrame(s.br, wire.MaxFrame); kind != wire.FrameRenew || err != nil {
		s.t.Errorf("a frame of kind %d, %v, want the word to come anew", kind, err)
	}
}

// TestStreamDrains: a node that stops tells its clients, serves what comes all the
// same, and ends when all that has come is answered.
func TestStreamDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		conn, br := g.many(t, nil)()
		s := openStream(t, conn, br)
		g.Draining()
		s.renewed()
		if _, e := s.do(rowReq(api.OpPut)); e != nil {
			t.Error(e)
		}
		if g.Quiet(time.Second) || g.Settled(time.Second) {
			t.Error("a stream that spoke just now counts as silent")
		}
		<-time.After(1100 * time.Millisecond)
		if !g.Quiet(time.Second) {
			t.Error("a stream that was silent for a second does not")
		}
		g.block, g.entered = make(chan struct{}), make(chan struct{}, 1)
		id := s.send(rowReq(api.OpPut), 0)
		<-g.entered
		if g.Quiet(time.Second) {
			t.Error("a stream with a call under way counts as silent")
		}
		ended := make(chan struct{})
		go func() {
			g.EndStreams(t.Context())
			close(ended)
		}()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("it ended before the answer")
		default:
		}
		close(g.block)
		if r := s.reply(); r.ID != id || r.Err != nil {
			t.Errorf("%+v", r)
		}
		<-ended
		if _, err := br.ReadByte(); !errors.Is(err, io.EOF) || g.Connections() != 0 {
			t.Errorf("%v, %d connections are left", err, g.Connections())
		}
	})
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.block, g.entered = make(chan struct{}), make(chan struct{}, 1)
		conn, br := g.many(t, nil)()
		openStream(t, conn, br).send(rowReq(api.OpPut), 0)
		<-g.entered
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		start := time.Now()
		g.EndStreams(ctx)
		if time.Since(start) != 2*time.Second || g.Connections() != 0 {
			t.Errorf("after %v %d connections are left", time.Since(start), g.Connections())
		}
	})
}

// TestStreamCertificates: a stream ends with the certificates that it was made with,
// as other connections do.
func TestStreamCertificates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		s := g.secureStream(t, "writer", 10*time.Second)
		if got := g.Conns(); len(got) != 1 || got[0].Peer.PeerCertificates[0].Subject.CommonName != "writer" {
			t.Fatalf("%d connections are listed", len(got))
		}
		<-time.After(11 * time.Second)
		if _, e := s.do(rowReq(api.OpPut)); e == nil || e.Code != api.CodeUnauthorized || g.req != nil {
			t.Errorf("after the certificate's end: %v", e)
		}
		g.Tidy(time.Now())
		if _, err := s.br.ReadByte(); err == nil {
			t.Error("the stream outlives the certificate")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		s := g.secureStream(t, "writer", time.Hour)
		g.Recycle()
		s.renewed()
		for range 61 { // it goes on all the same
			if _, e := s.do(rowReq(api.OpPut)); e != nil {
				t.Fatal(e)
			}
			synctest.Wait() // the answer is counted as given
			g.Tidy(time.Now())
			<-time.After(time.Second)
		}
		g.block, g.entered = make(chan struct{}), make(chan struct{}, 1)
		s.send(rowReq(api.OpPut), 0)
		<-g.entered
		g.Tidy(time.Now())
		if _, err := s.br.ReadByte(); err == nil {
			t.Error("a client that was asked to leave a minute ago is still there")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		s := g.secureStream(t, "writer", time.Hour)
		g.CloseIf(func(*tls.ConnectionState) error { return errors.New("revoked") })
		if _, err := s.br.ReadByte(); err == nil {
			t.Error("the stream outlives the revocation")
		}
	})
}

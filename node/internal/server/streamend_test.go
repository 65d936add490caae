package server_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// taking is an answer whose connection is taken over, just when something happens.
type taking struct {
	*httptest.ResponseRecorder

	conn net.Conn
	just func()
}

// Hijack implements http.Hijacker.
func (w *taking) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	w.just()
	return w.conn, bufio.NewReadWriter(bufio.NewReader(w.conn), bufio.NewWriter(w.conn)), nil
}

// TestStreamBeginsLate: a stream that begins just as the node begins to stop hears of
// that as the others do, after the answer to its upgrade.
func TestStreamBeginsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		here, there := net.Pipe()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v1/stream", http.NoBody)
		r.Header.Set("Upgrade", wire.ClientProtocol)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			g.Handler().ServeHTTP(&taking{ResponseRecorder: httptest.NewRecorder(), conn: there, just: g.Draining}, r)
		}()
		br := bufio.NewReader(here)
		resp, err := http.ReadResponse(br, nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatalf("%v, %v", resp, err)
		}
		_ = resp.Body.Close()
		(&asStream{t: t, conn: here, br: br}).renewed()
		_ = here.Close()
		<-ended
	})
}

// TestStreamLeavesAlone: a node that begins to stop waits for no client to read that, and
// one that reads late has its answers all the same.
func TestStreamLeavesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		dial := g.many(t, nil)
		var all []*asStream
		for range 3 {
			conn, br := dial()
			all = append(all, openStream(t, conn, br))
		}
		synctest.Wait()
		start := time.Now()
		g.Draining()
		if took := time.Since(start); took != 0 {
			t.Errorf("it waited for %s", took)
		}
		synctest.Wait()
		for _, s := range all {
			s.send(rowReq(api.OpPut), 0)
		}
		synctest.Wait()
		ended := make(chan struct{})
		go func() {
			g.EndStreams(t.Context())
			close(ended)
		}()
		<-time.After(5 * time.Second)
		for _, s := range all {
			s.renewed()
			if r := s.reply(); r.ID != 1 || r.Err != nil {
				t.Errorf("%+v", r)
			}
		}
		<-ended
	})
}

// TestStreamCutIsNoAnswer: what the node's end cuts off gets no answer, so that its
// client asks elsewhere.
func TestStreamCutIsNoAnswer(t *testing.T) {
	for range 20 { // the end and the answers that must not be race
		synctest.Test(t, cutShort)
	}
}

func cutShort(t *testing.T) {
	const calls = 300
	g := newRig(t)
	g.block, g.entered = make(chan struct{}), make(chan struct{}, calls)
	conn, br := g.many(t, nil)()
	s := openStream(t, conn, br)
	for range calls {
		s.send(rowReq(api.OpPut), 0)
	}
	for range calls {
		<-g.entered
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	go g.EndStreams(ctx)
	if kind, payload, err := wire.ReadFrame(br, wire.MaxFrame); !errors.Is(err, io.EOF) {
		t.Errorf("a frame of kind %d with %q, %v", kind, payload, err)
	}
	synctest.Wait()
	for _, e := range g.events() {
		if e.Route != "/v1/stream" && (e.Status != 499 || e.Code != "") {
			t.Fatalf("counted: %+v", e)
		}
	}
}

// TestStreamQueueCounts: answers that a client does not read count among the bodies,
// and no more when they are read, or never will be. Nor does a call take longer by that.
func TestStreamQueueCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.BoundBodies(4 << 20)
		g.resp.Value = make([]byte, api.MaxValue)
		dial := g.many(t, nil)
		conn, br := dial()
		s := openStream(t, conn, br)
		for range 3 {
			s.send(rowReq(api.OpGet), 0)
			synctest.Wait()
		}
		<-time.After(time.Second)
		for id := uint64(1); id <= 3; id++ {
			r := s.reply()
			if refused := r.Err != nil && r.Err.Code == api.CodeTooMany; r.ID != id || refused != (id == 3) {
				t.Errorf("call %d: %v", r.ID, r.Err)
			}
		}
		synctest.Wait()
		if n := g.Bodies(); n != 0 {
			t.Errorf("%d bytes are held after all was read", n)
		}
		for _, e := range g.events() {
			if e.Route == "/v1/tables/{table}/rows/{key}" && e.Took != 0 {
				t.Errorf("a call took %s: %+v", e.Took, e)
			}
		}
		for range 2 {
			s.send(rowReq(api.OpGet), 0)
			synctest.Wait()
		}
		_ = conn.Close()
		synctest.Wait()
		if n := g.Bodies(); n != 0 {
			t.Errorf("%d bytes are held after the client left", n)
		}
	})
}

// TestStreamKeepsLittle: a stream that has carried large answers keeps no room for
// others like them: many may be idle.
func TestStreamKeepsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.resp.Value = make([]byte, 500_000)
		conn, br := g.many(t, nil)()
		s := openStream(t, conn, br)
		for range 4 {
			s.send(rowReq(api.OpGet), 0)
		}
		for range 4 {
			s.reply()
		}
		synctest.Wait()
		if kept := g.Kept(); kept > 128<<10 {
			t.Errorf("%d bytes are kept", kept)
		}
	})
}

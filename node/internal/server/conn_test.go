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
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
)

// pipe is a listener whose connections stay in memory, so that time is virtual.
type pipe struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipe) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipe) Close() error   { close(p.done); return nil }
func (p *pipe) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

// listen has the rig's http.Server take the connections of a pipe, over TLS if there is
// a configuration for that.
func (g *rig) listen(t *testing.T, secure *tls.Config) *pipe {
	t.Helper()
	p := &pipe{conns: make(chan net.Conn), done: make(chan struct{})}
	s := g.HTTPServer()
	s.BaseContext = g.base
	var l net.Listener = p
	if secure != nil {
		l = tls.NewListener(p, secure)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
		<-time.After(time.Second) // net/http keeps a connection for some time that it cut
	})
	return p
}

// serve starts the rig's http.Server and returns a connection to it.
func (g *rig) serve(t *testing.T) (net.Conn, *bufio.Reader) {
	t.Helper()
	p := g.listen(t, nil)
	here, there := net.Pipe()
	p.conns <- there
	t.Cleanup(func() { _ = here.Close() })
	return here, bufio.NewReader(here)
}

func answerOf(t *testing.T, r *bufio.Reader) (status int, body string) {
	t.Helper()
	resp, err := http.ReadResponse(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestSlowBody: a client that stops in the middle of its body is cut after its
// time, and one that only is slow is not.
func TestSlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		conn, r := g.serve(t)
		start := time.Now()
		_, _ = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n", rowK)
		for range 4 {
			_, _ = conn.Write(make([]byte, 70_000))
			<-time.After(20 * time.Second)
		}
		_, _ = conn.Write(make([]byte, 20_000))
		if status, body := answerOf(t, r); status != http.StatusNoContent || len(g.req.Value) != 300_000 {
			t.Fatalf("%d %s after %v", status, body, time.Since(start))
		}
		start = time.Now()
		_, _ = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\nsome", rowK)
		status, body := answerOf(t, r)
		if status != http.StatusBadRequest || !strings.Contains(body, "too slowly") || time.Since(start) != 30*time.Second {
			t.Errorf("%d %s after %v", status, body, time.Since(start))
		}
	})
}

// TestLongWait: the body's deadline does not end a request that waits for its
// table long after the body came.
func TestLongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.block, g.entered = make(chan struct{}), make(chan struct{}, 1)
		conn, r := g.serve(t)
		_, _ = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nsome", rowK)
		time.AfterFunc(time.Minute, func() { close(g.block) })
		if status, body := answerOf(t, r); status != http.StatusNoContent {
			t.Errorf("%d %s", status, body)
		}
	})
}

// TestUnreadBody: a request that is refused before its body is read does not
// hold the connection for longer than the body's time.
func TestUnreadBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, r := newRig(t).serve(t)
		start := time.Now()
		_, _ = fmt.Fprintf(conn, "PUT %s?no=such HTTP/1.1\r\nHost: a\r\nContent-Length: 400\r\n\r\n", rowK)
		if status, body := answerOf(t, r); status != http.StatusBadRequest || !strings.Contains(body, "no") {
			t.Errorf("%d %s", status, body)
		}
		if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("the connection is still open: %v", err)
		}
		if took := time.Since(start); took > 31*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestTooLargeAtOnce: the answer does not wait for the body.
func TestTooLargeAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, r := newRig(t).serve(t)
		_, _ = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n", rowK, api.MaxValue+1)
		start := time.Now()
		if status, body := answerOf(t, r); status != http.StatusRequestEntityTooLarge || time.Since(start) != 0 {
			t.Errorf("%d %s after %v", status, body, time.Since(start))
		}
	})
}

// TestShortBody: a body that is cut off is not taken for a whole one.
func TestShortBody(t *testing.T) {
	for _, head := range []string{"Content-Length: 100", "Transfer-Encoding: chunked"} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t)
			conn, _ := g.serve(t)
			body := "some"
			if strings.HasPrefix(head, "Transfer") {
				body = "4\r\nsome\r\n"
			}
			_, _ = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: a\r\n%s\r\n\r\n%s", rowK, head, body)
			synctest.Wait()
			_ = conn.Close()
			synctest.Wait()
			if g.req != nil {
				t.Errorf("%s: a value of %q was handed down", head, g.req.Value)
			}
			if e := g.events(); len(e) != 1 || e[0].Code != api.CodeBadRequest {
				t.Errorf("%s: events %+v", head, e)
			}
		})
	}
}

// TestClientLeft: what a client did not wait for is no error of the node.
func TestClientLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.block, g.entered = make(chan struct{}), make(chan struct{}, 1)
		conn, _ := g.serve(t)
		_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", rowK)
		<-g.entered
		_ = conn.Close()
		synctest.Wait()
		if e := g.events(); len(e) != 1 || e[0].Status != 499 || e[0].Code != "" {
			t.Errorf("events %+v", e)
		}
		if g.log.Len() != 0 {
			t.Errorf("log %q", g.log.String())
		}
	})
}

// TestNodeEnds: a client whose request the node's end cuts off gets no answer, and
// not the 200 that net/http gives for a handler that says nothing.
func TestNodeEnds(t *testing.T) {
	for _, method := range []string{http.MethodGet, http.MethodPut, http.MethodDelete} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t)
			g.block, g.entered = make(chan struct{}), make(chan struct{}, 1)
			run, end := context.WithCancel(t.Context())
			g.base = func(net.Listener) context.Context { return run }
			conn, r := g.serve(t)
			_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", method, rowK)
			<-g.entered
			end()
			if answer, err := http.ReadResponse(r, nil); err == nil {
				t.Errorf("%s: %s", method, answer.Status)
				_ = answer.Body.Close()
			}
		})
	}
}

// TestDrainingCloses: the answer is whole, and then the connection ends.
func TestDrainingCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		conn, r := g.serve(t)
		for _, drains := range []bool{false, true} {
			if drains {
				g.Draining()
			}
			_, _ = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nv", rowK)
			if status, body := answerOf(t, r); status != http.StatusNoContent {
				t.Errorf("%d %s", status, body)
			}
		}
		if _, err := r.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("the connection is still open: %v", err)
		}
	})
}

// TestThin: the connections that are there end with their next answers, and so do later
// ones that ask for anything but a row. Later ones for rows go on until Draining. What
// was silent all the time is not waited for again.
func TestThin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		ask := func(conn net.Conn, r *bufio.Reader, path string, last bool) {
			t.Helper()
			_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", path)
			answer, err := http.ReadResponse(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode != http.StatusOK || answer.Close != last {
				t.Errorf("%s: %s, the last one %t, want %t (%v)", path, answer.Status, answer.Close, last, err)
			}
			_ = answer.Body.Close()
			if last {
				isOver(t, r)
			}
		}
		settled := func(what string, want bool) {
			t.Helper()
			if synctest.Wait(); g.Settled(time.Second) != want {
				t.Errorf("%s: settled is %t", what, !want)
			}
		}
		old, oldR := g.serve(t)
		still, stillR := g.serve(t)
		ask(old, oldR, rowK, false)
		ask(still, stillR, rowK, false)
		<-time.After(time.Minute)
		g.Thin()
		ask(old, oldR, rowK, true)
		<-time.After(time.Millisecond)
		late, lateR := g.serve(t)
		pool, poolR := g.serve(t)
		poll, pollR := g.serve(t)
		for range 3 {
			ask(late, lateR, rowK, false)
		}
		ask(pool, poolR, rowK, false)
		ask(poll, pollR, "/health", true)
		settled("one from before may be reached for", false)
		<-time.After(time.Second)
		settled("it was silent", true)
		ask(late, lateR, rowK, false)
		g.Draining()
		<-time.After(time.Millisecond)
		settled("later ones go on", false)
		ask(late, lateR, rowK, true)
		settled("of the later ones one may be reached for", false)
		ask(pool, poolR, rowK, true)
		settled("they have ended, and the silent one was silent", true)
		if !g.Quiet(time.Second) {
			t.Error("not quiet")
		}
		last, lastR := g.serve(t)
		ask(last, lastR, rowK, true)
	})
}

// TestSlowTables: a change of tables that takes too long may still happen.
func TestSlowTables(t *testing.T) {
	for _, method := range []string{"PUT", "DELETE"} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t)
			g.err = fmt.Errorf("propose: %w", context.DeadlineExceeded)
			g.slow = true
			start := time.Now()
			w := g.ask(method, "/v1/tables/t", "", header("Tidal-Timeout: 2s"))
			if p := problemOf(t, w); p.Code != api.CodeOutcomeUnknown || time.Since(start) != 2*time.Second {
				t.Errorf("%+v after %v", p, time.Since(start))
			}
			start = time.Now()
			g.ask(method, "/v1/tables/t", "")
			if took := time.Since(start); took != 30*time.Second {
				t.Errorf("it took %v without a timeout", took)
			}
		})
	}
}

// TestAskingOthers: a node that has to ask others whether there is a table, or how the
// cluster is, takes no longer for that than its client waits.
func TestAskingOthers(t *testing.T) {
	const timeout = 2 * time.Second
	hint, key := "Tidal-Timeout: "+timeout.String(), "Idempotency-Key: one"
	took := func(t *testing.T, g *rig, ask func() api.Code) {
		t.Helper()
		g.slow = true
		g.err = &api.Error{Code: api.CodeNotReady, Message: "nobody can say"}
		start := time.Now()
		if code := ask(); code != api.CodeNotReady || time.Since(start) != timeout {
			t.Errorf("%s after %v", code, time.Since(start))
		}
	}
	for _, c := range []struct{ method, path, body string }{
		{"GET", "/v1/tables/t", ""},
		{"GET", "/v1/rolls", ""},
		{"GET", "/v1/rolls/last", ""},
		{"GET", "/v1/cluster/level", ""},
		{"GET", "/cluster/status?consistency=linearizable", ""},
		{"PUT", rowK, "v"},
		{"DELETE", rowK, ""},
		{"POST", "/v1/tables/t/rows", `{"key":"k","value":"v"}`},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t)
			took(t, g, func() api.Code { return problemOf(t, g.ask(c.method, c.path, c.body, header(hint), header(key))).Code })
		})
	}
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		conn, br := g.many(t, nil)()
		s := openStream(t, conn, br)
		took(t, g, func() api.Code {
			q := rowReq(api.OpPut)
			q.Idem = "one"
			s.send(q, timeout)
			return api.CodeOf(s.reply().Err)
		})
	})
}

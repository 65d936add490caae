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
	"tidal/node/internal/server"
)

// ending is a rig whose requests the test can cut off, and a connection to it.
type ending struct {
	*rig

	t    *testing.T
	conn net.Conn
	br   *bufio.Reader
	cut  context.CancelCauseFunc
}

func newEnding(t *testing.T) *ending {
	t.Helper()
	e := &ending{rig: newRig(t), t: t}
	var clients context.Context
	clients, e.cut = context.WithCancelCause(t.Context())
	e.base = func(net.Listener) context.Context { return clients }
	e.conn, e.br = e.serve(t)
	return e
}

// end cuts off what is under way, and then closes connections, as a node does.
func (e *ending) end() {
	e.cut(errors.New("the node has stopped"))
	synctest.Wait()
	if err := e.CloseWeb(); err != nil {
		e.t.Error(err)
	}
	synctest.Wait()
}

// blocks has requests wait from now on.
func (e *ending) blocks() { e.block, e.entered = make(chan struct{}), make(chan struct{}, 1) }

// laned makes the connection a lane.
func (e *ending) laned() {
	e.t.Helper()
	_, _ = io.WriteString(e.conn, getRow)
	answerOf(e.t, e.br)
	if synctest.Wait(); e.Lanes() != 1 {
		e.t.Fatal("it is no lane")
	}
}

// row returns the last request for a row that was told of.
func (e *ending) row() (last server.Event, n int) {
	for _, x := range e.events() {
		if x.Route == "/v1/tables/{table}/rows/{key}" {
			last = x
			n++
		}
	}
	return last, n
}

// cuts are the requests that a node's end can meet. Each returns while it is under way.
var cuts = []struct {
	name   string
	before int // requests that were answered by then
	begin  func(e *ending)
}{
	{"a request", 0, func(e *ending) {
		e.blocks()
		_, _ = io.WriteString(e.conn, getRow)
		<-e.entered
	}},
	{"a request on a lane", 1, func(e *ending) {
		e.laned()
		e.blocks()
		_, _ = io.WriteString(e.conn, getRow)
		<-e.entered
	}},
	{"a call on a stream", 0, func(e *ending) {
		s := openStream(e.t, e.conn, e.br)
		e.blocks()
		s.send(rowReq(api.OpPut), 0)
		<-e.entered
	}},
	{"a body that comes", 0, func(e *ending) {
		_, _ = io.WriteString(e.conn, "PUT "+rowK+" HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nv")
	}},
	{"an answer that is read", 0, func(e *ending) {
		e.resp.Value = make([]byte, api.MaxValue)
		_, _ = io.WriteString(e.conn, getRow)
		_, _ = e.br.ReadByte()
	}},
	{"an answer that is read, on a lane", 1, func(e *ending) {
		e.laned()
		e.resp.Value = make([]byte, api.MaxValue)
		_, _ = io.WriteString(e.conn, getRow)
		_, _ = e.br.ReadByte()
	}},
}

// TestCut: what the node breaks off as it ends is told as that, once, whether it is
// waited for, sent or answered just then.
func TestCut(t *testing.T) {
	for _, c := range cuts {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEnding(t)
				c.begin(e)
				synctest.Wait()
				e.end()
				if x, n := e.row(); !x.Cut || n != c.before+1 {
					t.Errorf("event %d is %+v", n, x)
				}
				if n, _ := e.Activity(); n != 0 {
					t.Errorf("%d requests are in flight", n)
				}
			})
		})
	}
}

// TestLeftIsNotCut: a client that leaves before the node ends has not been refused.
func TestLeftIsNotCut(t *testing.T) {
	for _, c := range cuts {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEnding(t)
				c.begin(e)
				synctest.Wait()
				_ = e.conn.Close()
				<-time.After(time.Second) // a lane looks now and then
				e.end()
				if x, n := e.row(); x.Cut || n != c.before+1 {
					t.Errorf("event %d is %+v", n, x)
				}
			})
		})
	}
}

// TestCutAnswers: an answer that comes too late is cut only if its connection is closed.
func TestCutAnswers(t *testing.T) {
	for _, c := range cuts[:3] {
		for _, closed := range []bool{true, false} {
			t.Run(c.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := newEnding(t)
					e.deaf = true
					c.begin(e)
					lane := e.Lanes() > 0
					e.cut(errors.New("the node has stopped"))
					synctest.Wait()
					if closed {
						_ = e.CloseWeb()
					}
					close(e.block)
					if !closed && c.name == "a request" {
						if status, _ := answerOf(t, e.br); status != http.StatusOK {
							t.Error(status)
						}
					}
					synctest.Wait()
					want := closed || lane || c.name != "a request" // the others are closed with the cut
					if x, n := e.row(); x.Cut != want || n != c.before+1 {
						t.Errorf("closed %t: event %d is %+v", closed, n, x)
					}
				})
			})
		}
	}
}

// breaking is an answer that a defect breaks off.
type breaking struct{ *httptest.ResponseRecorder }

// Write implements http.ResponseWriter.
func (*breaking) Write([]byte) (int, error) { panic("for the test") }

// TestCutByDefect: an answer that a defect breaks off counts as cut at any time.
func TestCutByDefect(t *testing.T) {
	g := newRig(t)
	g.resp.Value = []byte("v")
	func() {
		defer func() {
			if why := recover(); why != http.ErrAbortHandler { //nolint:errorlint // net/http compares likewise
				t.Errorf("it ends by %v", why)
			}
		}()
		g.Handler().ServeHTTP(&breaking{httptest.NewRecorder()}, httptest.NewRequest(http.MethodGet, rowK, http.NoBody))
	}()
	if e := g.events(); len(e) != 1 || !e[0].Cut {
		t.Errorf("%+v", e)
	}
}

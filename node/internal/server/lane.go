package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"
)

const (
	laneBytes = 4 << 10          // of a request, with its body, that a lane serves
	laneKeeps = 8 << 10          // bytes of an answer that are collected
	laneIdle  = 2 * time.Minute  // without a request a lane is closed
	laneSlack = 10 * time.Second // by which deadlines may be later: so they are seldom set
	laneWrite = 5 * time.Minute  // of an answer
	// laneLook is after how long it is looked whether the client still waits. Most
	// answers come before.
	laneLook = 100 * time.Millisecond
)

var errClientLeft = errors.New("the client closed its connection")

// lane serves the requests for one row on a connection, once the first of them was
// answered: they are small and alike, and net/http would spend more on each than all
// that is below it. It reads and writes HTTP/1.1, and has the same handler as net/http
// answer. Whatever is not just as it expects, net/http gets, with all that follows.
type lane struct {
	s      *Server
	nc     net.Conn
	br     *bufio.Reader
	one    *conn // its entry among the connections
	cancel context.CancelCauseFunc
	ending atomic.Bool // no more requests are awaited

	req  plain
	resp answer

	readBy, writeBy time.Time     // the deadlines that are set, at least
	look            *time.Timer   // has watch called
	looked          chan struct{} // capacity 1: it has ended
}

// step is what comes next on a lane.
type step uint8

const (
	laneAsked  step = iota // a request is there
	laneUnlike             // something else is
	laneEnds               // nothing is, and the connection ends
)

// mayLane reports whether the connection of a request that was answered may become a
// lane.
func (x *exchange) mayLane() bool {
	r := x.r
	if r.ContentLength != 0 && (r.Method != http.MethodPut || x.status != http.StatusNoContent) {
		return false // its body may not have been read: what is left of it is no request
	}
	return x.rt == x.s.row && r.ProtoMajor == 1 && r.ProtoMinor == 1 && !r.Close && len(x.w.Header()["Connection"]) == 0
}

// lane goes on with the connection of an exchange that has ended, if it may, until
// it ends or net/http has it back.
func (x *exchange) lane(ctx context.Context) {
	nc, ok := ctx.Value(connKey{}).(net.Conn)
	if !ok {
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(errClientLeft)
	l := &lane{s: x.s, nc: nc, cancel: cancel, looked: make(chan struct{}, 1)}
	if l.one = x.s.conns.enlane(nc, l); l.one == nil {
		return
	}
	defer x.s.conns.outlane(nc, l)
	if err := l.take(x.w); err != nil {
		x.s.o.Log.DebugContext(ctx, "a connection was not taken from net/http", "error", err.Error())
		return
	}
	l.req.like(x.r.WithContext(ctx))
	l.resp.of(l)
	l.run(ctx)
}

// take has net/http send its answer and let go of the connection.
func (l *lane) take(w http.ResponseWriter) error {
	c := http.NewResponseController(w)
	if err := c.Flush(); err != nil {
		return err
	}
	_, rw, err := c.Hijack()
	if err != nil {
		return err
	}
	ahead, err := rw.Peek(rw.Reader.Buffered()) // what net/http has read of it
	if err != nil {
		return errors.Join(err, l.nc.Close())
	}
	var in io.Reader = l.nc
	if len(ahead) > 0 {
		in = io.MultiReader(bytes.NewReader(bytes.Clone(ahead)), l.nc)
	}
	l.br = bufio.NewReaderSize(in, laneBytes)
	return nil
}

// run serves requests until the connection ends or net/http has it.
func (l *lane) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { _ = bare(l.nc).Close() })
	given := false
	defer func() { // a handler that panics cuts the connection
		if stop(); !given {
			_ = l.nc.Close() // it may be closed already
		}
	}()
	l.s.conns.speaks(l.one, false)
	l.look = time.AfterFunc(time.Hour, l.watch)
	l.look.Stop()
	for goOn := true; goOn; {
		switch l.next() {
		case laneAsked:
			goOn = l.serve()
		case laneUnlike:
			if goOn, given = false, stop(); given {
				l.back()
			}
		case laneEnds:
			goOn = false
		}
	}
}

// next awaits a request, whole.
func (l *lane) next() step {
	if l.br.Buffered() == 0 {
		if err := l.await(); err != nil {
			return laneEnds
		}
	}
	b, _ := l.br.Peek(l.br.Buffered()) // never fails
	head := headOf(b)
	var err error
	for patience := headPatience; head < 0; patience = 0 {
		if bareLF(b) {
			return laneUnlike // for net/http it may be whole
		}
		b, err = l.more(len(b)+1, patience)
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			return laneUnlike
		case err != nil:
			return laneEnds
		}
		head = headOf(b)
	}
	if !l.req.parse(b[:head]) {
		return laneUnlike
	}
	whole := head + int(l.req.ContentLength)
	if len(b) < whole {
		if b, err = l.more(whole, bodyPatience); err != nil {
			return laneUnlike // net/http finds the same, and the handler says so
		}
	}
	l.req.take(b[head:whole])
	_, _ = l.br.Discard(whole) // never fails
	return laneAsked
}

// more awaits the rest of a request, until n bytes of it are there. A patience
// that is none leaves the deadline as it is. One that is too long for a lane is an error.
func (l *lane) more(n int, patience time.Duration) ([]byte, error) {
	if n > laneBytes {
		return nil, bufio.ErrBufferFull
	}
	if patience != 0 {
		l.readBy = time.Time{}
		if err := l.nc.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return nil, err
		}
		if l.ending.Load() { // which was set before end set its deadline
			return nil, errStreamEnded
		}
	}
	if _, err := l.br.Peek(n); err != nil {
		return nil, err
	}
	return l.br.Peek(l.br.Buffered())
}

// await waits for the first bytes of a request.
func (l *lane) await() error {
	if now := time.Now(); l.readBy.Sub(now) < laneIdle {
		l.readBy = now.Add(laneIdle + laneSlack)
		if err := l.nc.SetReadDeadline(l.readBy); err != nil {
			return err
		}
	}
	if l.ending.Load() { // which was set before end set its deadline
		return errStreamEnded
	}
	_, err := l.br.Peek(1)
	return err
}

// serve has a request answered, and reports whether another may follow.
func (l *lane) serve() bool {
	if now := l.s.conns.speaks(l.one, true); l.writeBy.Sub(now) < laneWrite {
		l.writeBy = now.Add(laneWrite + laneSlack)
		if err := l.nc.SetWriteDeadline(l.writeBy); err != nil {
			return false
		}
	}
	l.resp.reset()
	l.answer()
	more := l.resp.flush() && !l.ending.Load()
	l.s.conns.speaks(l.one, false)
	return more
}

func (l *lane) answer() {
	l.look.Reset(laneLook)
	defer l.unwatch()
	l.s.answer(&l.resp, l.req.Request)
}

// watch looks whether the client closes its connection while it waits for its answer.
func (l *lane) watch() {
	defer func() { l.looked <- struct{}{} }()
	_, err := l.br.Peek(1) // nil: it has sent another request
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		l.cancel(errClientLeft)
	}
}

// unwatch ends watch, or keeps it from beginning.
func (l *lane) unwatch() {
	if l.look.Stop() {
		return
	}
	l.readBy = time.Time{}
	_ = l.nc.SetReadDeadline(time.Unix(1, 0)) // it fails if it is closed, which ends the watch too
	<-l.looked
}

// end has the lane end with the answer that is under way, if any.
func (l *lane) end() {
	l.ending.Store(true)
	_ = l.nc.SetReadDeadline(time.Now()) // it fails if it is closed
}

// back gives the connection to net/http, with what was read and is not served.
func (l *lane) back() {
	g := given{Conn: l.nc, br: l.br}
	var nc net.Conn = &g
	if t, ok := l.nc.(*tls.Conn); ok {
		nc = &givenTLS{given: g, tls: t}
	}
	l.s.conns.unlane(l.nc, nc)
	one := single{nc: nc}
	_ = l.s.web.Serve(&one) // it returns at once: there is no other connection
	if one.nc != nil {      // it did not take this one: it is closed
		_ = nc.Close()
		l.s.conns.track(nc, http.StateClosed)
	}
}

var errGiven = errors.New("there is one connection, and it was given")

// single is a listener with one connection, which is there already.
type single struct{ nc net.Conn }

// Accept implements net.Listener.
func (s *single) Accept() (net.Conn, error) {
	nc := s.nc
	if s.nc = nil; nc == nil {
		return nil, errGiven
	}
	return nc, nil
}

// Close implements net.Listener.
func (s *single) Close() error { return nil }

// Addr implements net.Listener.
func (s *single) Addr() net.Addr { return &net.UnixAddr{Name: "single"} }

// given is a connection of which a part was read already.
type given struct {
	net.Conn

	br *bufio.Reader // nil once it is empty
}

// Read implements net.Conn.
func (g *given) Read(p []byte) (int, error) {
	if g.br == nil {
		return g.Conn.Read(p)
	}
	n, err := g.br.Read(p[:min(len(p), g.br.Buffered())])
	if g.br.Buffered() == 0 {
		g.br = nil
	}
	return n, err
}

// givenTLS is one over TLS, of which net/http asks the state.
type givenTLS struct {
	given

	tls *tls.Conn
}

// ConnectionState tells net/http who the client is.
func (g *givenTLS) ConnectionState() tls.ConnectionState { return g.tls.ConnectionState() }

// NetConn returns the connection under TLS.
func (g *givenTLS) NetConn() net.Conn { return g.tls.NetConn() }

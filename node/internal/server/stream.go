package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

const (
	streamCalls = 1024            // in flight on a stream
	streamIdle  = 2 * time.Minute // without a frame it is closed
	streamWrite = 30 * time.Second
	streamQueue = 1 << 20              // bytes that wait to be written before their calls do
	streamSpare = bodyChunk            // bytes of buffers that are kept for the next answers
	streamFrame = api.MaxBatch + 8<<10 // bytes of a frame from a client
	spareHands  = 16                   // goroutines that wait for a stream's next call
)

// stream is a client's connection after its upgrade: calls and replies in frames,
// many at a time. It is one of the server's conns, as it was before.
type stream struct {
	s       *Server
	conn    net.Conn
	br      *bufio.Reader
	who     api.Principal
	expires time.Time               // of the client's certificate; zero: never
	cancel  context.CancelCauseFunc // gives up what is under way

	work  chan wire.Call // to a goroutine that waits for a call
	spare atomic.Int64   // such goroutines
	wg    sync.WaitGroup

	inFlight atomic.Int64
	spoke    atomic.Int64 // when a call last came or was answered, from Server.since
	left     atomic.Bool  // the client was asked to come anew
	ending   atomic.Bool  // no more calls are taken

	out struct {
		sync.Mutex
		room    sync.Cond // there is some, or none any more, or nobody writes
		buf     []byte    // waits for who writes
		spare   []byte
		writing bool
		closed  bool
	}
}

func streamRoute() *route { return get("/v1/stream", needReader, (*exchange).stream) }

// stream turns the connection into a stream of frames, and serves it until it ends.
func (x *exchange) stream() error {
	if _, err := x.query(); err != nil {
		return err
	}
	if !strings.EqualFold(x.r.Header.Get("Upgrade"), wire.ClientProtocol) {
		return &api.Error{
			Code:    api.CodeBadRequest,
			Message: "this path is for programs that ask it for the protocol " + wire.ClientProtocol,
			Hint:    "rows are at /v1/tables/{table}/rows/{key} too, over plain HTTP",
		}
	}
	if x.s.draining.Load() {
		return &api.Error{Code: api.CodeNotReady, Message: "node " + x.s.o.Node + " stops: ask another", RetryAfter: time.Second}
	}
	conn, rw, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return fmt.Errorf("take the connection over: %w", err)
	}
	x.status, x.wrote = http.StatusSwitchingProtocols, true
	ahead, err := rw.Peek(rw.Reader.Buffered()) // what the HTTP server has read of it
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	st := &stream{
		s: x.s, conn: conn, who: x.who, work: make(chan wire.Call),
		br: bufio.NewReaderSize(io.MultiReader(bytes.NewReader(bytes.Clone(ahead)), conn), bodyChunk),
	}
	st.out.room.L = &st.out.Mutex
	st.out.buf = st.queued(hello(x.s.o.Node)) // it goes before all that is said from now on
	st.expires = expiry(x.r.TLS)
	ctx, cancel := context.WithCancelCause(x.r.Context())
	st.cancel = cancel
	if !x.s.conns.adopt(conn, st, x.r.TLS) {
		cancel(errStreamEnded)
		st.close()
		return nil
	}
	st.run(ctx)
	return nil
}

// run serves the stream until it ends and all of its calls have returned.
func (st *stream) run(ctx context.Context) {
	stop := context.AfterFunc(ctx, st.close)
	defer stop()
	st.touch()
	err := st.push(nil)       // the answer to the upgrade
	if st.s.draining.Load() { // since it was looked at: nobody has told this one
		st.leave()
	}
	if err == nil {
		err = st.read(ctx)
	}
	if !st.ending.Load() {
		st.cancel(errClientLeft) // nobody is there to read the answers
	}
	close(st.work)
	st.wg.Wait()
	st.flush()
	st.cancel(errClientLeft)
	st.close()
	st.s.conns.gone(st.conn)
	st.s.o.Log.DebugContext(ctx, "a client's stream ended", "client", st.who.Name, "error", err.Error())
}

// hello is the answer to the upgrade.
func hello(node string) []byte {
	return fmt.Appendf(nil, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: %s\r\n\r\n",
		wire.ClientProtocol, api.HeaderNode, node)
}

// close ends the stream; it may be called more than once.
func (st *stream) close() {
	st.out.Lock()
	defer st.out.Unlock()
	st.closeLocked()
}

func (st *stream) closeLocked() {
	st.out.closed = true
	st.s.bodies.held.Add(-int64(len(st.out.buf))) // which nobody writes any more
	st.out.buf = nil
	st.out.room.Broadcast()
	_ = bare(st.conn).Close() // it may be closed already
}

// end has the stream end once the calls that have come are answered.
func (st *stream) end() {
	st.ending.Store(true)
	_ = st.conn.SetReadDeadline(time.Now()) // it fails if it is closed
}

// bare returns the connection under TLS: closed there, no alert is written, for which
// a client that reads nothing would be waited for.
func bare(nc net.Conn) net.Conn {
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok { // a tls.Conn, or a givenTLS
		return t.NetConn()
	}
	return nc
}

// await gives the client so long for what it sends next.
func (st *stream) await(d time.Duration) error {
	if err := st.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	if st.ending.Load() { // which was set before end set its deadline
		return errStreamEnded
	}
	return nil
}

// touch notes that the client spoke, or was answered.
func (st *stream) touch() { st.spoke.Store(int64(time.Since(st.s.since))) }

// leave asks the client to come anew, here or at another node, once: it sends no more
// calls then, and closes the stream when it has its answers. It may wait for the client.
func (st *stream) leave() {
	if st.left.Swap(true) {
		return
	}
	_ = st.push(wire.AppendFrame(nil, wire.FrameRenew, nil)) // it fails with the stream
}

// read takes frames until one cannot be read. Its error is never nil.
func (st *stream) read(ctx context.Context) error {
	for {
		// Who is silent has streamIdle, and who has begun a frame some time for each part of it.
		if st.br.Buffered() < wire.FrameHeader {
			if err := st.await(streamIdle); err != nil {
				return err
			}
		}
		if _, err := st.br.Peek(wire.FrameHeader); err != nil {
			return err
		}
		p := patient{st: st}
		kind, payload, err := wire.ReadFrame(&p, streamFrame)
		st.s.bodies.held.Add(-p.held)
		if err != nil {
			return err
		}
		switch kind {
		case wire.FrameCall:
			c, err := wire.DecodeCall(payload)
			if err != nil {
				return err
			}
			st.take(ctx, c)
		case wire.FramePing:
			if err := st.push(wire.AppendFrame(nil, wire.FramePong, nil)); err != nil {
				return err
			}
		default:
			return fmt.Errorf("%w: a frame of kind %d has no place on a client's stream", wire.ErrMalformed, kind)
		}
	}
}

// patient reads a frame whose client may take its time for each part. While it does,
// what has come of a large one is held among the bodies.
type patient struct {
	st   *stream
	mark int // bytes since the last deadline
	late bool
	held int64
}

// Read implements io.Reader.
func (p *patient) Read(b []byte) (int, error) {
	if p.st.br.Buffered() == 0 && (!p.late || p.mark >= bodyChunk) {
		if p.mark > 0 {
			if err := p.st.s.bodies.hold(p.mark); err != nil {
				return 0, err // its call is not known yet, so that nobody can be told
			}
			p.held += int64(p.mark)
		}
		p.late, p.mark = true, 0
		if err := p.st.await(bodyPatience); err != nil {
			return 0, err
		}
	}
	n, err := p.st.br.Read(b)
	p.mark += n
	return n, err
}

// take has a call answered, by a goroutine that waits for one if there is any.
func (st *stream) take(ctx context.Context, c wire.Call) {
	st.touch()
	if st.inFlight.Add(1) > streamCalls {
		st.s.o.Observe(Event{Route: rowPath, Status: http.StatusTooManyRequests, Code: api.CodeTooMany})
		_ = st.reply(c.ID, nil, &api.Error{
			Code:       api.CodeTooMany,
			Message:    fmt.Sprintf("a stream has at most %d requests under way", streamCalls),
			RetryAfter: time.Second,
		})
		st.done()
		return
	}
	select {
	case st.work <- c:
	default:
		st.wg.Go(func() { st.answerAll(ctx, c) })
	}
}

func (st *stream) done() {
	st.touch()
	st.inFlight.Add(-1)
}

// answerAll answers a call, and then those that come while not too many goroutines
// wait for one: a goroutine that has grown its stack is worth keeping.
func (st *stream) answerAll(ctx context.Context, c wire.Call) {
	for ok := true; ok; {
		st.answer(ctx, &c)
		if st.spare.Add(1) > spareHands {
			ok = false
		} else {
			c, ok = <-st.work
		}
		st.spare.Add(-1)
	}
}

// push adds a frame to what is to be written, and writes it, with what comes meanwhile,
// unless somebody does. While too much waits, it waits too. Those who push have nothing
// else to do but for this client, so that a writer of its own would only cost a switch.
func (st *stream) push(frame []byte) error {
	o := &st.out
	o.Lock()
	defer o.Unlock()
	for len(o.buf) > streamQueue && !o.closed {
		o.room.Wait()
	}
	if o.closed {
		return errStreamEnded
	}
	o.buf = append(o.buf, st.queued(frame)...)
	if o.writing {
		return nil // who writes takes it along
	}
	o.writing = true
	o.Unlock()
	runtime.Gosched() // those who are ready to run may have an answer for the same write
	o.Lock()
	for len(o.buf) > 0 && !o.closed {
		b := o.buf
		o.buf = o.spare
		o.Unlock()
		err := st.write(b)
		st.s.bodies.held.Add(-int64(len(b)))
		o.Lock()
		if o.spare = b[:0]; cap(b) > streamSpare {
			o.spare = nil
		}
		if err != nil {
			st.closeLocked() // the reader ends by that
		}
		o.room.Broadcast()
	}
	o.writing = false
	o.room.Broadcast()
	return nil
}

// flush waits until nobody writes any more: who asks the client to leave may have taken
// answers along.
func (st *stream) flush() {
	o := &st.out
	o.Lock()
	defer o.Unlock()
	for o.writing && !o.closed {
		o.room.Wait()
	}
}

// queued counts what is to wait in the stream's queue among the bodies. It is not
// refused: the requests of others are, while too much waits.
func (st *stream) queued(b []byte) []byte {
	st.s.bodies.held.Add(int64(len(b)))
	return b
}

var errStreamEnded = errors.New("the stream has ended")

// write writes b in pieces, each with a time limit of its own.
func (st *stream) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), bodyChunk)
		if err := st.conn.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil {
			return err
		}
		if _, err := st.conn.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

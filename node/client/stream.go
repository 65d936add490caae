package client

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

const (
	streamPath  = "/v1/stream"
	streamDial  = 5 * time.Second // to connect and be taken
	streamWrite = 10 * time.Second
	streamLook  = time.Second // between looks at a stream
	// streamDead is how many looks in a row a node that owes answers may be silent,
	// though it is asked whether it is there.
	streamDead = 3
	streamIdle = 90 // looks without a call after which a stream is closed: less than the node's time
	maxReply   = api.MaxValue + 16<<10
)

var (
	errIdle   = errors.New("the stream was idle")
	errSilent = errors.New("the node is silent")
	errLeft   = errors.New("the node asked its clients to come anew")
	errClosed = errors.New("the client was closed")
)

// stream is a connection to a node that carries calls and replies in frames, many at
// a time.
type stream struct {
	node, endpoint string
	conn           net.Conn
	br             *bufio.Reader
	heard          atomic.Uint64 // frames
	done           chan struct{} // closed when it has ended

	mu struct {
		sync.Mutex
		last    uint64
		pending map[uint64]chan<- streamReply
		leaving bool      // it takes no more calls
		ended   error     // nil while it stands
		broke   time.Time // when it ended, if that was not in good order
	}
	out struct {
		sync.Mutex
		buf, spare []byte // buf waits to be written
	}
	wake chan struct{} // there is something to write; capacity 1
}

type streamReply struct {
	payload []byte
	err     error
}

// dialStream connects to an endpoint and asks for a stream.
func dialStream(ctx context.Context, endpoint string, secure *tls.Config) (*stream, error) {
	ctx, cancel := context.WithTimeout(ctx, streamDial)
	defer cancel()
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", hostPort(u))
	if err != nil {
		return nil, err
	}
	raw := conn
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	s, err := shake(ctx, conn, u, secure)
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	if !stop() {
		return nil, ctx.Err()
	}
	s.endpoint = endpoint
	return s, nil
}

func hostPort(u *url.URL) string {
	if u.Port() != "" {
		return u.Host
	}
	if u.Scheme == "http" {
		return net.JoinHostPort(u.Hostname(), "80")
	}
	return net.JoinHostPort(u.Hostname(), "443")
}

// shake makes a stream of a new connection.
func shake(ctx context.Context, conn net.Conn, u *url.URL, secure *tls.Config) (*stream, error) {
	if u.Scheme == "https" {
		conf := &tls.Config{MinVersion: tls.VersionTLS13}
		if secure != nil {
			conf = secure.Clone()
		}
		if conf.ServerName == "" {
			conf.ServerName = u.Hostname()
		}
		conf.NextProtos = []string{"http/1.1"}
		conf.DynamicRecordSizingDisabled = true // frames are of use only when they are whole
		t := tls.Client(conn, conf)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, err
		}
		conn = t
	}
	const form = "GET " + streamPath + " HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: " + wire.ClientProtocol + "\r\n\r\n"
	if _, err := fmt.Fprintf(conn, form, u.Host); err != nil {
		return nil, err
	}
	br := bufio.NewReaderSize(conn, 64<<10)
	resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodGet})
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // of what is not wanted
	if resp.StatusCode != http.StatusSwitchingProtocols || !strings.EqualFold(resp.Header.Get("Upgrade"), wire.ClientProtocol) {
		body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		if err != nil {
			return nil, err
		}
		a := &answer{status: resp.StatusCode, header: resp.Header, body: body}
		return nil, fmt.Errorf("no stream: %w", refusal(u.Scheme+"://"+u.Host, http.MethodGet, a))
	}
	s := &stream{node: resp.Header.Get(api.HeaderNode), conn: conn, br: br, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	s.mu.pending = map[uint64]chan<- streamReply{}
	return s, nil
}

// run serves the stream until it ends.
func (s *stream) run() {
	var wg sync.WaitGroup
	wg.Go(s.watch)
	wg.Go(s.write)
	s.end(s.read())
	wg.Wait()
}

// read takes replies until one cannot be read.
func (s *stream) read() error {
	for {
		kind, payload, err := wire.ReadFrame(s.br, maxReply)
		if err != nil {
			return err
		}
		s.heard.Add(1)
		switch kind {
		case wire.FrameReply:
			reply, err := wire.DecodeReply(payload)
			if err != nil {
				return err
			}
			s.deliver(reply)
		case wire.FramePong:
		case wire.FrameRenew:
			s.leave()
		default:
			return fmt.Errorf("%w: a frame of kind %d has no place on a client's stream", wire.ErrMalformed, kind)
		}
	}
}

func (s *stream) deliver(r wire.Reply) {
	if to := s.forget(r.ID); to != nil {
		out := streamReply{payload: r.Payload}
		if r.Err != nil {
			out.err = r.Err
		}
		to <- out
	}
}

// forget drops a call, and returns who waits for its reply; nil: nobody does any more.
// A stream that is left ends with its last call.
func (s *stream) forget(id uint64) chan<- streamReply {
	s.mu.Lock()
	to := s.mu.pending[id]
	delete(s.mu.pending, id)
	over := s.mu.leaving && len(s.mu.pending) == 0
	s.mu.Unlock()
	if over {
		s.end(errLeft)
	}
	return to
}

// leave has the stream take no more calls, and end with the last that it has.
func (s *stream) leave() {
	s.mu.Lock()
	s.mu.leaving = true
	over := len(s.mu.pending) == 0
	s.mu.Unlock()
	if over {
		s.end(errLeft)
	}
}

// watch ends the stream if the node is silent though it owes answers, or if nobody
// has used it for long.
func (s *stream) watch() {
	tick := time.NewTicker(streamLook)
	defer tick.Stop()
	var heard, calls uint64
	silent, idle, last := 0, 0, time.Now()
	for {
		select {
		case <-s.done:
			return
		case <-tick.C:
		}
		late := time.Since(last) > streamLook+streamLook/2 // this process itself stood still
		last = time.Now()
		s.mu.Lock()
		owed, made := len(s.mu.pending), s.mu.last
		s.mu.Unlock()
		if idle++; made != calls || owed > 0 {
			calls, idle = made, 0
		}
		now := s.heard.Load()
		if silent++; now != heard || owed == 0 || late {
			heard, silent = now, 0
		}
		switch {
		case idle >= streamIdle:
			s.end(errIdle)
		case silent >= streamDead:
			s.end(errSilent)
		case silent > 0:
			s.push(wire.AppendFrame(nil, wire.FramePing, nil))
		}
	}
}

// end ends the stream; the first cause counts. What waits for a reply is told.
func (s *stream) end(cause error) {
	s.mu.Lock()
	first := s.mu.ended == nil
	if first {
		s.mu.ended = cause
		if !errors.Is(cause, errIdle) && !errors.Is(cause, errLeft) {
			s.mu.broke = time.Now()
		}
	}
	lost := s.mu.pending
	s.mu.pending = map[uint64]chan<- streamReply{}
	s.mu.Unlock()
	if first {
		close(s.done)
		raw := s.conn
		if t, ok := raw.(*tls.Conn); ok {
			raw = t.NetConn() // without waiting for a node that does not read
		}
		_ = raw.Close() // it may be closed already
	}
	for _, to := range lost {
		to <- streamReply{err: &silenceError{err: cause, sent: true}}
	}
}

// usable reports whether the stream takes calls.
func (s *stream) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.ended == nil && !s.mu.leaving
}

// broke returns when the stream broke; zero: it did not.
func (s *stream) broke() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.broke
}

// call sends a call and waits for its reply. Its errors are *silenceError, and what
// the node answered.
func (s *stream) call(ctx context.Context, q *wire.ClientRequest) ([]byte, error) {
	reply := make(chan streamReply, 1)
	s.mu.Lock()
	if s.mu.ended != nil || s.mu.leaving {
		cause := s.mu.ended
		if cause == nil {
			cause = errLeft
		}
		s.mu.Unlock()
		return nil, &silenceError{err: cause}
	}
	s.mu.last++
	id := s.mu.last
	s.mu.pending[id] = reply
	s.mu.Unlock()
	s.push(callFrame(ctx, id, q))
	select {
	case r := <-reply:
		return r.payload, r.err
	case <-ctx.Done():
	}
	s.forget(id)
	select {
	case r := <-reply: // it came at the same time
		return r.payload, r.err
	default:
		return nil, &silenceError{err: ctx.Err(), sent: true}
	}
}

// callFrame is the frame of a call. The node is to give up a little before ctx ends, so
// that its reason arrives in time.
func callFrame(ctx context.Context, id uint64, q *wire.ClientRequest) []byte {
	c := wire.Call{ID: id, Method: wire.ClientRow}
	if deadline, ok := ctx.Deadline(); ok {
		c.Timeout = serverTime(time.Until(deadline))
	}
	b := make([]byte, wire.FrameHeader, wire.FrameHeader+64+len(q.Table)+len(q.Key)+len(q.Idem)+len(q.Value))
	b = wire.AppendCall(b, c)
	return wire.FinishFrame(wire.AppendClientRequest(b, q), wire.FrameCall)
}

// push adds a frame to what is to be written. It does not wait until that is: a node
// may be slow to take it, and a caller's time is its own.
func (s *stream) push(frame []byte) {
	s.out.Lock()
	s.out.buf = append(s.out.buf, frame...)
	s.out.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // it is to look already
	}
}

// write writes what is pushed until the stream ends. What cannot be written ends it.
func (s *stream) write() {
	for {
		select {
		case <-s.wake:
		case <-s.done:
			return
		}
		runtime.Gosched() // those who are ready to run may have a call for the same write
		s.out.Lock()
		b := s.out.buf
		s.out.buf = s.out.spare
		s.out.Unlock()
		if len(b) > 0 { // what came last may have gone with what came before
			if err := s.send(b); err != nil {
				s.end(err)
				return
			}
		}
		if cap(b) > 1<<20 {
			b = nil
		}
		s.out.Lock()
		s.out.spare = b[:0]
		s.out.Unlock()
	}
}

func (s *stream) send(b []byte) error {
	if err := s.conn.SetWriteDeadline(time.Now().Add(streamWrite)); err != nil {
		return err
	}
	_, err := s.conn.Write(b)
	return err
}

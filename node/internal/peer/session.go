package peer

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/internal/wire"
)

const (
	writeChunk    = 256 << 10       // bytes of one write
	writeTimeout  = 5 * time.Second // of one write
	keepBuffer    = 1 << 20         // a longer write buffer is given back
	readBuffer    = 64 << 10
	pingInterval  = time.Second
	dialSilence   = 3  // ping intervals without a byte after which the dialling side closes
	acceptSilence = 10 // and the accepting side, which only tidies up
)

var (
	errClosedByPeer = errors.New("the other side closed the connection")
	errRenewed      = errors.New("a certificate changed: another connection took its place")
)

// session is one connection, from the hellos on.
type session struct {
	conn    net.Conn
	br      *bufio.Reader
	tap     *tap
	remote  wire.Hello
	expires time.Time // when the remote's certificate does; zero: never

	state *tls.ConnectionState // nil in plaintext
	own   *x509.Certificate    // this side's; nil if it is not known
	renew func()               // the other side wants to be dialled anew; nil: it may not
	leave chan struct{}        // closed when another connection has taken its place

	// stranger: this node belongs to a cluster and the remote to none. It may ask,
	// and is not taken for the member whose id it has: that one may be running.
	stranger bool

	queue queue
	wbuf  []byte        // of who writes the queue
	sent  int           // bytes that who writes has written since heard
	heard uint64        // of tap.bytes, then
	done  chan struct{} // closed by close
	mu    struct {
		sync.Mutex
		err error
	}
}

// tap reads from a connection and notes what arrives.
type tap struct {
	io.Reader
	bytes atomic.Uint64
	heard *heard // nil until the remote is admitted
	born  time.Time
}

// Read reads from the connection.
func (p *tap) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if n > 0 {
		p.bytes.Add(uint64(n))
		p.note()
	}
	return n, err
}

func (p *tap) note() {
	if p.heard != nil {
		p.heard.at.Store(int64(time.Since(p.born)))
	}
}

func newSession(conn net.Conn, r io.Reader, born time.Time) *session {
	s := &session{conn: conn, tap: &tap{Reader: r, born: born}, done: make(chan struct{}), leave: make(chan struct{})}
	s.br = bufio.NewReaderSize(s.tap, readBuffer)
	s.queue.wake = make(chan struct{}, 1)
	return s
}

// close closes the connection; the first cause counts.
func (s *session) close(cause error) {
	s.mu.Lock()
	first := s.mu.err == nil
	if first {
		s.mu.err = cause
	}
	s.mu.Unlock()
	if first {
		close(s.done)
		s.queue.close()
		// The socket itself: TLS would want to say goodbye, and wait for a peer that
		// does not read. Frames say where they end.
		_ = bare(s.conn).Close()
	}
}

// bare returns the connection under TLS.
func bare(conn net.Conn) net.Conn {
	if c, ok := conn.(*tls.Conn); ok {
		return c.NetConn()
	}
	return conn
}

// cause returns why the session was closed.
func (s *session) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}

// pace is what a session writes of its own accord, and when it gives up.
type pace struct {
	silence int           // ping intervals without a byte after which it closes
	pings   bool          // it sends pings
	beat    func() []byte // the next heartbeat, nil for none now; nil func: no heartbeats
	every   time.Duration // heartbeats
	nudge   <-chan struct{}
	along   <-chan struct{} // a heartbeat went to another node
	went    func()          // says so
}

// run gives each frame that is not the session's own to read, until the
// connection breaks, ctx ends or the session is closed, and returns why. The
// goroutine that writes has ended then.
func (s *session) run(ctx context.Context, p pace, read func(wire.FrameKind, []byte) error) error {
	stop := context.AfterFunc(ctx, func() { s.close(context.Cause(ctx)) })
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { s.close(s.write(p)) })
	s.close(s.read(read))
	wg.Wait()
	return s.cause()
}

func (s *session) read(each func(wire.FrameKind, []byte) error) error {
	for {
		kind, payload, err := wire.ReadFrame(s.br, wire.MaxFrame)
		if errors.Is(err, io.EOF) {
			return errClosedByPeer
		}
		if err != nil {
			return err
		}
		switch kind {
		case wire.FramePing:
			// A queue that is full has enough to say that we live.
			_ = s.queue.push(item{kind: wire.FramePong})
		case wire.FramePong:
		case wire.FrameRenew:
			if s.renew == nil {
				return unexpected(kind)
			}
			s.renew()
		case wire.FrameRaft, wire.FrameHeartbeat, wire.FrameCall, wire.FrameReply, wire.FrameHello, wire.FrameVerdict:
			if err := each(kind, payload); err != nil {
				return err
			}
		default:
			return unexpected(kind)
		}
	}
}

func unexpected(kind wire.FrameKind) error {
	return fmt.Errorf("%w: a frame of kind %d has no place on this connection", wire.ErrMalformed, kind)
}

// send queues a frame of a connection for calls, and writes it unless somebody writes:
// a goroutine of its own would have to be woken for each. Those who are ready to run may
// have a frame for the same write.
func (s *session) send(ctx context.Context, it item) error {
	mine, err := s.queue.wait(ctx, it)
	if mine {
		runtime.Gosched()
		for round := 1; ; round++ {
			wrote := s.drain(maxUnheard-s.unheard(), maxDirect)
			if !s.queue.written(wrote > 0 && round < directRounds) {
				break
			}
		}
	}
	return err
}

// drain writes most bytes of what waits, or a little more, for who has claimed that,
// and returns how many it wrote. What is wrong closes the session.
func (s *session) drain(most, longest int) int {
	buf := s.queue.take(s.wbuf[:0], most, longest)
	s.sent = s.unheard() + len(buf)
	if err := s.writeAll(buf); err != nil {
		s.close(err)
	}
	if s.wbuf = buf; cap(buf) > keepBuffer {
		s.wbuf = nil
	}
	return len(buf)
}

// unheard returns how much who writes has written since the other side was heard.
func (s *session) unheard() int {
	if heard := s.tap.bytes.Load(); heard != s.heard {
		s.heard, s.sent = heard, 0
	}
	return s.sent
}

// write writes the queue, heartbeats before it, until the session is closed or
// something is wrong.
func (s *session) write(p pace) error {
	watch := time.NewTicker(pingInterval)
	defer watch.Stop()
	beats := newBeats(p)
	defer beats.stop()
	buf := beats.append(nil)
	leave := s.leave
	quiet := silence{limit: p.silence, last: time.Now()}
	for {
		var err error
		if p.beat != nil {
			buf, err = s.writeQueue(buf)
		} else if s.queue.claim() {
			s.drain(writeChunk, wire.MaxFrame)
			s.queue.written(false)
		}
		if err != nil {
			return err
		}
		select {
		case <-s.done:
			return s.cause()
		case <-leave:
			if p.beat == nil {
				leave = nil // calls are awaited
				continue
			}
			return s.flush(buf)
		case <-s.queue.wake:
			runtime.Gosched() // as send does
			buf = beats.due(buf)
		case <-p.along:
			if beats.soon() {
				buf = beats.append(buf)
			}
		case <-beats.c:
			buf = beats.append(buf)
		case <-p.nudge:
			buf = beats.append(buf)
		case <-watch.C:
			if err := s.over(&quiet, time.Now()); err != nil {
				return err
			}
			buf = s.ping(p, buf)
		}
	}
}

// ping asks whether the other side is there.
func (s *session) ping(p pace, buf []byte) []byte {
	switch {
	case !p.pings:
	case p.beat != nil:
		return wire.AppendFrame(buf, wire.FramePing, nil)
	default:
		_ = s.queue.push(item{kind: wire.FramePing}) // a queue that is full says enough
	}
	return buf
}

// writeQueue writes buf and what waits behind it, and returns an empty buffer.
func (s *session) writeQueue(buf []byte) ([]byte, error) {
	buf = s.queue.take(buf, writeChunk, wire.MaxFrame)
	err := s.writeAll(buf)
	if buf = buf[:0]; cap(buf) > keepBuffer {
		buf = nil
	}
	return buf, err
}

// over returns why the connection is to end: the other side is silent, or its
// certificate has expired.
func (s *session) over(quiet *silence, now time.Time) error {
	if err := quiet.check(now, s.tap.bytes.Load()); err != nil {
		return err
	}
	if !s.expires.IsZero() && now.After(s.expires) {
		return errExpired
	}
	return nil
}

// flush writes what waits, and ends the connection for the one that has taken its
// place.
func (s *session) flush(buf []byte) error {
	for {
		if buf = s.queue.take(buf[:0], writeChunk, wire.MaxFrame); len(buf) == 0 {
			return errRenewed
		}
		if err := s.writeAll(buf); err != nil {
			return err
		}
	}
}

// beats says when a session's heartbeats go out.
type beats struct {
	p      pace
	ticker *time.Ticker // nil: there are none
	c      <-chan time.Time
	last   time.Time
}

func newBeats(p pace) *beats {
	b := &beats{p: p}
	if p.beat != nil {
		b.ticker = time.NewTicker(p.every)
		b.c = b.ticker.C
	}
	return b
}

func (b *beats) stop() {
	if b.ticker != nil {
		b.ticker.Stop()
	}
}

// due appends a heartbeat if it is time for one, or soon will be: it goes before
// what is queued. A frame of its own shortly after would wake both sides again,
// and that is most of what an idle cluster costs. So it takes the heartbeats for
// other nodes along.
func (b *beats) due(buf []byte) []byte {
	select {
	case <-b.p.nudge:
		return b.append(buf)
	default:
	}
	if !b.soon() {
		return buf
	}
	b.p.went()
	return b.append(buf)
}

// soon reports whether a heartbeat is due within half an interval.
func (b *beats) soon() bool { return b.ticker != nil && time.Since(b.last) >= b.p.every/2 }

// append appends a heartbeat, if there are any; the next is due an interval later.
func (b *beats) append(buf []byte) []byte {
	if b.ticker == nil {
		return buf
	}
	b.last = time.Now()
	b.ticker.Reset(b.p.every)
	if payload := b.p.beat(); payload != nil {
		return wire.AppendFrame(buf, wire.FrameHeartbeat, payload)
	}
	return buf
}

// writeAll writes b in pieces, each with a time limit of its own, so that a large
// frame over a slow line is not mistaken for a line that is dead.
func (s *session) writeAll(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), writeChunk)
		if err := s.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		if _, err := s.conn.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// silence counts ping intervals in which nothing arrived.
type silence struct {
	limit int
	count int
	bytes uint64
	last  time.Time
}

// check is called each ping interval with the number of bytes that have arrived.
// An interval in which this process itself ran late counts against nobody.
func (q *silence) check(now time.Time, bytes uint64) error {
	late := now.Sub(q.last) > pingInterval+pingInterval/2
	if q.last = now; bytes != q.bytes || late {
		q.bytes, q.count = bytes, 0
		return nil
	}
	if q.count++; q.count >= q.limit {
		return fmt.Errorf("not a byte in %s", time.Duration(q.limit)*pingInterval)
	}
	return nil
}

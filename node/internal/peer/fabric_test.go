package peer_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/peer"
	"tidal/node/internal/wire"
)

// fabric is a network in memory.
type fabric struct {
	mu        sync.Mutex
	listeners map[string]*listener
	lines     []*line
	dials     int
}

// line is one connection in a fabric.
type line struct {
	to   string // address dialled
	mu   sync.Mutex
	cut  bool          // what is sent vanishes, in both directions
	held chan struct{} // while not nil nothing is taken from the dialling side
	room int           // but for so many bytes, as buffers of systems take
	ends []net.Conn
}

type listener struct {
	f       *fabric
	address string
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func newFabric() *fabric { return &fabric{listeners: make(map[string]*listener)} }

func (f *fabric) listen(address string) *listener {
	l := &listener{f: f, address: address, conns: make(chan net.Conn, 100), closed: make(chan struct{})}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listeners[address] = l
	return l
}

func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *listener) Close() error {
	l.once.Do(func() {
		l.f.mu.Lock()
		defer l.f.mu.Unlock()
		if l.f.listeners[l.address] == l {
			delete(l.f.listeners, l.address)
		}
		close(l.closed)
		for len(l.conns) > 0 { // the backlog is reset
			_ = (<-l.conns).Close()
		}
	})
	return nil
}

func (l *listener) Addr() net.Addr { return &net.UnixAddr{Name: l.address} }

func (f *fabric) dial(_ context.Context, _, address string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dials++
	l := f.listeners[address]
	if l == nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	near, a := net.Pipe()
	b, far := net.Pipe()
	n := &line{to: address, ends: []net.Conn{a, b}}
	f.lines = append(f.lines, n)
	go n.carry(b, a, n.pass)
	go n.carry(a, b, func(net.Conn, []byte) []byte { return nil })
	l.conns <- far
	return near, nil
}

// carry moves bytes from one end to the other; on a line that is cut it loses
// them, and the news that an end closed.
func (n *line) carry(to, from net.Conn, pass func(net.Conn, []byte) []byte) {
	buf := make([]byte, 32<<10)
	for {
		taken := pass(from, buf)
		k, err := from.Read(buf)
		n.mu.Lock()
		cut := n.cut
		n.mu.Unlock()
		if taken = append(taken, buf[:k]...); !cut && len(taken) > 0 {
			_, _ = to.Write(taken)
		}
		if err != nil {
			if !cut {
				_ = to.Close()
			}
			_ = from.Close()
			return
		}
	}
}

// pass waits while the line is held, and returns what its buffers have taken.
func (n *line) pass(from net.Conn, buf []byte) (taken []byte) {
	n.mu.Lock()
	held, room := n.held, n.room
	n.mu.Unlock()
	if held == nil {
		return nil
	}
	for len(taken) < room {
		k, err := from.Read(buf)
		if taken = append(taken, buf[:k]...); err != nil {
			return taken
		}
	}
	<-held
	return taken
}

// each does something to every line to an address.
func (f *fabric) each(address string, do func(*line)) {
	f.mu.Lock()
	lines := slices.Clone(f.lines)
	f.mu.Unlock()
	for _, n := range lines {
		if n.to == address {
			n.mu.Lock()
			do(n)
			n.mu.Unlock()
		}
	}
}

func (f *fabric) countDials() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.dials
}

// recorder has what a sink was given.
type recorder struct {
	born time.Time
	call func(ctx context.Context, from wire.Hello, method wire.Method, payload []byte) ([]byte, error)

	mu     sync.Mutex
	events []event
}

type event struct {
	at   time.Duration
	text string
	hb   *wire.Heartbeat
	err  error
}

func (r *recorder) note(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.at = time.Since(r.born)
	r.events = append(r.events, e)
}

// sink is a handler that notes what it is given.
type sink struct{ *recorder }

func (r sink) Raft(from api.Incarnation, frame []byte) {
	r.note(event{text: fmt.Sprintf("raft %s %s", from, clip(frame))})
}

func (r sink) Heartbeat(from api.Incarnation, hb *wire.Heartbeat) {
	r.note(event{text: "beat " + from.String(), hb: hb})
}

func (r sink) Up(remote wire.Hello) { r.note(event{text: "up " + remote.Incarnation.String()}) }

func (r sink) Down(node string, inc api.Incarnation, why error) {
	r.note(event{text: "down " + node + " " + inc.String(), err: why})
}

func (r sink) Call(ctx context.Context, from wire.Hello, method wire.Method, payload []byte) ([]byte, error) {
	if r.call == nil {
		return append([]byte("re "), payload...), nil
	}
	return r.call(ctx, from, method, payload)
}

// list returns the events whose text starts with a prefix.
func (r *recorder) list(prefix string) []event {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []event
	for _, e := range r.events {
		if strings.HasPrefix(e.text, prefix) {
			found = append(found, e)
		}
	}
	return found
}

func clip(b []byte) string {
	if len(b) > 40 {
		return string(b[:40])
	}
	return string(b)
}

// node is a transport on a fabric, with its HTTP server.
type node struct {
	*peer.Transport
	*recorder
	id      string
	address string
	log     *logBuffer
	stop    func()
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func diskOf(id string) (d api.DiskID) {
	copy(d[:], id)
	return d
}

// start runs a node's transport at "<id>:1" until its stop is called; the test
// must stop it.
func (f *fabric) start(t *testing.T, id string, count uint64, change ...func(*peer.Options)) *node {
	t.Helper()
	change = append([]func(*peer.Options){func(o *peer.Options) { o.Dial = f.dial }}, change...)
	n := newNode(id, count, change...)
	n.address = id + ":1"
	n.serve(t, f.listen(n.address), nil)
	return n
}

// connected returns two nodes of which a has dialled b.
func connected(t *testing.T) (f *fabric, a, b *node) {
	t.Helper()
	f = newFabric()
	a, b = f.start(t, "a", 1), f.start(t, "b", 1)
	t.Cleanup(func() {
		b.stop()
		a.stop()
	})
	a.SetPeers(map[string]string{"b": "http://b:1"})
	settle()
	return f, a, b
}

// newNode returns a node that does not run yet.
func newNode(id string, count uint64, change ...func(*peer.Options)) *node {
	n := &node{id: id, log: &logBuffer{}, recorder: &recorder{born: time.Now()}}
	o := peer.Options{
		Node: id,
		Hello: func(wire.ConnKind) wire.Hello {
			return wire.Hello{
				Cluster:     "test",
				Disk:        diskOf(id),
				Incarnation: api.Incarnation{Node: id, Start: count, Suffix: 0xabc},
				Version:     "1.0",
			}
		},
		Admit:   func(wire.Hello) error { return nil },
		Beat:    func(_ string, full bool) *wire.Heartbeat { return &wire.Heartbeat{Full: full} },
		Handler: sink{n.recorder},
		Log:     slog.New(slog.NewTextHandler(n.log, nil)),
	}
	for _, c := range change {
		c(&o)
	}
	n.Transport = peer.New(o)
	return n
}

// serve runs the node until its stop is called; secure is nil for plaintext.
func (n *node) serve(t *testing.T, l net.Listener, secure *tls.Config) {
	t.Helper()
	server := &http.Server{
		Handler:           n.Transport,
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig:         secure,
		ErrorLog:          slog.NewLogLogger(slog.NewTextHandler(n.log, nil), slog.LevelInfo),
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		var err error
		if secure == nil {
			err = server.Serve(l)
		} else {
			err = server.ServeTLS(l, "", "")
		}
		if !errors.Is(err, http.ErrServerClosed) {
			t.Errorf("serve: %v", err)
		}
	})
	wg.Go(func() {
		if err := n.Run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	n.stop = sync.OnceFunc(func() {
		_ = server.Close()
		cancel()
		wg.Wait()
	})
}

// join makes nodes peers of each other.
func join(nodes ...*node) {
	for _, n := range nodes {
		addrs := make(map[string]string)
		for _, o := range nodes {
			if o != n {
				addrs[o.id] = "http://" + o.address
			}
		}
		n.SetPeers(addrs)
	}
}

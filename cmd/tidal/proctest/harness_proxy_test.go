package proctest_test

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxyMode is what a proxy does with bytes.
type proxyMode int

const (
	proxyPass  proxyMode = iota
	proxyCut             // open connections are reset, new ones too
	proxyBlack           // bytes vanish; nobody is told
	proxyDeaf            // requests pass, and a connection is reset when its answer comes
)

// proxy stands before one node: it forwards TCP byte for byte, late by delay in
// each direction. It keeps its address while the node behind it comes and goes.
type proxy struct {
	ln     net.Listener
	target string
	delay  time.Duration
	lost   atomic.Int64 // answers that proxyDeaf cut off
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		mode  proxyMode
		conns map[*net.TCPConn]struct{}
	}
}

// newProxy listens on addr and forwards to target until the test ends.
func newProxy(t *testing.T, addr, target string, delay time.Duration) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatalf("proxy: %v", err)
	}
	p := &proxy{ln: ln, target: target, delay: delay}
	p.mu.conns = map[*net.TCPConn]struct{}{}
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		_ = ln.Close()
		p.set(proxyCut)
		p.wg.Wait()
	})
	return p
}

// addr is where the proxy listens.
func (p *proxy) addr() string { return p.ln.Addr().String() }

// set changes the mode. Leaving proxyBlack resets what it has swallowed from,
// since a byte stream with a hole in it must not go on.
func (p *proxy) set(m proxyMode) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if m == proxyCut || p.mu.mode == proxyBlack && m != proxyBlack {
		for c := range p.mu.conns {
			reset(c)
		}
	}
	p.mu.mode = m
}

func (p *proxy) mode() proxyMode {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mu.mode
}

// keep registers a connection for set; false means that it must not live.
func (p *proxy) keep(c *net.TCPConn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.conns[c] = struct{}{}
	return p.mu.mode != proxyCut
}

func (p *proxy) drop(c *net.TCPConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.mu.conns, c)
	_ = c.Close()
}

func (p *proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		if tc, ok := c.(*net.TCPConn); ok {
			p.wg.Go(func() { p.serve(tc) })
		}
	}
}

func (p *proxy) serve(client *net.TCPConn) {
	defer p.drop(client)
	if !p.keep(client) {
		reset(client)
		return
	}
	if p.mode() == proxyBlack {
		_, _ = io.Copy(io.Discard, client) // until set resets it
		return
	}
	c, err := net.DialTimeout("tcp", p.target, 5*time.Second)
	if err != nil {
		reset(client) // the nearest a proxy has to a refused connection
		return
	}
	server, ok := c.(*net.TCPConn)
	if !ok {
		reset(client)
		return
	}
	defer p.drop(server)
	if !p.keep(server) {
		reset(client)
		reset(server)
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.pipe(server, client, proxyPass) })
	both.Go(func() { p.pipe(client, server, proxyDeaf) })
	both.Wait()
}

// chunk is bytes read, or the end of the stream, and when it is due.
type chunk struct {
	data []byte
	err  error
	due  time.Time
}

// pipe moves one direction, but not in the mode that cuts it. It ends when src has
// ended, and tells dst how.
func (p *proxy) pipe(dst, src *net.TCPConn, cut proxyMode) {
	queue := make(chan chunk, 256)
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(queue)
		buf := make([]byte, 64<<10)
		for {
			n, err := src.Read(buf)
			due := time.Now().Add(p.delay)
			if n > 0 {
				queue <- chunk{data: append([]byte(nil), buf[:n]...), due: due}
			}
			if err != nil {
				queue <- chunk{err: err, due: due}
				return
			}
		}
	})
	timer := time.NewTimer(0)
	defer timer.Stop()
	broken := false
	for c := range queue {
		if d := time.Until(c.due); d > 0 {
			timer.Reset(d)
			<-timer.C
		}
		switch {
		case broken || p.mode() == proxyBlack:
		case cut != proxyPass && p.mode() == cut && c.err == nil:
			p.lost.Add(1)
			broken = true
			reset(dst)
			reset(src)
		case errors.Is(c.err, io.EOF):
			_ = dst.CloseWrite()
		case c.err != nil:
			reset(dst)
		default:
			if _, err := dst.Write(c.data); err != nil {
				broken = true
				reset(src)
			}
		}
	}
	reader.Wait()
}

// reset closes with a RST, as a dead process's kernel does.
func reset(c *net.TCPConn) {
	_ = c.SetLinger(0)
	_ = c.Close()
}

package client

import (
	"net"
	"runtime"
	"sync"
	"testing"
	"time"
)

// scribe is a connection that counts what is written.
type scribe struct {
	net.Conn

	mu struct {
		sync.Mutex
		writes, bytes int
	}
	full chan struct{} // said when all bytes of a round are there
	each int           // bytes of a round
}

// Write implements net.Conn.
func (c *scribe) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.writes++
	if c.mu.bytes += len(b); c.mu.bytes%c.each == 0 {
		c.full <- struct{}{}
	}
	return len(b), nil
}

// SetWriteDeadline implements net.Conn.
func (c *scribe) SetWriteDeadline(time.Time) error { return nil }

// Who asks at the same time shares a write: alone, each of them would be a record of TLS,
// and wake the node.
func TestCallersShareAWrite(t *testing.T) { //nolint:paralleltest // it changes how many may run at once
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rounds, callers = 50, 16
	frame := []byte("frame")
	conn := &scribe{each: callers * len(frame), full: make(chan struct{}, rounds)}
	s := &stream{conn: conn, done: make(chan struct{}), wake: make(chan struct{}, 1)}
	var writer sync.WaitGroup
	writer.Go(s.write)
	for range rounds {
		for range callers {
			go s.push(frame)
		}
		<-conn.full
	}
	close(s.done)
	writer.Wait()
	if got := conn.mu.writes; got > 2*rounds {
		t.Errorf("%d rounds of %d calls were written in %d pieces", rounds, callers, got)
	}
}

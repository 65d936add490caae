package proctest_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Bounds of what clients that send a byte a second may cost.
const (
	slowClients = 5000
	slowMemory  = 200 << 20        // bytes more than before
	slowHeader  = 20 * time.Second // by when one that sends a header is closed
	slowBody    = 45 * time.Second // one that sends a body
	normalWait  = 2 * time.Second  // for a normal client meanwhile
)

// TestSlowClients opens 5,000 connections that send a byte a second, half of them of
// a header and half of a body that is announced with 1 MiB. They are closed, they
// cost little memory, and a normal client is served as if they were not there.
// server.TestDrips is its short form.
func TestSlowClients(t *testing.T) {
	onDemand(t, "TIDAL_SLOWCLIENTS", "slowclients")
	c := newCluster(t, clusterOptions{nodes: 1})
	n := c.nodes[0]
	c.startAll(t)
	c.createTables(t, 1)
	before := residentBytes(t, n.cmd.Process.Pid)
	var open, late atomic.Int64
	var all, dialed sync.WaitGroup
	slots := make(chan struct{}, 64) // handshakes at once
	for i := range slowClients {
		dialed.Add(1)
		all.Go(func() {
			slots <- struct{}{}
			conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 20 * time.Second}, "tcp", n.listen, c.tls)
			<-slots
			dialed.Done()
			if err != nil {
				t.Errorf("connection %d: %v", i, err)
				return
			}
			open.Add(1)
			defer open.Add(-1)
			defer func() { _ = conn.Close() }()
			limit := slowHeader
			text := "GET /v1/tables/t0/rows/k HTTP/1.1\r\nHost: a\r\nX-Slow: "
			if i%2 == 1 {
				limit = slowBody
				_, err = io.WriteString(conn, "PUT /v1/tables/t0/rows/k HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n")
			}
			if drip(conn, text, limit, err) {
				late.Add(1)
			}
		})
	}
	dialed.Wait()
	most, longest := 0, time.Duration(0)
	for begun := time.Now(); open.Load() > 0 && time.Since(begun) < slowBody+slowHeader; {
		asked := time.Now()
		if a := c.must(t, 0, http.MethodPut, "/v1/tables/t0/rows/normal", "v", nil); a.status/100 != 2 {
			t.Errorf("a normal client: %s", a)
		}
		longest = max(longest, time.Since(asked))
		most = max(most, residentBytes(t, n.cmd.Process.Pid)-before)
		pause(100 * time.Millisecond)
	}
	all.Wait()
	t.Logf("%d MB more; a normal client waited %v at most", most>>20, longest)
	if late.Load() > 0 {
		t.Errorf("%d of %d connections were not closed in time", late.Load(), slowClients)
	}
	if most > slowMemory {
		t.Errorf("%d MB more, want at most %d MB", most>>20, slowMemory>>20)
	}
	if longest > normalWait {
		t.Errorf("a normal client waited %v", longest)
	}
}

// drip sends a text over and over, a byte a second, until the other side closes the
// connection. It reports whether that took longer than the limit.
func drip(conn net.Conn, text string, limit time.Duration, err error) (late bool) {
	closed := make(chan struct{})
	go func() { // ends with the connection
		_, _ = io.Copy(io.Discard, conn)
		close(closed)
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	end := time.After(limit)
	for i := 0; err == nil; i++ {
		select {
		case <-closed:
			return false
		case <-end:
			return true
		case <-tick.C:
			_, err = fmt.Fprint(conn, text[i%len(text):i%len(text)+1])
		}
	}
	return false
}

package server_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
)

// dialer starts the rig's http.Server and returns a way to connect to it, as often
// as one likes.
func (g *rig) dialer(t *testing.T) (dial func() net.Conn) {
	t.Helper()
	p := g.listen(t, nil)
	return func() net.Conn {
		here, there := net.Pipe()
		p.conns <- there
		return here
	}
}

// TestDrips: connections that send a byte a second are closed, in their headers and
// in their bodies, while others are served.
func TestDrips(t *testing.T) {
	for name, test := range map[string]struct {
		head string
		most time.Duration
	}{
		"headers": {"", 11 * time.Second},
		"bodies":  {"PUT " + rowK + " HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n", 32 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				dial := g.dialer(t)
				var all sync.WaitGroup
				begun := time.Now()
				for range 50 {
					conn := dial()
					all.Go(func() {
						go func() { _, _ = io.Copy(io.Discard, conn) }() // ends with the connection
						_, err := io.WriteString(conn, test.head)
						for _, c := range strings.Repeat("GET / HTTP/1.1 ", 100) {
							if err != nil {
								break
							}
							<-time.After(time.Second)
							_, err = fmt.Fprint(conn, string(c))
						}
						if took := time.Since(begun); err == nil || took > test.most {
							t.Errorf("after %v: %v", took, err)
						}
						_ = conn.Close()
					})
				}
				<-time.After(5 * time.Second)
				conn := dial()
				_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", rowK)
				if status, _ := answerOf(t, bufio.NewReader(conn)); status != http.StatusOK {
					t.Errorf("a normal client: %d", status)
				}
				_ = conn.Close()
				if held := g.Bodies(); held > 50*8<<10 {
					t.Errorf("%d bytes are held for bodies of which hardly anything came", held)
				}
				all.Wait()
				synctest.Wait()
				if held := g.Bodies(); held != 0 {
					t.Errorf("%d bytes are held for nobody", held)
				}
			})
		})
	}
}

// TestBodiesAreBounded: bodies that are on their way together take no more than
// their bound. Who comes later gets 429, and is served once there is room.
func TestBodiesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.BoundBodies(1 << 20)
		dial := g.dialer(t)
		put := func(size, send int) (net.Conn, *bufio.Reader) {
			conn := dial()
			_, _ = fmt.Fprintf(conn, "PUT %s HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n", rowK, size)
			go func() { _, _ = conn.Write(make([]byte, send)) }() // ends with the connection
			return conn, bufio.NewReader(conn)
		}
		first, r := put(900<<10, 800<<10)
		synctest.Wait()
		second, r2 := put(400<<10, 400<<10)
		status, body := answerOf(t, r2)
		if status != http.StatusTooManyRequests || !strings.Contains(body, "1048576") {
			t.Errorf("the second body: %d %s", status, body)
		}
		_ = second.Close()
		go func() { _, _ = first.Write(make([]byte, 100<<10)) }()
		if status, body := answerOf(t, r); status != http.StatusNoContent {
			t.Errorf("the first body: %d %s", status, body)
		}
		_ = first.Close()
		synctest.Wait()
		if held := g.Bodies(); held != 0 {
			t.Errorf("%d bytes are held for nobody", held)
		}
		third, r3 := put(400<<10, 400<<10)
		if status, body := answerOf(t, r3); status != http.StatusNoContent {
			t.Errorf("the third body: %d %s", status, body)
		}
		_ = third.Close()
	})
}

// TestSlowReader: a client that does not read its answer is cut, and what it held
// is free again.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.resp.Value = make([]byte, api.MaxValue)
		conn := g.dialer(t)()
		_, _ = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: a\r\n\r\n", rowK)
		<-time.After(time.Second)
		if held := g.Bodies(); held != api.MaxValue {
			t.Errorf("%d bytes are held for the answer", held)
		}
		<-time.After(61 * time.Second)
		if held := g.Bodies(); held != 0 {
			t.Errorf("%d bytes are held for a client that does not read", held)
		}
		_ = conn.Close()
	})
}

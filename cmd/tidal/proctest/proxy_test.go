package proctest_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// echo answers each connection with what it sends, until the test ends.
func echo(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				_, _ = io.Copy(c, c)
				_ = c.Close()
			})
		}
	})
	t.Cleanup(func() { _ = ln.Close(); wg.Wait() })
	return ln.Addr().String()
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c.(*net.TCPConn)
}

// tryOnce dials and makes a round trip.
func tryOnce(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return roundTrip(c, 5*time.Second)
}

// isReset is an error unless err says that a connection broke.
func isReset(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("%v: want a reset", err) //nolint:errorlint // err may be nil
	}
	return nil
}

// roundTrip sends a few bytes and reads them back.
func roundTrip(c net.Conn, patience time.Duration) error {
	_ = c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write([]byte("ping")); err != nil {
		return err
	}
	_, err := io.ReadFull(c, make([]byte, 4))
	return err
}

func TestProxyIsTransparent(t *testing.T) {
	p := newProxy(t, "127.0.0.1:0", echo(t), linkDelay)
	c := dial(t, p.addr())
	sent := make([]byte, 3<<20)
	src := rand.NewChaCha8([32]byte{1})
	_, _ = src.Read(sent)
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = c.Write(sent)
		_ = c.CloseWrite() // the end must arrive too, after the bytes
	})
	got, err := io.ReadAll(c)
	wg.Wait()
	if err != nil || sha256.Sum256(got) != sha256.Sum256(sent) {
		t.Fatalf("sent %d bytes, got %d back, equal %v, %v", len(sent), len(got), bytes.Equal(sent, got), err)
	}
}

func TestProxyIsLate(t *testing.T) {
	const delay = 20 * time.Millisecond
	p := newProxy(t, "127.0.0.1:0", echo(t), delay)
	c := dial(t, p.addr())
	if err := roundTrip(c, 5*time.Second); err != nil { // the first one dials, too
		t.Fatal(err)
	}
	began := time.Now()
	if err := roundTrip(c, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*delay {
		t.Errorf("there and back took %v, want at least %v", took, 2*delay)
	}
}

func TestProxyCuts(t *testing.T) {
	p := newProxy(t, "127.0.0.1:0", echo(t), 0)
	open := dial(t, p.addr())
	if err := roundTrip(open, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	p.set(proxyCut)
	if err := isReset(roundTrip(open, 5*time.Second)); err != nil {
		t.Errorf("open connection: %v", err)
	}
	if err := isReset(tryOnce(p.addr())); err != nil {
		t.Errorf("new connection: %v", err)
	}
	p.set(proxyPass)
	if err := tryOnce(p.addr()); err != nil {
		t.Errorf("after the cut: %v", err)
	}
}

// TestProxyIsDeaf: what was sent arrives, and the connection breaks at the answer.
func TestProxyIsDeaf(t *testing.T) {
	p := newProxy(t, "127.0.0.1:0", echo(t), 0)
	open := dial(t, p.addr())
	if err := roundTrip(open, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	p.set(proxyDeaf)
	if err := isReset(roundTrip(open, 5*time.Second)); err != nil {
		t.Errorf("open connection: %v", err)
	}
	if n := p.lost.Load(); n != 1 {
		t.Errorf("%d answers were cut off, want 1", n)
	}
	p.set(proxyPass)
	if err := tryOnce(p.addr()); err != nil {
		t.Errorf("after that: %v", err)
	}
}

func TestProxySwallows(t *testing.T) {
	p := newProxy(t, "127.0.0.1:0", echo(t), 0)
	open := dial(t, p.addr())
	if err := roundTrip(open, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	p.set(proxyBlack)
	fresh := dial(t, p.addr())
	for name, c := range map[string]net.Conn{"open": open, "new": fresh} {
		if err := roundTrip(c, 200*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s connection: %v, want silence", name, err)
		}
	}
	p.set(proxyPass)
	for name, c := range map[string]net.Conn{"open": open, "new": fresh} {
		if err := isReset(roundTrip(c, 5*time.Second)); err != nil {
			t.Errorf("%s connection after the hole: %v", name, err)
		}
	}
	if err := tryOnce(p.addr()); err != nil {
		t.Errorf("after the hole: %v", err)
	}
}

// TestProxyOutlivesItsNode: while nobody listens behind it, connections break.
func TestProxyOutlivesItsNode(t *testing.T) {
	addr := freePorts(t, 1)[0]
	p := newProxy(t, "127.0.0.1:0", addr, 0)
	if err := isReset(tryOnce(p.addr())); err != nil {
		t.Errorf("nobody listens: %v", err)
	}
}

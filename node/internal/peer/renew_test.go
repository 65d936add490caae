package peer_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/internal/peer"
	"tidal/node/internal/wire"
)

// changing is a node's certificate, which a test replaces.
type changing struct {
	cert atomic.Pointer[tls.Certificate]
}

func (c *changing) set(t *testing.T, ca *authority, node string) {
	t.Helper()
	cert := ca.issue(t, node, time.Hour)
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	cert.Leaf = leaf
	c.cert.Store(&cert)
}

// remembered tells the transport which certificate it was served with.
type remembered struct {
	net.Conn

	leaf *x509.Certificate
}

func (r remembered) Served() *x509.Certificate { return r.leaf }

type remembering struct {
	net.Listener

	c *changing
}

func (r remembering) Accept() (net.Conn, error) {
	conn, err := r.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return remembered{conn, r.c.cert.Load().Leaf}, nil
}

// renewing starts a node whose certificate can be changed.
func renewing(t *testing.T, f *fabric, ca *authority, id string) (*node, *changing) {
	t.Helper()
	c := &changing{}
	c.set(t, ca, id)
	n := newNode(id, 1, func(o *peer.Options) {
		o.Dial, o.Names = f.dial, names
		o.TLS = func(string) *tls.Config {
			return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.pool, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return c.cert.Load(), nil
			}}
		}
	})
	n.address = id + ":1"
	conf := ca.server(tls.Certificate{})
	conf.Certificates = nil
	conf.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.cert.Load(), nil }
	n.serve(t, remembering{f.listen(n.address), c}, conf)
	return n, c
}

// old counts a node's connections on which one side shows another certificate
// than it has now.
func old(n *node, own, other *changing) (total, outdated int) {
	for _, c := range n.Conns() {
		total++
		if c.Own == nil || !c.Own.Equal(own.cert.Load().Leaf) || !c.Peer.PeerCertificates[0].Equal(other.cert.Load().Leaf) {
			outdated++
		}
	}
	return total, outdated
}

// TestRenew has a node take another certificate under calls and frames: each
// connection in either direction is made anew, no call fails, and nobody is told
// that the node was away.
func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, ca := newFabric(), newAuthority(t)
		a, ca1 := renewing(t, f, ca, "a")
		defer a.stop()
		b, cb := renewing(t, f, ca, "b")
		defer b.stop()
		b.call = func(_ context.Context, _ wire.Hello, _ wire.Method, payload []byte) ([]byte, error) {
			<-time.After(300 * time.Millisecond)
			return payload, nil
		}
		a.SetPeers(map[string]string{"b": "https://b:1"})
		b.SetPeers(map[string]string{"a": "https://a:1"})
		advance(time.Second)
		var wg sync.WaitGroup
		stop := make(chan struct{})
		var calls, lost atomic.Int64
		for i := range 20 {
			wg.Go(func() {
				<-time.After(time.Duration(i) * 15 * time.Millisecond) // so that some are always under way
				for {
					select {
					case <-stop:
						return
					default:
					}
					want := fmt.Sprint(i, calls.Add(1))
					ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
					got, err := a.Call(ctx, "b", wire.MethodStatus, []byte(want))
					cancel()
					if err != nil || string(got) != want {
						t.Errorf("a call: %q, %v", got, err)
					}
				}
			})
		}
		wg.Go(func() {
			tick := time.NewTicker(10 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-stop:
					return
				case <-tick.C:
					if !a.SendRaft("b", []byte("frame")) {
						lost.Add(1)
					}
				}
			}
		})
		check := func(what string) {
			t.Helper()
			advance(3 * time.Second)
			for _, side := range []struct {
				n          *node
				own, other *changing
			}{{a, ca1, cb}, {b, cb, ca1}} {
				if total, outdated := old(side.n, side.own, side.other); total != 4 || outdated != 0 {
					t.Errorf("%s: %d of %d connections show an old certificate", what, outdated, total)
				}
			}
			if down := len(a.list("down")) + len(b.list("down")); down > 0 {
				t.Errorf("%s: the other was said to be away %d times", what, down)
			}
		}
		check("at first")
		frames := len(b.list("raft "))
		cb.set(t, ca, "b")
		if _, outdated := old(b, cb, ca1); outdated != 4 {
			t.Fatalf("before it renews, %d connections are outdated, want 4", outdated)
		}
		b.Renew()
		check("b's certificate")
		ca1.set(t, ca, "a")
		a.Renew()
		check("a's certificate")
		a.Renew()
		b.Renew()
		check("both at once")
		close(stop)
		wg.Wait()
		if lost.Load() > 0 {
			t.Errorf("%d frames were not taken", lost.Load())
		}
		if got := len(b.list("raft ")) - frames; got < 890 {
			t.Errorf("b got %d frames in 9 s, want about 900", got)
		}
	})
}

// A peer that cannot be dialled keeps its connection, and gets another once it can.
func TestRenewKeepsWhatStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, ca := newFabric(), newAuthority(t)
		a, ca1 := renewing(t, f, ca, "a")
		defer a.stop()
		b, cb := renewing(t, f, ca, "b")
		defer b.stop()
		a.SetPeers(map[string]string{"b": "https://b:1"})
		advance(time.Second)
		stranger := newAuthority(t)
		good := ca1.cert.Load()
		ca1.set(t, stranger, "a") // b does not know its authority
		a.Renew()
		advance(5 * time.Second)
		if down := a.list("down"); len(down) > 0 || !a.SendRaft("b", nil) {
			t.Fatalf("the connection that stood was given up: %v", down)
		}
		ca1.cert.Store(good)
		cb.set(t, ca, "b")
		advance(5 * time.Second)
		if total, outdated := old(a, ca1, cb); total != 2 || outdated != 0 {
			t.Errorf("%d of %d connections are outdated", outdated, total)
		}
	})
}

func TestCloseIf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, ca := newFabric(), newAuthority(t)
		a, _ := renewing(t, f, ca, "a")
		defer a.stop()
		b, cb := renewing(t, f, ca, "b")
		defer b.stop()
		a.SetPeers(map[string]string{"b": "https://b:1"})
		advance(time.Second)
		a.CloseIf(func(cs *tls.ConnectionState) error {
			if cs.PeerCertificates[0].Equal(cb.cert.Load().Leaf) {
				return errors.New("revoked")
			}
			return nil
		})
		advance(time.Second)
		if down := a.list("down b"); len(down) != 1 {
			t.Errorf("a was told %v", down)
		}
	})
}

// TestRenewedBreaks: the connection that took another's place breaks while a long
// call waits on the old one. The next call does not wait for that one, which gets
// its answer.
func TestRenewedBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, ca := newFabric(), newAuthority(t)
		a, _ := renewing(t, f, ca, "a")
		defer a.stop()
		b, _ := renewing(t, f, ca, "b")
		defer b.stop()
		b.call = func(_ context.Context, _ wire.Hello, _ wire.Method, payload []byte) ([]byte, error) {
			if string(payload) == "long" {
				<-time.After(10 * time.Second)
			}
			return payload, nil
		}
		a.SetPeers(map[string]string{"b": "https://b:1"})
		advance(time.Second)
		long := make(chan error, 1)
		go func() {
			_, err := a.Call(t.Context(), "b", wire.MethodStatus, []byte("long"))
			long <- err
		}()
		advance(time.Second)
		before := f.countDials()
		a.Renew()
		advance(time.Second)
		if got := f.countDials(); got != before+2 {
			t.Fatalf("%d connections were made anew, want 2", got-before)
		}
		f.mu.Lock()
		for _, n := range f.lines[before:] {
			_ = n.ends[0].Close()
		}
		f.mu.Unlock()
		advance(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if _, err := a.Call(ctx, "b", wire.MethodStatus, []byte("next")); err != nil {
			t.Errorf("a call after it broke: %v", err)
		}
		if err := <-long; err != nil {
			t.Errorf("the call on the old connection: %v", err)
		}
	})
}

// TestRevokedWhileShaking: a node whose certificate is revoked between the verdict
// on it and its own, which it keeps back, gets no connection.
func TestRevokedWhileShaking(t *testing.T) {
	fault := func(*tls.ConnectionState) error { return errors.New("revoked") }
	for name, revoke := range map[string]func(*node, *atomic.Bool){
		"closed":       func(b *node, _ *atomic.Bool) { b.CloseIf(fault) },
		"judged again": func(_ *node, revoked *atomic.Bool) { revoked.Store(true) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, ca := newFabric(), newAuthority(t)
				cert := ca.issue(t, "b", time.Hour)
				var revoked atomic.Bool
				b := newNode("b", 1, func(o *peer.Options) {
					o.Dial = f.dial
					ca.secure(cert)(o)
					o.Names = func(cs *tls.ConnectionState, node string) error {
						if revoked.Load() {
							return errors.New("revoked")
						}
						return names(cs, node)
					}
				})
				b.serve(t, f.listen("b:1"), ca.server(cert))
				defer b.stop()
				raw, err := f.dial(t.Context(), "", "b:1")
				if err != nil {
					t.Fatal(err)
				}
				s := knockOn(t, tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: ca.pool, ServerName: "b", Certificates: []tls.Certificate{ca.issue(t, "a", time.Hour)}}))
				s.say(t, helloOf(wire.ConnRaft))
				if refusal := s.verdict(t); refusal != nil {
					t.Fatal(refusal)
				}
				revoke(b, &revoked)
				go func() { _, _ = s.Write(wire.AppendFrame(nil, wire.FrameVerdict, nil)) }()
				advance(time.Second)
				if up := b.list("up a"); len(up) > 0 || len(b.Conns()) > 0 {
					t.Errorf("it is let in: %v", up)
				}
				_ = raw.Close()
			})
		})
	}
}

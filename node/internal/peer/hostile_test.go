package peer_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/node/internal/peer"
	"tidal/node/internal/wire"
)

const upgrade = "GET " + peer.Path + " HTTP/1.1\r\nHost: b\r\nConnection: Upgrade\r\nUpgrade: " + peer.Upgrade + "\r\n\r\n"

// stranger is a connection to b that speaks the protocol by hand.
type stranger struct {
	net.Conn
	br *bufio.Reader
}

// knock asks b for the peer protocol.
func knock(t *testing.T, f *fabric) *stranger {
	t.Helper()
	conn, err := f.dial(t.Context(), "tcp", "b:1")
	if err != nil {
		t.Fatal(err)
	}
	return knockOn(t, conn)
}

// knockOn asks for it on a connection that was made.
func knockOn(t *testing.T, conn net.Conn) *stranger {
	t.Helper()
	s := &stranger{Conn: conn, br: bufio.NewReader(conn)}
	s.say(t, []byte(upgrade))
	answer, err := http.ReadResponse(s.br, nil)
	if err == nil {
		_ = answer.Body.Close()
	}
	if err != nil || answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v, %v", answer, err)
	}
	return s
}

func (s *stranger) say(t *testing.T, b []byte) {
	t.Helper()
	if _, err := s.Write(b); err != nil {
		t.Fatal(err)
	}
}

// verdict reads b's hello and its verdict.
func (s *stranger) verdict(t *testing.T) *api.Error {
	t.Helper()
	kind, payload, err := wire.ReadFrame(s.br, wire.MaxHello)
	if err != nil || kind != wire.FrameHello {
		t.Fatalf("frame of kind %d, %v", kind, err)
	}
	if h, bad := wire.DecodeHello(payload); bad != nil || h.Incarnation.Node != "b" {
		t.Fatalf("%v says hello, %v", h, bad)
	}
	kind, payload, err = wire.ReadFrame(s.br, wire.MaxVerdict)
	if err != nil || kind != wire.FrameVerdict {
		t.Fatalf("frame of kind %d, %v", kind, err)
	}
	if len(payload) == 0 {
		return nil
	}
	refusal, err := wire.DecodeError(payload)
	if err != nil {
		t.Fatal(err)
	}
	return refusal
}

// ended waits until b closes the connection.
func (s *stranger) ended(t *testing.T) {
	t.Helper()
	if _, err := io.Copy(io.Discard, s.br); err != nil {
		t.Errorf("the connection ended with %v", err)
	}
	_ = s.Close()
}

func helloOf(kind wire.ConnKind) []byte {
	h := wire.Hello{Min: 1, Max: 1, Kind: kind, Disk: diskOf("a"), Incarnation: api.Incarnation{Node: "a", Start: 1}}
	return wire.AppendFrame(nil, wire.FrameHello, wire.AppendHello(nil, &h))
}

func TestHostileHellos(t *testing.T) {
	tests := []struct {
		name string
		said []byte
		want string
	}{
		{"length", []byte{0xff, 0xff, 0xff, 0xff, 1}, "a frame of 4294967295 bytes, the limit is 4096"},
		{"garbage", wire.AppendFrame(nil, wire.FrameHello, []byte("\x01garbage")), "the hello: malformed"},
		{"empty", wire.AppendFrame(nil, wire.FrameHello, nil), "the hello: malformed"},
		{"no hello", wire.AppendFrame(nil, wire.FrameRaft, []byte("x")), "a frame of kind 5 has no place"},
		{"connection kind", helloOf(99), "a connection of kind 99"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				b := f.start(t, "b", 1)
				defer b.stop()
				s := knock(t, f)
				s.say(t, test.said)
				refusal := s.verdict(t)
				if refusal == nil || !strings.Contains(refusal.Message, test.want) {
					t.Errorf("the verdict is %v, want %q in it", refusal, test.want)
				}
				s.ended(t)
				synctest.Wait()
				if !strings.Contains(b.log.String(), test.want) {
					t.Errorf("the log does not say so:\n%s", b.log)
				}
			})
		})
	}
}

func TestHostileFrames(t *testing.T) {
	tests := []struct {
		name string
		kind wire.ConnKind
		said []byte
		want string
	}{
		{"length", wire.ConnRaft, []byte{0xff, 0xff, 0xff, 0xff, 5}, "a frame of 4294967295 bytes, the limit is 16777216"},
		{"unknown kind", wire.ConnRaft, wire.AppendFrame(nil, 99, nil), "a frame of kind 99 has no place"},
		{"call among raft", wire.ConnRaft, wire.AppendFrame(nil, wire.FrameCall, nil), "a frame of kind 7 has no place"},
		{"raft among calls", wire.ConnCall, wire.AppendFrame(nil, wire.FrameRaft, nil), "a frame of kind 5 has no place"},
		{"heartbeat", wire.ConnRaft, wire.AppendFrame(nil, wire.FrameHeartbeat, []byte{1, 2}), "malformed: pass"},
		{"call", wire.ConnCall, wire.AppendFrame(nil, wire.FrameCall, []byte{1}), "malformed: method"},
		{"hello again", wire.ConnCall, helloOf(wire.ConnCall), "a frame of kind 1 has no place"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				b := f.start(t, "b", 1)
				defer b.stop()
				s := knock(t, f)
				s.say(t, helloOf(test.kind))
				if refusal := s.verdict(t); refusal != nil {
					t.Fatal(refusal)
				}
				s.say(t, append(wire.AppendFrame(nil, wire.FrameVerdict, nil), test.said...))
				s.ended(t)
				synctest.Wait()
				if !strings.Contains(b.log.String(), test.want) {
					t.Errorf("the log does not have %q:\n%s", test.want, b.log)
				}
			})
		})
	}
}

// TestFrameInPieces shows that frames are put together from any pieces, and that
// what comes right behind the request is not lost.
func TestFrameInPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		b := f.start(t, "b", 1)
		defer b.stop()
		conn, err := f.dial(t.Context(), "tcp", "b:1")
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.Copy(io.Discard, conn) }()
		all := append([]byte(upgrade), helloOf(wire.ConnRaft)...)
		all = wire.AppendFrame(all, wire.FrameVerdict, nil)
		all = wire.AppendFrame(all, wire.FrameRaft, bytes.Repeat([]byte("x"), 3000))
		for len(all) > 0 {
			n := min(len(all), len(upgrade)+7)
			if _, err := conn.Write(all[:n]); err != nil {
				t.Fatal(err)
			}
			all = all[n:]
		}
		settle()
		if got := b.list("raft a.1.00000000 xxx"); len(got) != 1 {
			t.Errorf("b got %v\n%s", got, b.log)
		}
		_ = conn.Close()
	})
}

// TestNoCertificateNoHandshake: the bound is for nodes. Anybody who reaches the
// port could else hold all places and keep the nodes from each other.
func TestNoCertificateNoHandshake(t *testing.T) {
	b := newNode("b", 1, func(o *peer.Options) {
		o.Names = func(*tls.ConnectionState, string) error { return nil }
	})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, peer.Path, nil)
	r.Header.Set("Connection", "Upgrade")
	r.Header.Set("Upgrade", peer.Upgrade)
	for what, state := range map[string]*tls.ConnectionState{"plaintext": nil, "no certificate": {}} {
		r.TLS = state
		w := httptest.NewRecorder()
		b.ServeHTTP(w, r)
		if w.Code != http.StatusForbidden {
			t.Errorf("%s: %d %s", what, w.Code, w.Body)
		}
	}
}

func TestHandshakesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		b := f.start(t, "b", 1)
		defer b.stop()
		begin := time.Now()
		var silent []*stranger
		for range 64 {
			silent = append(silent, knock(t, f))
		}
		client := &http.Client{Transport: &http.Transport{DialContext: f.dial, DisableKeepAlives: true}}
		ask := func() (int, string) {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://b:1"+peer.Path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Connection", "Upgrade")
			r.Header.Set("Upgrade", peer.Upgrade)
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = answer.Body.Close() }()
			var text []byte
			if answer.StatusCode != http.StatusSwitchingProtocols {
				text, _ = io.ReadAll(answer.Body)
			}
			return answer.StatusCode, string(text)
		}
		if status, text := ask(); status != http.StatusServiceUnavailable || !strings.Contains(text, "64 connections") {
			t.Errorf("the 65th is answered %d: %s", status, text)
		}
		for _, s := range silent {
			s.ended(t)
		}
		if d := time.Since(begin); d != 5*time.Second {
			t.Errorf("silent connections were closed after %s, want 5s", d)
		}
		synctest.Wait()
		if status, _ := ask(); status != http.StatusSwitchingProtocols {
			t.Errorf("the next one is answered %d", status)
		}
	})
}

func TestPlainClientIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		b := f.start(t, "b", 1)
		defer b.stop()
		client := &http.Client{Transport: &http.Transport{DialContext: f.dial, DisableKeepAlives: true}}
		for _, method := range []string{http.MethodGet, http.MethodPost} {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://b:1"+peer.Path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if method == http.MethodPost {
				r.Header.Set("Upgrade", peer.Upgrade)
			}
			answer, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(answer.Body)
			_ = answer.Body.Close()
			if answer.StatusCode != http.StatusUpgradeRequired || answer.Header.Get("Upgrade") != "tidal-peer" ||
				!strings.Contains(string(text), "for the nodes of the cluster") {
				t.Errorf("%s is answered %s: %s", method, answer.Status, text)
			}
		}
	})
}

// TestStrangersAnswer dials addresses where something else than a node answers.
func TestStrangersAnswer(t *testing.T) {
	tests := []struct{ name, answer, want string }{
		{"web server", "HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nnot here\n", `no tidal node answers there: 404 Not Found: "not here"`},
		{"other protocol", "SSH-2.0-OpenSSH_9.2\r\n", "malformed HTTP"},
		{"hangs up", "", "closed the connection"},
		{"garbage after the upgrade", "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: tidal-peer\r\n\r\n\xff\xff\xff\xff\x01", "a frame of 4294967295 bytes"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				a := f.start(t, "a", 1)
				defer a.stop()
				l := f.listen("b:1")
				go func() {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					br := bufio.NewReader(conn)
					_, _ = http.ReadRequest(br)
					_, _ = fmt.Fprint(conn, test.answer)
					if strings.Contains(test.answer, " 101 ") {
						_, _ = io.Copy(io.Discard, br) // hears the hello out
					}
					_ = conn.Close()
				}()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, _, err := a.CallAddress(ctx, "http://b:1", 0, nil)
				if !errors.Is(err, peer.ErrUnreachable) || !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q in it", err, test.want)
				}
			})
		})
	}
}

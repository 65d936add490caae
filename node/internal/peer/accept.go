package peer

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// ServeHTTP takes a connection that asks for the peer protocol and serves it
// until it ends.
func (t *Transport) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || !strings.EqualFold(r.Header.Get("Upgrade"), Upgrade) {
		w.Header().Set("Upgrade", Upgrade)
		w.Header().Set("Connection", "Upgrade")
		http.Error(w, "this path is for the nodes of the cluster, which ask it for the protocol "+Upgrade, http.StatusUpgradeRequired)
		return
	}
	// Before it is counted: who shows no certificate must not keep nodes out.
	if t.o.Names != nil && (r.TLS == nil || len(r.TLS.PeerCertificates) == 0) {
		http.Error(w, "this path is for the nodes of the cluster, which show a certificate", http.StatusForbidden)
		return
	}
	if why := t.enter(); why != nil {
		w.Header().Set("Retry-After", "1")
		http.Error(w, why.Error(), http.StatusServiceUnavailable)
		return
	}
	defer t.inbound.Done()
	ctx := r.Context()
	s, err := t.accept(w, r)
	t.shaking.Add(-1)
	if err != nil {
		level := slog.LevelDebug
		if t.news(err) {
			level = slog.LevelWarn
		}
		t.o.Log.Log(ctx, level, "refused a peer's connection", "remote", r.RemoteAddr, "error", err.Error())
		return
	}
	defer t.leave(s)
	t.serve(ctx, s)
}

// news reports whether a refusal is to be said aloud. One that is refused dials
// again and again, several times a second: the same words count once in a while.
func (t *Transport) news(err error) bool {
	words, now := wordsOf(err), time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if last, said := t.mu.refused[words]; said && now.Sub(last) < sayRefused {
		return false
	}
	if len(t.mu.refused) >= maxRefused { // anybody can say anything in a hello
		clear(t.mu.refused)
	}
	t.mu.refused[words] = now
	return true
}

// enter counts a connection that Run will wait for.
func (t *Transport) enter() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.mu.stopped:
		return errStopped
	case t.mu.fenced != nil:
		return errFenced
	}
	if t.shaking.Load() >= maxHandshakes {
		return fmt.Errorf("%d connections of nodes are shaking hands: try again", maxHandshakes)
	}
	t.shaking.Add(1)
	t.inbound.Add(1)
	return nil
}

// track has stop close the session.
func (t *Transport) track(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.accepted[s] = ""
	switch {
	case t.mu.stopped:
		s.close(errStopped)
	case t.mu.fenced != nil:
		s.close(errFenced)
	}
}

func (t *Transport) leave(s *session) {
	s.close(errClosedByPeer)
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.mu.accepted, s)
}

// accept takes the connection from the HTTP server and shakes hands.
func (t *Transport) accept(w http.ResponseWriter, r *http.Request) (*session, error) {
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil, err
	}
	// What the server has read ahead comes first.
	ahead, err := rw.Peek(rw.Reader.Buffered())
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	s := newSession(conn, io.MultiReader(bytes.NewReader(bytes.Clone(ahead)), conn), t.born)
	if served, ok := bare(conn).(interface{ Served() *x509.Certificate }); ok {
		s.own = served.Served()
	}
	s.shown(r.TLS)
	t.track(s)
	if err := t.shake(s, r.TLS); err != nil {
		t.leave(s)
		return nil, err
	}
	return s, nil
}

// shake is the accepting side of the handshake.
func (t *Transport) shake(s *session, state *tls.ConnectionState) error {
	if err := s.conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return err
	}
	const switching = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + Upgrade + "\r\n\r\n"
	if _, err := io.WriteString(s.conn, switching); err != nil {
		return err
	}
	var refusal *api.Error
	var local wire.Hello
	switch err := s.readHello(); {
	case err == nil && s.remote.Kind >= wire.ConnRaft && s.remote.Kind <= wire.ConnSnapshot:
		local = t.hello(s.remote.Kind)
		refusal = t.judge(&local, &s.remote, state, "")
	case err == nil:
		local = t.hello(wire.ConnCall)
		refusal = refuse(fmt.Errorf("a connection of kind %d: this release knows none", s.remote.Kind))
	case errors.Is(err, wire.ErrMalformed):
		local = t.hello(wire.ConnCall)
		refusal = refuse(fmt.Errorf("the hello: %w", err))
	default:
		return err
	}
	t.tell(&s.remote, refusal)
	if _, err := s.conn.Write(frameVerdict(frameHello(nil, &local), refusal)); err != nil {
		return err
	}
	if refusal != nil {
		return refusal
	}
	if err := s.readVerdict(); err != nil {
		t.heed(err)
		return err
	}
	return t.welcome(s, &local)
}

// serve runs an inbound session until it ends and its calls have returned.
func (t *Transport) serve(ctx context.Context, s *session) {
	from := s.remote.Incarnation
	t.o.Log.DebugContext(ctx, "accepted peer", "peer", from.Node, "connection", s.remote.Kind.String(), "peer_incarnation", from.String())
	p := pace{silence: acceptSilence}
	var err error
	switch s.remote.Kind {
	case wire.ConnRaft:
		t.o.Handler.Up(s.remote)
		err = s.run(ctx, p, t.receiveRaft(from))
	case wire.ConnSnapshot:
		err = t.serveSnapshot(ctx, s)
	case wire.ConnCall:
		c := callee{session: s, handler: t.o.Handler, log: t.o.Log, work: make(chan wire.Call)}
		cctx, cancel := context.WithCancelCause(ctx)
		err = s.run(ctx, p, func(kind wire.FrameKind, payload []byte) error { return c.receive(cctx, kind, payload) })
		cancel(err)
		c.end()
	}
	level := slog.LevelDebug // the dialling side tells of ends
	if errors.Is(err, wire.ErrMalformed) {
		level = slog.LevelWarn // it would not tell of this: it is what is wrong
	}
	t.o.Log.Log(ctx, level, "accepted peer's connection ended",
		"peer", from.Node, "connection", s.remote.Kind.String(), "peer_incarnation", from.String(), "error", err.Error())
}

// receiveRaft returns what reads the frames of a raft connection.
func (t *Transport) receiveRaft(from api.Incarnation) func(wire.FrameKind, []byte) error {
	return func(kind wire.FrameKind, payload []byte) error {
		if kind == wire.FrameRaft {
			t.o.Handler.Raft(from, payload)
			return nil
		}
		if kind != wire.FrameHeartbeat {
			return unexpected(kind)
		}
		hb, err := wire.DecodeHeartbeat(payload)
		if err != nil {
			return err
		}
		t.o.Handler.Heartbeat(from, hb)
		return nil
	}
}

package peer

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// RefusalError says that the other side did not like this node's hello. It is not an
// answer to a call, so it does not unwrap to its *api.Error.
type RefusalError struct {
	By     api.Incarnation
	Reason *api.Error
}

// Error names who refused and why.
func (r *RefusalError) Error() string {
	return fmt.Sprintf("%s refuses this node: %s", r.By, r.Reason)
}

// hello returns what this node says first.
func (t *Transport) hello(kind wire.ConnKind) wire.Hello {
	h := t.o.Hello(kind)
	h.Kind = kind
	if h.Max == 0 {
		own := wire.Levels()
		h.Min, h.Max = own.Min, own.Max
	}
	return h
}

// judge says why this node refuses a remote's hello, or nil. The remote must be
// node, unless that is empty.
func (t *Transport) judge(local, remote *wire.Hello, state *tls.ConnectionState, node string) *api.Error {
	if _, err := wire.Common(local, remote); err != nil {
		return refuse(err)
	}
	got := remote.Incarnation.Node
	if node != "" && got != node {
		return refuse(fmt.Errorf("this is the address of node %s, and node %s answers there", node, got))
	}
	if t.o.Names != nil {
		if state == nil {
			return refuse(fmt.Errorf("node %s comes without TLS", got))
		}
		if err := t.o.Names(state, got); err != nil {
			return refuse(err)
		}
	}
	if err := t.o.Admit(*remote); err != nil {
		return refuse(err)
	}
	if err := t.outdated(remote); err != nil {
		return refuse(err)
	}
	return nil
}

// tell says that this node refuses a remote, to whoever wants to know.
func (t *Transport) tell(remote *wire.Hello, why *api.Error) {
	if t.o.Refused != nil && why != nil {
		t.o.Refused(*remote, why)
	}
}

// distrust is tell for a node that was not heard, since its certificate is none to
// this node.
func (t *Transport) distrust(node string, err error) {
	if why := distrusted(err); why != nil && node != "" {
		t.tell(&wire.Hello{Incarnation: api.Incarnation{Node: node}}, why)
	}
}

// distrusted says that the two sides have no certificates for each other, or nil.
func distrusted(err error) *api.Error {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok || errors.Is(err, errCertificate) {
		return &api.Error{Code: api.CodeForbidden, Message: err.Error(), Hint: "the certificates of all nodes must be of one cluster and one authority: `tidal certs`"}
	}
	return nil
}

// heed has this node take no part any more if a member has said that its disk is
// not the one that it was. One is enough: it remembers what this disk has
// forgotten, and others, who do not, must not count a vote of it.
func (t *Transport) heed(err error) {
	refused, ok := errors.AsType[*RefusalError](err)
	if !ok || refused.Reason.Code != api.CodeWrongDisk {
		return
	}
	t.mu.Lock()
	first := t.mu.fenced == nil
	if first {
		t.mu.fenced = refused
		for s := range t.mu.accepted {
			s.close(errFenced)
		}
		for _, ls := range t.mu.links {
			ls.raft.retire(errFenced)
			ls.call.retire(errFenced)
		}
	}
	t.mu.Unlock()
	if first && t.o.Fenced != nil {
		t.o.Fenced(refused.By, refused.Reason)
	}
}

// mayTalk returns an error if this node takes no part any more.
func (t *Transport) mayTalk() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.fenced != nil {
		return fmt.Errorf("%w: %w", errFenced, t.mu.fenced)
	}
	return nil
}

// Refusal returns why this node and a peer cannot talk though they reach each
// other: the peer refuses this node, or one of them the other's certificate. It is
// nil while there is a connection, and of a peer that is not reached.
func (t *Transport) Refusal(node string) *api.Error {
	t.mu.Lock()
	ls, fenced := t.mu.links[node], t.mu.fenced
	t.mu.Unlock()
	if fenced != nil {
		if fenced.By.Node == node {
			return fenced.Reason
		}
		return nil
	}
	if ls == nil {
		return nil
	}
	err := ls.raft.trouble()
	if refused, ok := errors.AsType[*RefusalError](err); ok {
		return refused.Reason
	}
	return distrusted(err)
}

// refuse turns what is wrong with a hello into what is said of it. Nothing in it
// is secret: the other side is the one it is about.
func refuse(err error) *api.Error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	return &api.Error{Code: api.CodeForbidden, Message: err.Error()}
}

// shown notes the certificate of the other side, before anybody else sees the
// session.
func (s *session) shown(state *tls.ConnectionState) {
	if state == nil || len(state.PeerCertificates) == 0 {
		return
	}
	s.state, s.expires = state, state.PeerCertificates[0].NotAfter
	for _, c := range state.PeerCertificates[1:] {
		if c.NotAfter.Before(s.expires) {
			s.expires = c.NotAfter
		}
	}
}

// welcome ends the handshake of a session that both sides want.
func (t *Transport) welcome(s *session, local *wire.Hello) error {
	s.stranger = s.remote.ClusterID.IsZero() && !local.ClusterID.IsZero()
	if t.o.Names != nil {
		// Again: the certificate may have been revoked while the verdict was awaited.
		if err := t.o.Names(s.state, s.remote.Incarnation.Node); err != nil {
			return err
		}
	}
	if err := s.conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	if s.stranger {
		return nil
	}
	return t.meet(s)
}

func frameHello(dst []byte, h *wire.Hello) []byte {
	return wire.AppendFrame(dst, wire.FrameHello, wire.AppendHello(nil, h))
}

// frameVerdict says that the remote is welcome if refusal is nil.
func frameVerdict(dst []byte, refusal *api.Error) []byte {
	if refusal == nil {
		return wire.AppendFrame(dst, wire.FrameVerdict, nil)
	}
	return wire.AppendFrame(dst, wire.FrameVerdict, wire.AppendError(nil, refusal))
}

// readHello reads the remote's hello into the session.
func (s *session) readHello() error {
	payload, err := s.expect(wire.FrameHello, wire.MaxHello)
	if err != nil {
		return err
	}
	s.remote, err = wire.DecodeHello(payload)
	return err
}

// readVerdict returns nil if this node is welcome, or a *RefusalError.
func (s *session) readVerdict() error {
	payload, err := s.expect(wire.FrameVerdict, wire.MaxVerdict)
	if err != nil || len(payload) == 0 {
		return err
	}
	reason, err := wire.DecodeError(payload)
	if err != nil {
		return err
	}
	return &RefusalError{By: s.remote.Incarnation, Reason: reason}
}

// expect reads a frame that must be of one kind.
func (s *session) expect(kind wire.FrameKind, limit int) ([]byte, error) {
	got, payload, err := wire.ReadFrame(s.br, limit)
	switch {
	case errors.Is(err, io.EOF):
		return nil, errClosedByPeer
	case err != nil:
		return nil, err
	case got != kind:
		return nil, unexpected(got)
	}
	return payload, nil
}

package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"

	"tidal/node/internal/wire"
)

// Path is where a node answers its peers, and Upgrade the protocol to ask for
// there.
const (
	Path    = "/internal/peer"
	Upgrade = "tidal-peer"
)

// target is where an address URL leads.
type target struct {
	secure bool
	host   string // host:port, as in the URL
	name   string // that the certificate must have
}

// parseAddress reads https://host:port or http://host:port.
func parseAddress(address string) (target, error) {
	u, err := url.Parse(address)
	if err != nil {
		return target{}, fmt.Errorf("address %q is not a URL of the form https://host:port", address)
	}
	if u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "" || u.Port() == "" {
		return target{}, fmt.Errorf("address %q is not of the form https://host:port", address)
	}
	return target{
		secure: u.Scheme == "https",
		host:   net.JoinHostPort(u.Hostname(), u.Port()),
		// A server refuses a name that ends in a dot, and certificates have none.
		name: strings.TrimSuffix(u.Hostname(), "."),
	}, nil
}

// dial connects to an address and shakes hands. Whoever answers must be node,
// unless that is empty. Until it returns the connection is closed if ctx ends.
func (t *Transport) dial(ctx context.Context, address, node string, kind wire.ConnKind) (*session, error) {
	if err := t.mayTalk(); err != nil {
		return nil, err
	}
	s, err := t.connect(ctx, address, node, kind)
	switch {
	case err == nil:
		return s, nil
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, fmt.Errorf("%s: %w: %w", address, ErrRefused, err)
	}
	return nil, fmt.Errorf("%s: %w", address, err)
}

func (t *Transport) connect(ctx context.Context, address, node string, kind wire.ConnKind) (*session, error) {
	to, err := parseAddress(address)
	if err != nil {
		return nil, err
	}
	if to.secure != (t.o.TLS != nil) {
		return nil, errors.New("https and http do not go together: all nodes have certificates, or none has")
	}
	dctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := t.o.Dial(dctx, "tcp", to.host)
	if err != nil {
		return nil, err
	}
	raw := conn
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	s, err := t.converse(ctx, conn, to, node, kind)
	if err != nil {
		_ = raw.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, err
	}
	return s, nil
}

// converse turns a connection that was just made into a session.
func (t *Transport) converse(ctx context.Context, conn net.Conn, to target, node string, kind wire.ConnKind) (*session, error) {
	if err := conn.SetDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, err
	}
	var state *tls.ConnectionState
	var own *x509.Certificate
	if to.secure {
		c := tls.Client(conn, t.clientTLS(node, to.name, &own))
		if err := c.HandshakeContext(ctx); err != nil {
			t.distrust(node, err)
			return nil, err
		}
		cs := c.ConnectionState()
		state, conn = &cs, c
	}
	s := newSession(conn, conn, t.born)
	s.own = own
	s.shown(state)
	if err := s.upgrade(to.host); err != nil {
		return nil, err
	}
	local := t.hello(kind)
	if _, err := conn.Write(frameHello(nil, &local)); err != nil {
		return nil, err
	}
	if err := s.readHello(); err != nil {
		return nil, err
	}
	if err := s.readVerdict(); err != nil {
		t.heed(err)
		return nil, err
	}
	refusal := t.judge(&local, &s.remote, state, node)
	if _, err := conn.Write(frameVerdict(nil, refusal)); err != nil {
		return nil, err
	}
	t.tell(&s.remote, refusal)
	if refusal != nil {
		return nil, fmt.Errorf("this node refuses %s: %s", s.remote.Incarnation, refusal.Error())
	}
	return s, t.welcome(s, &local)
}

// clientTLS returns the configuration to dial a node with at a host name. The
// certificate that is shown is put into own.
func (t *Transport) clientTLS(node, name string, own **x509.Certificate) *tls.Config {
	c := t.o.TLS(node).Clone()
	if c.ServerName == "" {
		c.ServerName = name
	}
	c.NextProtos = []string{"http/1.1"}
	c.DynamicRecordSizingDisabled = true // frames are of use only when they are whole
	if choose := c.GetClientCertificate; choose != nil {
		c.GetClientCertificate = func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := choose(r)
			if err == nil {
				*own = cert.Leaf
			}
			return cert, err
		}
	}
	return c
}

// upgrade asks the HTTP server for the peer protocol.
func (s *session) upgrade(host string) error {
	const form = "GET " + Path + " HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: " + Upgrade + "\r\n\r\n"
	if _, err := fmt.Fprintf(s.conn, form, host); err != nil {
		return err
	}
	answer, err := http.ReadResponse(s.br, &http.Request{Method: http.MethodGet})
	if err != nil {
		return noAnswer(err)
	}
	if answer.StatusCode == http.StatusSwitchingProtocols && strings.EqualFold(answer.Header.Get("Upgrade"), Upgrade) {
		return nil
	}
	defer func() { _ = answer.Body.Close() }()
	text, _ := io.ReadAll(io.LimitReader(answer.Body, 512)) // what there is of it
	return fmt.Errorf("no tidal node answers there: %s: %.512q", answer.Status, strings.TrimSpace(string(text)))
}

// noAnswer explains an error of the first read: it is where a client learns that
// the server did not like its certificate.
func noAnswer(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errClosedByPeer
	}
	var alert *net.OpError
	if errors.As(err, &alert) && alert.Op == "remote error" {
		return fmt.Errorf("%w: %w", errCertificate, err)
	}
	return err
}

// CallAddress asks whoever answers at an address URL, over a connection of its
// own, and says who that was; ctx should have a deadline. Method 0 asks nothing:
// the hellos are all. The errors are those of Call, of a node not known before;
// the hello is zero if the error wraps ErrUnreachable.
func (t *Transport) CallAddress(ctx context.Context, address string, method wire.Method, payload []byte) (wire.Hello, []byte, error) {
	if err := checkSize(payload); err != nil {
		return wire.Hello{}, nil, err
	}
	s, err := t.dial(ctx, address, "", wire.ConnCall)
	if err != nil {
		return wire.Hello{}, nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer s.close(errClosed)
	if method == 0 {
		return s.remote, nil, nil
	}
	stop := context.AfterFunc(ctx, func() { s.close(ctx.Err()) })
	defer stop()
	answer, err := s.ask(appendCall(ctx, 1, method, payload))
	if err == nil {
		if answer.Err != nil {
			return s.remote, nil, answer.Err
		}
		return s.remote, answer.Payload, nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	return s.remote, nil, fmt.Errorf("%w: %s: %w", ErrBroken, address, err)
}

// ask sends the only call of a connection and reads its reply.
func (s *session) ask(frame []byte) (wire.Reply, error) {
	if err := s.writeAll(wire.AppendFrame(nil, wire.FrameCall, frame)); err != nil {
		return wire.Reply{}, err
	}
	kind, payload, err := wire.ReadFrame(s.br, wire.MaxFrame)
	if err != nil {
		return wire.Reply{}, err
	}
	if kind != wire.FrameReply {
		return wire.Reply{}, unexpected(kind)
	}
	return wire.DecodeReply(payload)
}

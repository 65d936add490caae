package node

import (
	"crypto/tls"
	"net"
	"testing"
)

// TestShaking lets a connection shake hands before anybody serves it.
func TestShaking(t *testing.T) {
	here, there := net.Pipe()
	shook := make(chan error, 1)
	l := &shaking{Listener: &once{conn: there}, conf: &tls.Config{MinVersion: tls.VersionTLS13}, shake: func(c *tls.Conn) {
		shook <- c.HandshakeContext(t.Context())
	}}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := c.(*tls.Conn); !ok {
		t.Errorf("net/http would not know that a %T is of TLS", c)
	}
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-shook; err == nil {
		t.Error("the handshake ended well without a client")
	}
	if _, err := l.Accept(); err == nil {
		t.Error("a listener that is closed accepted")
	}
}

// once is a listener that accepts one connection.
type once struct {
	net.Listener

	conn net.Conn
}

func (o *once) Accept() (net.Conn, error) {
	c := o.conn
	if o.conn = nil; c == nil {
		return nil, net.ErrClosed
	}
	return c, nil
}

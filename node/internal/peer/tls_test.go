package peer_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/internal/peer"
	"tidal/node/internal/wire"
)

// authority issues certificates for nodes.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(24 * time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{cert: cert, key: key, pool: x509.NewCertPool()}
	a.pool.AddCert(cert)
	return a
}

// issue returns a certificate that names a node.
func (a *authority) issue(t *testing.T, node string, life time.Duration) tls.Certificate {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(life),
		DNSNames:     []string{"localhost", node},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		URIs:         []*url.URL{{Scheme: "spiffe", Host: "test", Path: "/node/" + node}},
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func (a *authority) server(cert tls.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.VerifyClientCertIfGiven,
		ClientCAs:    a.pool,
		NextProtos:   []string{"http/1.1"},
	}
}

// names is what a node demands of a certificate.
func names(cs *tls.ConnectionState, node string) error {
	if len(cs.VerifiedChains) == 0 {
		return errors.New("no certificate of this cluster was shown")
	}
	for _, u := range cs.PeerCertificates[0].URIs {
		if u.String() == "spiffe://test/node/"+node {
			return nil
		}
	}
	return fmt.Errorf("the certificate does not name node %s", node)
}

// secure gives a node's outbound side a certificate; an empty one is none.
func (a *authority) secure(certs ...tls.Certificate) func(*peer.Options) {
	return func(o *peer.Options) {
		o.Names = names
		o.TLS = func(string) *tls.Config {
			return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: a.pool, Certificates: certs}
		}
	}
}

func overTCP(o *peer.Options) {
	o.Dial = (&net.Dialer{}).DialContext
	o.Interval = 10 * time.Millisecond
}

// startTCP runs a node with TLS on a loopback port.
func startTCP(t *testing.T, id, listen string, secure *tls.Config, change ...func(*peer.Options)) *node {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", listen)
	if err != nil {
		if !strings.HasPrefix(listen, "[") {
			t.Fatal(err)
		}
		t.Skipf("needs IPv6 on loopback: %v", err)
	}
	n := newNode(id, 1, append([]func(*peer.Options){overTCP}, change...)...)
	n.address = l.Addr().String()
	n.serve(t, l, secure)
	t.Cleanup(n.stop)
	return n
}

func port(n *node) string {
	_, p, _ := net.SplitHostPort(n.address)
	return p
}

func TestOverTLS(t *testing.T) {
	ca := newAuthority(t)
	for _, test := range []struct{ name, listen, host string }{
		{"v4", "127.0.0.1:0", "127.0.0.1"},
		{"v6", "[::1]:0", "[::1]"},
		{"name", "127.0.0.1:0", "localhost"},
		{"name with a dot", "127.0.0.1:0", "localhost."},
	} {
		t.Run(test.name, func(t *testing.T) {
			certA, certB := ca.issue(t, "a", time.Hour), ca.issue(t, "b", time.Hour)
			b := startTCP(t, "b", test.listen, ca.server(certB), ca.secure(certB))
			a := startTCP(t, "a", "127.0.0.1:0", ca.server(certA), ca.secure(certA), func(o *peer.Options) {
				o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
					if want := net.JoinHostPort(strings.Trim(test.host, "[]"), port(b)); address != want {
						t.Errorf("dials %s, want %s", address, want)
					}
					return (&net.Dialer{}).DialContext(ctx, network, b.address) // not every machine resolves every form
				}
			})
			a.SetPeers(map[string]string{"b": "https://" + test.host + ":" + port(b)})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			got, err := a.Call(ctx, "b", wire.MethodStatus, make([]byte, 3<<20))
			if err != nil || len(got) != 3<<20+3 {
				t.Fatalf("answer of %d bytes, %v", len(got), err)
			}
			wait(t, "a raft connection", func() bool { return a.SendRaft("b", []byte("frame")) })
			wait(t, "the frame", func() bool { return len(b.list("raft a.1.00000abc frame")) == 1 })
			wait(t, "heartbeats", func() bool { return len(b.list("beat")) > 3 })
		})
	}
}

// wait polls until something is so.
func wait(t *testing.T, what string, so func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(20 * time.Second)
	for !so() {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

func TestCertificates(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	certA, certB := ca.issue(t, "a", time.Hour), ca.issue(t, "b", time.Hour)
	tests := []struct {
		name   string
		server *tls.Config         // of b
		client func(*peer.Options) // of a
		names  func(*peer.Options) // of b
		want   string
	}{
		{"no client certificate", ca.server(certB), ca.secure(), ca.secure(certB), "403 Forbidden: \"this path is for the nodes of the cluster, which show a certificate"},
		{"client of another cluster", ca.server(certB), func(o *peer.Options) {
			ca.secure()(o)
			cert := other.issue(t, "a", time.Hour)
			o.TLS = func(string) *tls.Config {
				// Shown even though the server did not ask for this authority.
				return &tls.Config{RootCAs: ca.pool, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }}
			}
		}, ca.secure(certB), "it refuses this node's certificate: remote error: tls:"},
		{"client is another node", ca.server(certB), ca.secure(ca.issue(t, "c", time.Hour)), ca.secure(certB), "b.1.00000abc refuses this node: the certificate does not name node a"},
		{"server of another cluster", other.server(other.issue(t, "b", time.Hour)), ca.secure(certA), ca.secure(certB), "certificate signed by unknown authority"},
		{"server is another node", ca.server(ca.issue(t, "c", time.Hour)), ca.secure(certA), ca.secure(certB), "this node refuses b.1.00000abc: the certificate does not name node b"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := startTCP(t, "b", "127.0.0.1:0", test.server, test.names)
			a := startTCP(t, "a", "127.0.0.1:0", ca.server(certA), test.client)
			a.SetPeers(map[string]string{"b": "https://localhost:" + port(b)})
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, err := a.Call(ctx, "b", wire.MethodStatus, nil)
			if !errors.Is(err, peer.ErrUnreachable) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %q in it", err, test.want)
			}
			if len(b.list("up")) > 0 {
				t.Error("b took the connection for one that stands")
			}
		})
	}
}

func TestConnectionEndsWithCertificate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		ca := newAuthority(t)
		dial := func(o *peer.Options) { o.Dial = f.dial }
		start := func(id string, life time.Duration) *node {
			cert := ca.issue(t, id, life)
			n := newNode(id, 1, dial, ca.secure(cert))
			n.address = id + ":1"
			n.serve(t, f.listen(n.address), ca.server(cert))
			return n
		}
		a, b := start("a", time.Hour), start("b", 10*time.Second)
		defer a.stop()
		defer b.stop()
		a.SetPeers(map[string]string{"b": "https://b:1"})
		advance(9 * time.Second)
		if !a.SendRaft("b", nil) || len(a.list("down")) > 0 {
			t.Fatalf("the connection does not stand:\n%s", a.log)
		}
		advance(3 * time.Second)
		down := a.list("down b")
		if len(down) != 1 || !strings.Contains(down[0].err.Error(), "certificate expired") {
			t.Errorf("after the certificate's end a was told %v", down)
		}
		if a.SendRaft("b", nil) {
			t.Error("the connection outlives the certificate")
		}
	})
}

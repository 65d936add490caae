package pki_test

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tidal/pki"
)

// world is a directory of certificates that are valid now, since handshakes go
// by the machine's clock.
func world(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	p := abc()
	p.Clients = []pki.Client{{Name: "app", Role: "writer"}}
	mustGen(t, dir, p, time.Now())
	return dir
}

func server(t *testing.T, dir, node string) *pki.Keypair {
	t.Helper()
	k, err := pki.LoadServer(pki.NodeFiles(dir, node), "prod", node, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func client(t *testing.T, f pki.Files) *pki.Keypair {
	t.Helper()
	k, err := pki.LoadClient(f, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// meeting is what the two sides of a handshake saw.
type meeting struct {
	dialed, accepted       tls.ConnectionState
	dialError, acceptError error
}

// meet dials a listener on loopback as the given host and has both sides
// exchange a byte, without which a TLS 1.3 client does not know that it was
// accepted.
func meet(t *testing.T, listen, dial *tls.Config, host string) meeting {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var m meeting
	done := make(chan struct{})
	go func() {
		defer close(done)
		var accepted net.Conn
		if accepted, m.acceptError = l.Accept(); m.acceptError != nil {
			return
		}
		c := tls.Server(accepted, listen)
		defer c.Close()
		if m.acceptError = c.HandshakeContext(ctx); m.acceptError != nil {
			return
		}
		m.accepted = c.ConnectionState()
		_, m.acceptError = c.Write([]byte("x"))
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	dial = dial.Clone()
	dial.ServerName = host
	c := tls.Client(raw, dial)
	if m.dialError = c.HandshakeContext(ctx); m.dialError == nil {
		m.dialed = c.ConnectionState()
		_, m.dialError = c.Read(make([]byte, 1))
	}
	raw.Close()
	<-done
	return m
}

func TestNodesMeet(t *testing.T) {
	dir := world(t)
	a, b := server(t, dir, "a"), server(t, dir, "b")
	for _, host := range []string{"node-b.example.com", "NODE-B.example.com", "localhost", "127.0.0.1", "::1"} {
		m := meet(t, b.ServerTLS(), a.NodeTLS("b"), host)
		if m.dialError != nil || m.acceptError != nil {
			t.Fatalf("%s: %v, %v", host, m.dialError, m.acceptError)
		}
		if n, err := pki.PeerNode(&m.dialed, "prod"); n != "b" || err != nil {
			t.Errorf("the dialler met %q, %v", n, err)
		}
		if n, err := pki.PeerNode(&m.accepted, "prod"); n != "a" || err != nil {
			t.Errorf("the listener met %q, %v", n, err)
		}
		if err := b.Names(&m.accepted, "a"); err != nil {
			t.Error(err)
		}
		if err := b.Names(&m.accepted, "c"); err == nil {
			t.Error("a's certificate was taken for c's")
		}
		if _, _, err := pki.ClientRole(&m.accepted, "prod"); err == nil || !strings.Contains(err.Error(), "a node's") {
			t.Errorf("a node's certificate as a client's: %v", err)
		}
		if m.accepted.Version != tls.VersionTLS13 || m.accepted.NegotiatedProtocol != "http/1.1" {
			t.Errorf("version %x, protocol %q", m.accepted.Version, m.accepted.NegotiatedProtocol)
		}
	}
}

func TestClientsMeetNodes(t *testing.T) {
	dir := world(t)
	b := server(t, dir, "b")
	for name, role := range map[string]string{"admin": "admin", "app": "writer"} {
		c := client(t, pki.ClientFiles(dir, name))
		m := meet(t, b.ServerTLS(), c.NodeTLS(""), "localhost")
		if m.dialError != nil || m.acceptError != nil {
			t.Fatal(m.dialError, m.acceptError)
		}
		if n, r, err := pki.ClientRole(&m.accepted, "prod"); n != name || r != role || err != nil {
			t.Errorf("the node met %q, %q, %v", n, r, err)
		}
		if _, _, err := pki.ClientRole(&m.accepted, "staging"); err == nil || !strings.Contains(err.Error(), "staging") {
			t.Errorf("a client of prod at staging: %v", err)
		}
		if n, err := pki.PeerNode(&m.accepted, "prod"); err == nil || !strings.Contains(err.Error(), "a client's") {
			t.Errorf("a client's certificate counts as node %q: %v", n, err)
		}
	}
	bare := client(t, pki.Files{CA: pki.NodeFiles(dir, "a").CA})
	m := meet(t, b.ServerTLS(), bare.NodeTLS("b"), "localhost")
	if m.dialError != nil || m.acceptError != nil || bare.Leaf() != nil {
		t.Fatal(m.dialError, m.acceptError)
	}
	if _, _, err := pki.ClientRole(&m.accepted, "prod"); !errors.Is(err, pki.ErrNoCertificate) {
		t.Errorf("without a certificate: %v", err)
	}
	if _, err := pki.PeerNode(nil, "prod"); !errors.Is(err, pki.ErrNoCertificate) {
		t.Errorf("without TLS: %v", err)
	}
}

func TestRefusedMeetings(t *testing.T) {
	dir, other := world(t), world(t)
	a, b := server(t, dir, "a"), server(t, dir, "b")
	m := meet(t, b.ServerTLS(), a.NodeTLS("c"), "localhost")
	if m.dialError == nil || !strings.Contains(m.dialError.Error(), "names node b, and node c is wanted") {
		t.Errorf("b taken for c: %v", m.dialError)
	}
	m = meet(t, b.ServerTLS(), a.NodeTLS("b"), "node-c.example.com")
	if m.dialError == nil || !strings.Contains(m.dialError.Error(), "node-b.example.com") {
		t.Errorf("another host name: %v", m.dialError)
	}
	m = meet(t, server(t, other, "b").ServerTLS(), a.NodeTLS("b"), "localhost")
	if m.dialError == nil || !strings.Contains(m.dialError.Error(), "unknown authority") {
		t.Errorf("another cluster's authority at the listener: %v", m.dialError)
	}
	// The dialler trusts the listener, and shows a certificate that it does not trust.
	mixed := b.NodeTLS("b")
	mixed.GetClientCertificate = server(t, other, "a").NodeTLS("").GetClientCertificate
	m = meet(t, b.ServerTLS(), mixed, "localhost")
	if m.acceptError == nil || m.dialError == nil {
		t.Errorf("another cluster's authority at the dialler: %v, %v", m.acceptError, m.dialError)
	}
	old := a.NodeTLS("")
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if m = meet(t, b.ServerTLS(), old, "localhost"); m.acceptError == nil {
		t.Error("TLS 1.2 was accepted")
	}
	h2 := a.NodeTLS("")
	h2.NextProtos = []string{"h2"}
	if m = meet(t, b.ServerTLS(), h2, "localhost"); m.acceptError == nil {
		t.Error("a client that speaks HTTP/2 alone was accepted")
	}
	h2.NextProtos = []string{"h2", "http/1.1"}
	if m = meet(t, b.ServerTLS(), h2, "localhost"); m.accepted.NegotiatedProtocol != "http/1.1" {
		t.Errorf("negotiated %q, %v", m.accepted.NegotiatedProtocol, m.acceptError)
	}
}

// What was merely sent proves nothing.
func TestUnverifiedPeerIsNobody(t *testing.T) {
	dir := world(t)
	cs := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{server(t, dir, "a").Leaf()}}
	if n, err := pki.PeerNode(cs, "prod"); !errors.Is(err, pki.ErrNoCertificate) {
		t.Errorf("an unverified certificate counts as %q, %v", n, err)
	}
	if n, r, err := pki.ClientRole(cs, "prod"); !errors.Is(err, pki.ErrNoCertificate) {
		t.Errorf("an unverified certificate counts as %q, %q, %v", n, r, err)
	}
}

// mint signs a certificate with a directory's intermediate that Gen would not
// make, and returns its files.
func mint(t *testing.T, dir string, change func(c *x509.Certificate)) pki.Files {
	t.Helper()
	ca, err := tls.LoadX509KeyPair(dir+"/ca/intermediate.crt", dir+"/ca/intermediate.key")
	if err != nil {
		t.Fatal(err)
	}
	tpl := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "foreign"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		URIs:        []*url.URL{{Scheme: "spiffe", Host: "prod", Path: "/node/a"}},
	}
	change(tpl)
	der, err := x509.CreateCertificate(rand.Reader, tpl, ca.Leaf, cert(t, dir+"/nodes/a/tls.crt").PublicKey, ca.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	data = append(data, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.Certificate[0]})...)
	return put(t, dir, "minted.crt", data, pki.NodeFiles(dir, "a"))
}

// put writes a certificate file and returns the files with it.
func put(t *testing.T, dir, name string, data []byte, f pki.Files) pki.Files {
	t.Helper()
	f.Cert = filepath.Join(dir, name)
	if err := os.WriteFile(f.Cert, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestForeignCertificates(t *testing.T) {
	dir := world(t)
	uri := func(s string) []*url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return []*url.URL{u}
	}
	for _, tt := range []struct {
		name   string
		change func(c *x509.Certificate)
		say    string
	}{
		{"good", func(*x509.Certificate) {}, ""},
		{"server only", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, "not made for dialling"},
		{"client only", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }, "not made for serving"},
		{"no identity", func(c *x509.Certificate) { c.URIs = nil }, "names no tidal identity"},
		{"two identities", func(c *x509.Certificate) { c.URIs = append(c.URIs, uri("spiffe://prod/node/b")...) }, "names 2 identities"},
		{"other node", func(c *x509.Certificate) { c.URIs = uri("spiffe://prod/node/b") }, "spiffe://prod/node/b, and node a of cluster prod"},
		{"a client", func(c *x509.Certificate) { c.URIs = uri("spiffe://prod/role/admin/a") }, "spiffe://prod/role/admin/a, and node a"},
		{"other cluster", func(c *x509.Certificate) { c.URIs = uri("spiffe://staging/node/a") }, "not authorized to sign"},
		{"shared", func(c *x509.Certificate) { c.URIs = uri("spiffe://prod/node/*") }, ""},
		{"wild", func(c *x509.Certificate) { c.URIs = uri("spiffe://prod/node/a*") }, "not of the form"},
		{"escaped", func(c *x509.Certificate) { c.URIs = uri("spiffe://prod/node/%61") }, "not of the form"},
		{"expired", func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, "expired at"},
		{"not yet", func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }, "not valid before"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := mint(t, dir, tt.change)
			_, err := pki.LoadServer(f, "prod", "a", time.Now())
			if tt.say == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantError(t, err, pki.KindFiles, f.Cert, tt.say)
		})
	}
}

// The listener refuses a certificate of its authority without an identity of the
// cluster, at the handshake.
func TestHandshakeWantsAnIdentity(t *testing.T) {
	dir := world(t)
	f := mint(t, dir, func(c *x509.Certificate) { c.URIs = nil })
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	dial := server(t, dir, "a").NodeTLS("b")
	dial.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	m := meet(t, server(t, dir, "b").ServerTLS(), dial, "localhost")
	if m.acceptError == nil || !strings.Contains(m.acceptError.Error(), "names no tidal identity") || m.dialError == nil {
		t.Errorf("accepted: %v, %v", m.acceptError, m.dialError)
	}
	listen := server(t, dir, "b").ServerTLS()
	listen.GetConfigForClient = nil
	listen.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &pair, nil }
	m = meet(t, listen, server(t, dir, "a").NodeTLS(""), "localhost")
	if m.dialError == nil || !strings.Contains(m.dialError.Error(), "names no tidal identity") {
		t.Errorf("accepted: %v", m.dialError)
	}
}

// Reload puts new files, the roots with them, under a configuration in use, and
// keeps the old ones when the new are no good.
func TestLoadAgain(t *testing.T) {
	dir, next := world(t), world(t)
	b := server(t, dir, "b")
	listen := b.ServerTLS()
	first := b.Leaf().SerialNumber
	f := pki.NodeFiles(dir, "b")
	if err := os.WriteFile(f.Cert, []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	if changed, err := b.Reload(time.Now()); err == nil || changed || b.Leaf().SerialNumber.Cmp(first) != 0 {
		t.Errorf("a bad certificate was loaded: %v", err)
	}
	if m := meet(t, listen, server(t, dir, "a").NodeTLS("b"), "localhost"); m.dialError != nil {
		t.Errorf("after a failed load: %v", m.dialError)
	}
	g := pki.NodeFiles(next, "b")
	for from, to := range map[string]string{g.CA: f.CA, g.Cert: f.Cert, g.Key: f.Key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if changed, err := b.Reload(time.Now()); err != nil || !changed {
		t.Fatalf("changed %t, %v", changed, err)
	}
	g.CA, g.Cert, g.Key = f.CA, next+"/nodes/a/tls.crt", next+"/nodes/a/tls.key"
	a, err := pki.LoadServer(g, "prod", "a", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	m := meet(t, listen, a.NodeTLS("b"), "localhost")
	if m.dialError != nil || m.acceptError != nil {
		t.Errorf("after a load the old configuration has the new files: %v, %v", m.dialError, m.acceptError)
	}
}

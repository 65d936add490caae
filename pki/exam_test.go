package pki_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"tidal/pki"
)

// serveHTTP answers as a node does, as far as Examine asks.
func serveHTTP(l net.Listener) {
	s := &http.Server{
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/cluster/status/local" {
				if _, _, err := pki.ClientRole(r.TLS, "prod"); err != nil {
					w.WriteHeader(http.StatusForbidden)
				}
			}
		}),
	}
	_ = s.Serve(l) // until the listener closes
}

// exam has the server at an address looked at.
func exam(t *testing.T, address, host, node string, k *pki.Keypair, now time.Time) pki.Exam {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	return pki.Examine(ctx, conn, host, node, k, now)
}

// TestExamine names the failing side and the way out for each thing that can be
// wrong between two machines.
func TestExamine(t *testing.T) {
	dir, other := world(t), world(t)
	b := server(t, dir, "b")
	if _, err := pki.AddRoots(t.Context(), other, dir+"/ca/root.crt", time.Now()); err != nil {
		t.Fatal(err)
	}
	admin := client(t, pki.ClientFiles(dir, "admin"))
	bare := client(t, pki.Files{CA: dir + "/bundle.crt"})
	now := time.Now()
	minted := func(change func(*x509.Certificate)) *tls.Config {
		f := mint(t, dir, change)
		pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		if err != nil {
			t.Fatal(err)
		}
		return &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	lonely := func() *tls.Config {
		pair, err := tls.LoadX509KeyPair(dir+"/nodes/b/tls.crt", dir+"/nodes/b/tls.key")
		if err != nil {
			t.Fatal(err)
		}
		pair.Certificate = pair.Certificate[:1]
		return &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	strict := b.ServerTLS()
	strict.GetConfigForClient, strict.ClientAuth = nil, tls.RequireAndVerifyClientCert
	for _, tt := range []struct {
		name       string
		listen     *tls.Config
		host, node string
		k          *pki.Keypair
		now        time.Time
		check      string // that fails; "" for none
		side, say  string
	}{
		{"all is well", b.ServerTLS(), "localhost", "b", admin, now, "", "", ""},
		{"without a certificate", b.ServerTLS(), "127.0.0.1", "", bare, now, "", "", ""},
		{"a node", b.ServerTLS(), "node-b.example.com", "b", client(t, pki.NodeFiles(dir, "a")), now, "", "", ""},
		{"another name", b.ServerTLS(), "node-c.example.com", "", admin, now, "name", pki.SideServer, "not valid for node-c.example.com"},
		{"another node", b.ServerTLS(), "localhost", "c", admin, now, "identity", pki.SideServer, "it is node b, and node c is wanted"},
		{"another authority there", server(t, other, "b").ServerTLS(), "localhost", "", bare, now, "chain", pki.SideThis, "no root in the trust bundle"},
		{"another authority here", b.ServerTLS(), "localhost", "", client(t, pki.ClientFiles(other, "admin")), now, "accepted", pki.SideServer, "no root in its trust bundle signed our certificate"},
		{"no intermediate", lonely(), "localhost", "", admin, now, "chain", pki.SideServer, "does not send the intermediate"},
		{"client only", minted(func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }), "localhost", "", admin, now, "chain", pki.SideServer, "not made for serving"},
		{"no identity there", minted(func(c *x509.Certificate) { c.URIs = nil }), "localhost", "", admin, now, "identity", pki.SideServer, "names no tidal identity"},
		{"a client's there", minted(func(c *x509.Certificate) {
			c.URIs = []*url.URL{{Scheme: "spiffe", Host: "prod", Path: "/role/admin/x"}}
		}), "localhost", "", admin, now, "identity", pki.SideServer, "a client's"},
		{"expired there", minted(func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) }), "localhost", "", admin, now, "dates", pki.SideServer, "expired at"},
		{"a clock behind", b.ServerTLS(), "localhost", "", admin, now.Add(-2 * time.Hour), "dates", pki.SideClocks, "is not valid before"},
		{"a clock a little behind", b.ServerTLS(), "localhost", "", admin, now.Add(-5 * time.Minute), "clock", pki.SideClocks, "ahead of this machine's"},
		{"a clock ahead", b.ServerTLS(), "localhost", "", admin, now.Add(5 * time.Minute), "clock", pki.SideClocks, "behind this machine's"},
		{"wants a certificate", strict, "localhost", "", bare, now, "accepted", pki.SideThis, "wants a client certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := exam(t, answer(t, tt.listen), tt.host, tt.node, tt.k, tt.now)
			bad := x.Failed()
			if tt.check == "" {
				if bad != nil {
					t.Errorf("failed: %+v", *bad)
				}
				return
			}
			if bad == nil || bad.Name != tt.check || bad.Side != tt.side || !strings.Contains(bad.Detail, tt.say) || bad.Hint == "" {
				t.Errorf("failed: %+v, want %s at %s: %q with a hint", bad, tt.check, tt.side, tt.say)
			}
		})
	}
}

// Certificates that only the server can judge: it says one word, and the dialler
// learns what it means.
func TestExamineRefusals(t *testing.T) {
	dir, staging := world(t), t.TempDir()
	now := time.Now()
	past := now.Add(-10 * time.Minute)
	expired, err := pki.LoadClient(mint(t, dir, func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Minute) }), past)
	if err != nil {
		t.Fatal(err)
	}
	mustGen(t, staging, pki.Plan{Cluster: "staging", Nodes: []pki.Node{{ID: "a"}}}, now)
	for dir, more := range map[string]string{dir: staging, staging: dir} {
		if _, err = pki.AddRoots(t.Context(), dir, more+"/ca/root.crt", now); err != nil {
			t.Fatal(err)
		}
	}
	b := server(t, dir, "b")
	for _, tt := range []struct {
		name      string
		k         *pki.Keypair
		now       time.Time
		side, say string
	}{
		{"expired", expired, now, pki.SideThis, "the certificate expired at"},
		{"expired by its clock alone", expired, past, pki.SideClocks, "by its clock our certificate is not valid"},
		{"of another cluster", client(t, pki.ClientFiles(staging, "admin")), now, pki.SideThis, "it refuses our certificate spiffe://staging/role/admin/admin"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x := exam(t, answer(t, b.ServerTLS()), "localhost", "", tt.k, tt.now)
			for _, c := range x.Checks {
				if c.Name == "accepted" && !c.OK && c.Side == tt.side && strings.Contains(c.Detail, tt.say) && c.Hint != "" {
					return
				}
			}
			t.Errorf("%+v; want that it is not accepted, with %q", x.Checks, tt.say)
		})
	}
}

func TestExaminePlaintext(t *testing.T) {
	dir := world(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go serveHTTP(l)
	x := exam(t, l.Addr().String(), "localhost", "", client(t, pki.ClientFiles(dir, "admin")), time.Now())
	if bad := x.Failed(); bad == nil || bad.Name != "handshake" || !strings.Contains(bad.Detail, "does not speak TLS") {
		t.Errorf("failed: %+v", bad)
	}
}

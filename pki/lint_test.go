package pki_test

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
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

// foreign writes a certificate signed by itself that Gen would not make.
func foreign(t *testing.T, key any, change func(*x509.Certificate)) string {
	t.Helper()
	c := &x509.Certificate{
		SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "host"}, DNSNames: []string{"node-a.example.com"},
		NotBefore: start().Add(-time.Hour), NotAfter: start().Add(300 * day), KeyUsage: x509.KeyUsageDigitalSignature,
		URIs:        []*url.URL{{Scheme: "spiffe", Host: "prod", Path: "/node/a"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	change(c)
	var pub any
	switch k := key.(type) {
	case *ecdsa.PrivateKey:
		pub = k.Public()
	case *rsa.PrivateKey:
		pub = k.Public()
	case ed25519.PrivateKey:
		pub = k.Public()
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "x.crt")
	if err = os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLint(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	names := func(names ...string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.DNSNames = names }
	}
	uri := func(s string) func(*x509.Certificate) {
		u, urlErr := url.Parse(s)
		if urlErr != nil {
			t.Fatal(urlErr)
		}
		return func(c *x509.Certificate) { c.URIs = append(c.URIs, u) }
	}
	for _, tt := range []struct {
		name   string
		change func(*x509.Certificate)
		say    string // "error: …" or "warning: …"; "" for nothing
	}{
		{"good", func(*x509.Certificate) {}, ""},
		{"common name only", func(c *x509.Certificate) { c.DNSNames = nil }, `error: it names no host: the common name "host" is ignored`},
		{"server only", func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, "error: it may serve and not dial"},
		{"code signing", func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning} }, "error: it is made for neither"},
		{"no signing", func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageKeyEncipherment }, "error: its key may not sign"},
		{"no identity", func(c *x509.Certificate) { c.URIs = nil }, "warning: tidal takes it for nobody's"},
		{"long life", func(c *x509.Certificate) { c.NotAfter = start().Add(900 * day) }, "warning: it lives for 900 days"},
		{"due", func(c *x509.Certificate) { c.NotBefore = start().Add(-800 * day) }, "warning: less than a third"},
		{"expired", func(c *x509.Certificate) { c.NotAfter = start().Add(-time.Minute) }, "error: the certificate expired"},
		{"early", func(c *x509.Certificate) { c.NotBefore = start().Add(time.Minute) }, "error: the certificate is not valid before"},
		{"long common name", func(c *x509.Certificate) { c.Subject.CommonName = strings.Repeat("x", 65) }, "warning: the common name has 65 bytes"},
		{"client that serves", func(c *x509.Certificate) {
			c.URIs = []*url.URL{{Scheme: "spiffe", Host: "prod", Path: "/role/admin/x"}}
		}, "warning: a client's certificate that may also serve"},
		// The rows of names: what a library lets through and no client matches.
		{"brackets", names("[::1]"), "error: the address [::1] is written as a host name"},
		{"address", names("10.0.0.1"), "error: the address 10.0.0.1 is written as a host name"},
		{"address with port", names("10.0.0.1:5000"), "error: name \"10.0.0.1:5000\" has a port"},
		{"three numbers", names("10.0.0"), "error: name \"10.0.0\" looks like an IPv4 address"},
		{"octal", names("010.0.0.1"), "error: name \"010.0.0.1\" looks like"},
		{"network", names("10.0.0.0/8"), "error: name \"10.0.0.0/8\" is a network"},
		{"two wildcards", names("*.*.x"), "error: name \"*.*.x\" has a wildcard"},
		{"part of a label", names("a*.x.example"), "error: name \"a*.x.example\" has a wildcard"},
		{"wildcard inside", names("a.*.x"), "error: name \"a.*.x\" has a wildcard"},
		{"wildcard alone", names("*"), "error: name \"*\" has a wildcard"},
		{"top-level wildcard", names("*.com"), "error: name \"*.com\" has a wildcard"},
		{"dot at the end", names("a.example.com."), "error: the name a.example.com. ends in a dot"},
		{"blank", names(" a.b"), "error: name \" a.b\" holds a blank"},
		{"empty label", names("a..b"), "error: name \"a..b\" has an empty label"},
		{"hyphen", names("-a.b"), "error: name \"-a.b\" has a label that begins"},
		{"comma", names("a,b"), "error: name \"a,b\" holds the character"},
		{"underscore", names("under_score.x"), "warning: under_score.x has an underscore"},
		{"upper case", names("UPPER.Example"), "warning: the name UPPER.Example is not in lower case"},
		{"host and port as URI", uri("localhost:8080"), "error: localhost:8080 is written as a URI"},
		{"prefix as URI", uri("dns:a.b"), "error: dns:a.b is written as a URI"},
		{"link-local", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.ParseIP("fe80::1")} }, "link-local"},
		{"any address", func(c *x509.Certificate) { c.IPAddresses = []net.IP{net.IPv4zero} }, "every address of a machine"},
		{"one by one", names("t-0.svc.ns", "t-1.svc.ns", "t-2.svc.ns"), "warning: it names 3 pods t-N.svc.ns one by one"},
		{"all at once", names("t-0.svc.ns", "t-1.svc.ns", "*.svc.ns"), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found, lintErr := pki.Lint(foreign(t, key, tt.change), start())
			if lintErr != nil {
				t.Fatal(lintErr)
			}
			var said []string
			for _, f := range found {
				said = append(said, f.Severity+": "+f.What)
			}
			if all := strings.Join(said, "\n"); !strings.Contains(all, tt.say) || tt.say == "" && all != "" {
				t.Errorf("found\n%s\nwant %q", all, tt.say)
			}
		})
	}
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	_, ed, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for say, key := range map[string]any{"RSA key has 1024 bits": small, "Ed25519": ed} {
		found, lintErr := pki.Lint(foreign(t, key, func(*x509.Certificate) {}), start())
		if lintErr != nil || len(found) != 1 || !strings.Contains(found[0].What, say) {
			t.Errorf("%+v, %v; want %q", found, lintErr, say)
		}
	}
}

func TestLintChains(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	mustGen(t, dir, abc(), start())
	mustGen(t, other, abc(), start())
	all, foreign := tree(t, dir), tree(t, other)
	crt, inter, root := all["nodes/a/tls.crt"], all["ca/intermediate.crt"], all["ca/root.crt"]
	leaf := strings.TrimSuffix(crt, inter)
	for _, tt := range []struct{ name, text, say string }{
		{"as made", crt, ""},
		{"client", all["clients/admin/tls.crt"], ""},
		{"bundle", root, ""},
		{"leaf alone", leaf, "it holds the leaf alone"},
		{"reversed", inter + leaf, "stands behind its issuers"},
		{"with its root", crt + root, "the root tidal prod root"},
		{"another intermediate", crt + foreign["ca/intermediate.crt"], "did not sign the leaf"},
		{"two leaves", crt + foreign["nodes/b/tls.crt"], "a second certificate"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "tls.crt")
			if err := os.WriteFile(path, []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			found, err := pki.Lint(path, start())
			if err != nil || (len(found) == 0) != (tt.say == "") {
				t.Fatalf("%+v, %v", found, err)
			}
			for _, f := range found {
				if strings.Contains(f.What, tt.say) && strings.Contains(f.Where, path) {
					return
				}
			}
			if tt.say != "" {
				t.Errorf("%+v, want %q", found, tt.say)
			}
		})
	}
}

func TestLintNames(t *testing.T) {
	found := pki.LintNames([]string{"node-a.example.com", "10.0.0.1:5000", "fe80::1%eth0", "a.b."})
	if len(found) != 3 || found[0].Severity != "error" || found[1].Fix == "" || found[2].Severity != "warning" {
		t.Errorf("%+v", found)
	}
}

func TestCovers(t *testing.T) {
	pods, err := pki.StatefulSet{Name: "tidal", Service: "tidal-peers", Namespace: "ns", Nodes: 1}.Expand()
	if err != nil {
		t.Fatal(err)
	}
	kube, hosts := t.TempDir(), t.TempDir()
	mustGen(t, kube, plan(pods...), start())
	mustGen(t, hosts, abc(), start())
	pod, err := pki.ReadCert(kube + "/nodes/tidal-0/tls.crt")
	if err != nil {
		t.Fatal(err)
	}
	node, err := pki.ReadCert(hosts + "/nodes/a/tls.crt")
	if err != nil {
		t.Fatal(err)
	}
	admin, err := pki.ReadCert(hosts + "/clients/admin/tls.crt")
	if err != nil {
		t.Fatal(err)
	}
	const domain = ".tidal-peers.ns.svc.cluster.local"
	for _, tt := range []struct {
		c         *x509.Certificate
		name, why string
	}{
		{pod, "tidal-7" + domain, ""},
		{pod, "TIDAL-7" + domain, ""},
		{pod, "tidal-7" + domain + ".", ""},
		{pod, "tidal-7.tidal-peers.ns", ""},
		{pod, "tidal-peers", ""},
		{pod, "::1", ""},
		{pod, "[::1]", ""},
		{pod, "::ffff:127.0.0.1", ""},
		{pod, "a.b" + domain, "covers one label before"},
		{pod, "tidal-0.other.ns.svc", "none of its names"},
		{pod, "127.0.0.2", "not among its addresses"},
		{node, "node-a.example.com", ""},
		{node, "node-a", "the short form node-a is another name"},
		{node, "10.0.0.1", ""},
		{admin, "localhost", "the common name \"admin (admin)\" is ignored"},
	} {
		got, err := pki.Covers(tt.c, tt.name)
		if err != nil || got.Covers != (tt.why == "") || !strings.Contains(got.Why, tt.why) {
			t.Errorf("%s: %+v, %v; want %q", tt.name, got, err, tt.why)
		}
		// Go's own judgement is the same, once the name is written as clients write it.
		if got, goSays := got.Covers, tt.c.VerifyHostname(strings.Trim(strings.TrimSuffix(tt.name, "."), "[]")) == nil; got != goSays {
			t.Errorf("%s: covered is %t, and Go says %t", tt.name, got, goSays)
		}
	}
	for _, name := range []string{"a:1", "", "*.tidal-peers.ns"} {
		_, err := pki.Covers(pod, name)
		wantError(t, err, pki.KindUsage)
	}
}

// A server to be examined, which answers as a node does.
func answer(t *testing.T, config *tls.Config) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go serveHTTP(tls.NewListener(l, config))
	return l.Addr().String()
}

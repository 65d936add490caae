package pki_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/pem"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tidal/pki"
)

func nodeD(names ...string) pki.Plan {
	return plan(pki.Node{ID: "d", Names: names})
}

// A key is made on one machine and certified on another, and never travels.
func TestRequestAndSign(t *testing.T) {
	host, ca := t.TempDir(), t.TempDir()
	mustGen(t, ca, abc(), start())
	csr := host + "/nodes/d/tls.csr"
	for i, want := range []int{1, 0} {
		r, err := pki.MakeRequest(t.Context(), host, nodeD("node-d.example.com"), start())
		if err != nil || r.Made() != want || len(r.Files) != 1 {
			t.Fatalf("run %d: made %d, %v", i, r.Made(), err)
		}
	}
	if files := slices.Sorted(maps.Keys(tree(t, host))); !slices.Equal(files, []string{"nodes/d/tls.csr", "nodes/d/tls.key"}) {
		t.Errorf("files are %v", files)
	}
	_, err := pki.MakeRequest(t.Context(), host, nodeD("node-e.example.com"), start())
	wantError(t, err, pki.KindRefused, "node-d.example.com", "--overwrite")
	for i, want := range []int{1, 0} {
		r, signErr := pki.SignRequest(t.Context(), ca, csr, pki.Plan{Nodes: []pki.Node{{ID: "d"}}}, start())
		if signErr != nil || r.Made() != want {
			t.Fatalf("run %d: made %d, %v", i, r.Made(), signErr)
		}
	}
	if _, err = os.Stat(ca + "/nodes/d/tls.key"); err == nil {
		t.Error("there is a key where the authority is")
	}
	for _, name := range []string{"nodes/d/tls.crt", "bundle.crt"} {
		data, readErr := os.ReadFile(filepath.Join(ca, name))
		if readErr == nil {
			readErr = os.WriteFile(filepath.Join(host, name), data, 0o644)
		}
		if readErr != nil {
			t.Fatal(readErr)
		}
	}
	if _, err = pki.LoadServer(pki.NodeFiles(host, "d"), "prod", "d", start()); err != nil {
		t.Error(err)
	}
	// The next request of the same key gets its certificate when the first is due.
	if r, err := pki.SignRequest(t.Context(), ca, csr, pki.Plan{Nodes: []pki.Node{{ID: "d"}}, Overwrite: true}, start().Add(300*day)); err != nil || r.Made() != 1 {
		t.Errorf("made %d, %v", r.Made(), err)
	}
}

func TestSignRefuses(t *testing.T) {
	host, ca := t.TempDir(), t.TempDir()
	mustGen(t, ca, abc(), start())
	if _, err := pki.MakeRequest(t.Context(), host, nodeD("node-d.example.com"), start()); err != nil {
		t.Fatal(err)
	}
	csr := host + "/nodes/d/tls.csr"
	before := tree(t, ca)
	for _, tt := range []struct {
		name string
		p    pki.Plan
		kind pki.Kind
		say  []string
	}{
		{"nobody", pki.Plan{}, pki.KindUsage, []string{"0 nodes and clients", "--node ID"}},
		{"two", plan(pki.Node{ID: "d"}, pki.Node{ID: "e"}), pki.KindUsage, []string{"2 nodes and clients"}},
		{"another node", plan(pki.Node{ID: "e"}), pki.KindRefused, []string{csr, "asks to be spiffe://prod/node/d", "spiffe://prod/node/e"}},
		{"a client", pki.Plan{Clients: []pki.Client{{Name: "d", Role: "admin"}}}, pki.KindRefused, []string{"asks to be spiffe://prod/node/d"}},
		{"other names", nodeD("10.0.0.4"), pki.KindRefused, []string{"node-d.example.com", "not among those allowed"}},
		{"one that is there", plan(pki.Node{ID: "a"}), pki.KindRefused, []string{"asks to be"}},
		{"another cluster", pki.Plan{Cluster: "staging", Nodes: []pki.Node{{ID: "d"}}}, pki.KindRefused, []string{"staging"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := pki.SignRequest(t.Context(), ca, csr, tt.p, start())
			wantError(t, err, tt.kind, tt.say...)
		})
	}
	if !maps.Equal(before, tree(t, ca)) {
		t.Error("a refused run changed something")
	}
}

// What a foreign request wants beyond its names it does not get, and its names
// are held to the same rules as ours.
func TestSignForeignRequests(t *testing.T) {
	ca := t.TempDir()
	mustGen(t, ca, abc(), start())
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	isCA, err := asn1.Marshal(struct {
		IsCA bool `asn1:"optional"`
	}{true})
	if err != nil {
		t.Fatal(err)
	}
	request := func(change func(*x509.CertificateRequest)) string {
		r := &x509.CertificateRequest{
			Subject: pkix.Name{CommonName: "root of everything"}, DNSNames: []string{"node-d.example.com"},
			ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 19}, Critical: true, Value: isCA}},
		}
		change(r)
		der, makeErr := x509.CreateCertificateRequest(rand.Reader, r, key)
		if makeErr != nil {
			t.Fatal(makeErr)
		}
		path := filepath.Join(t.TempDir(), "x.csr")
		if err = os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sign := func(path string, p pki.Plan) error {
		_, signErr := pki.SignRequest(t.Context(), ca, path, p, start())
		return signErr
	}
	if err = sign(request(func(*x509.CertificateRequest) {}), nodeD()); err != nil {
		t.Fatal(err)
	}
	c := cert(t, ca+"/nodes/d/tls.crt")
	if c.IsCA || c.Subject.CommonName != "d" || c.URIs[0].String() != "spiffe://prod/node/d" || len(c.ExtKeyUsage) != 2 {
		t.Errorf("CA %t, CN %q, URIs %v, uses %v", c.IsCA, c.Subject.CommonName, c.URIs, c.ExtKeyUsage)
	}
	admin, err := url.Parse("spiffe://prod/role/admin/eve")
	if err != nil {
		t.Fatal(err)
	}
	e := plan(pki.Node{ID: "e"})
	client := pki.Plan{Clients: []pki.Client{{Name: "eve", Role: "reader"}}}
	wantError(t, sign(request(func(r *x509.CertificateRequest) { r.URIs = []*url.URL{admin} }), client), pki.KindRefused, "asks to be spiffe://prod/role/admin/eve", "spiffe://prod/role/reader/eve")
	wantError(t, sign(request(func(*x509.CertificateRequest) {}), client), pki.KindFiles, "a client is dialled by nobody")
	wantError(t, sign(request(func(r *x509.CertificateRequest) { r.DNSNames = []string{"evil.example.org"} }), e), pki.KindRefused, "may not sign for it")
	wantError(t, sign(request(func(r *x509.CertificateRequest) { r.DNSNames = []string{"*.com"} }), e), pki.KindUsage, "wildcard")
	wantError(t, sign(request(func(r *x509.CertificateRequest) { r.DNSNames = []string{"10.0.0.1"} }), e), pki.KindFiles, "which is an address")
	wantError(t, sign(request(func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@b.c"} }), e), pki.KindFiles, "mail addresses")
	wantError(t, sign(ca+"/bundle.crt", e), pki.KindFiles, "0 certificate requests", "tidal certs csr")
	bad := request(func(*x509.CertificateRequest) {})
	data, err := os.ReadFile(bad)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(data)
	block.Bytes[len(block.Bytes)-1] ^= 1
	if err = os.WriteFile(bad, pem.EncodeToMemory(block), 0o644); err != nil {
		t.Fatal(err)
	}
	wantError(t, sign(bad, e), pki.KindFiles, "was not signed with the key")
	// A key that lies where the certificate would go is not this request's.
	if err = os.MkdirAll(ca+"/nodes/e", 0o700); err != nil {
		t.Fatal(err)
	}
	if err = os.Rename(ca+"/nodes/c/tls.key", ca+"/nodes/e/tls.key"); err != nil {
		t.Fatal(err)
	}
	wantError(t, sign(request(func(*x509.CertificateRequest) {}), e), pki.KindRefused, "nodes/e/tls.key", "not the key of the request")
}

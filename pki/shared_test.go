package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"
	"strings"
	"testing"

	"tidal/pki"
)

// TestSharedLeaf makes one certificate for all nodes: it speaks for each of them, in
// its cluster alone, and is kept, renewed, rotated and exported like any other.
func TestSharedLeaf(t *testing.T) {
	dir := t.TempDir()
	p := abc()
	p.SharedLeaf = true
	r := mustGen(t, dir, p, start())
	leaf := r.Files[3]
	want := []string{"node-a.example.com", "localhost", "node-b.example.com", "10.0.0.1", "127.0.0.1", "::1"}
	if len(r.Files) != 5 || leaf.Kind != "node" || leaf.Name != pki.Shared || !slices.Equal(leaf.Names, want) {
		t.Fatalf("%d files, and %+v; want names %v", len(r.Files), leaf, want)
	}
	f := pki.NodeFiles(dir, pki.Shared)
	if c := cert(t, f.Cert); c.URIs[0].String() != "spiffe://prod/node/*" {
		t.Errorf("the identity is %s", c.URIs[0])
	}
	if r = mustGen(t, dir, p, start().Add(day)); r.Made() != 0 {
		t.Errorf("again: %+v", r)
	}
	for _, node := range []string{"a", "z"} {
		if _, err := pki.LoadServer(f, "prod", node, start()); err != nil {
			t.Errorf("as node %s: %v", node, err)
		}
	}
	if _, err := pki.LoadServer(f, "staging", "a", start()); err == nil {
		t.Error("it serves another cluster")
	}
	mixed(t, dir, f)

	found, err := pki.Lint(f.Cert, start())
	if err != nil || len(found) != 1 || !strings.Contains(found[0].What, "it speaks for every node of cluster prod") {
		t.Errorf("lint: %+v, %v", found, err)
	}
	text, err := pki.ExportSecret(dir, pki.Secret{Name: "x", Node: pki.Shared})
	if err != nil || !strings.Contains(string(text), "type: kubernetes.io/tls") {
		t.Errorf("export: %v\n%s", err, text)
	}
	r, err = pki.Renew(t.Context(), dir, pki.Renewal{What: []string{"node/" + pki.Shared}}, start().Add(day))
	if err != nil || r.Made() != 1 {
		t.Errorf("renew: %+v, %v", r, err)
	}
	if _, err = pki.StartRotation(t.Context(), dir, start().Add(day)); err != nil {
		t.Fatal(err)
	}
	if _, err = pki.SwitchAuthority(t.Context(), dir, start().Add(day)); err != nil {
		t.Fatal(err)
	}
	if _, err = pki.LoadServer(f, "prod", "b", start().Add(day)); err != nil {
		t.Errorf("rotated: %v", err)
	}
	all, err := pki.Survey(dir, start().Add(day))
	if err != nil || pki.Worst(all) != pki.StateOK {
		t.Errorf("check: %+v, %v", all, err)
	}
	// The way back to one each: what is shared stays until nobody uses it.
	p.SharedLeaf = false
	if r = mustGen(t, dir, p, start().Add(day)); r.Made() != 3 {
		t.Errorf("one each: %+v", r)
	}
	if _, err = os.Stat(f.Cert); err != nil {
		t.Error(err)
	}
}

// mixed shakes hands between who has the shared certificate and a client.
func mixed(t *testing.T, dir string, f pki.Files) {
	t.Helper()
	server, err := pki.LoadServer(f, "prod", "a", start())
	if err != nil {
		t.Fatal(err)
	}
	client, err := pki.LoadClient(pki.ClientFiles(dir, "admin"), start())
	if err != nil {
		t.Fatal(err)
	}
	leaf := server.Leaf()
	state := func(c *x509.Certificate) *tls.ConnectionState {
		return &tls.ConnectionState{PeerCertificates: []*x509.Certificate{c}, VerifiedChains: [][]*x509.Certificate{{c}}}
	}
	for _, node := range []string{"", "a", "b"} {
		if err = server.Names(state(leaf), node); err != nil {
			t.Errorf("for node %q: %v", node, err)
		}
		if err = server.Names(state(client.Leaf()), node); err == nil {
			t.Errorf("a client's is taken for node %q", node)
		}
	}
	if _, _, err = pki.ClientRole(state(leaf), "prod"); err == nil {
		t.Error("it has a client's role")
	}
}

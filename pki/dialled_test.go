package pki_test

import (
	"strings"
	"testing"

	"tidal/pki"
)

// TestDialled: a node's certificate must be valid for the name by which others dial it,
// at the start and when it is replaced; else what was in use stays.
func TestDialled(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	for _, tt := range []struct{ host, say string }{
		{"", ""},
		{"node-a.example.com", ""},
		{"NODE-A.example.com", ""},
		{"10.0.0.1", ""},
		{"::1", ""},
		{"node-a", "tls.crt: the certificate is not valid for node-a, by which others dial this node: it has node-a.example.com: the short form node-a is another name"},
		{"10.0.0.2", "is not valid for 10.0.0.2"},
		{"a..b", "the name by which others dial this node: name \"a..b\" has an empty label"},
	} {
		f := pki.NodeFiles(dir, "a")
		f.Dialled = tt.host
		_, err := pki.LoadServer(f, "prod", "a", start())
		if tt.say == "" && err != nil || tt.say != "" && (err == nil || !strings.Contains(err.Error(), tt.say)) {
			t.Errorf("%q: %v, want %q", tt.host, err, tt.say)
		}
	}
	f := pki.NodeFiles(dir, "a")
	f.Dialled = "node-a.example.com"
	k, err := pki.LoadServer(f, "prod", "a", start())
	if err != nil {
		t.Fatal(err)
	}
	before := k.Leaf()
	other := plan(pki.Node{ID: "a", Names: []string{"elsewhere.example.com"}})
	other.Overwrite = true
	mustGen(t, dir, other, start())
	if _, err = k.Reload(start()); err == nil || !k.Leaf().Equal(before) {
		t.Errorf("a certificate without the name is taken: %v", err)
	}
}

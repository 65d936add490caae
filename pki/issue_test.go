package pki_test

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tidal/pki"
)

func mustInit(t *testing.T, dir string, s pki.Scope) {
	t.Helper()
	if _, err := pki.InitCA(t.Context(), dir, "prod", s, start()); err != nil {
		t.Fatal(err)
	}
}

func TestInitCA(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	mustInit(t, dir, pki.Scope{Allow: []string{"example.com", "203.0.113.0/24", "198.51.100.7"}})
	before := tree(t, dir)
	if len(before) != 6 {
		t.Errorf("files are %v", before)
	}
	mustInit(t, dir, pki.Scope{})
	if !maps.Equal(before, tree(t, dir)) {
		t.Error("a second run changed something")
	}
	_, err := pki.InitCA(t.Context(), dir, "staging", pki.Scope{}, start())
	wantError(t, err, pki.KindRefused, `"prod"`, `"staging"`)
	_, err = pki.InitCA(t.Context(), dir, "prod", pki.Scope{AnyName: true, Allow: []string{"x.example"}}, start())
	wantError(t, err, pki.KindUsage, "for every name")
	_, err = pki.InitCA(t.Context(), dir, "prod", pki.Scope{Allow: []string{"https://x"}}, start())
	wantError(t, err, pki.KindUsage, "HTTPS")
	for name, ok := range map[string]bool{
		"a.example.com": true, "x.y.example.com": true, "203.0.113.200": true, "198.51.100.9": true, "10.1.1.1": true,
		"a.example.org": false, "8.8.8.8": false, "198.51.101.1": false,
	} {
		p := pki.Plan{Nodes: []pki.Node{{ID: "n" + strings.ReplaceAll(name, ".", "-"), Names: []string{name}}}}
		if _, err = pki.Issue(t.Context(), dir, p, start()); (err == nil) != ok {
			t.Errorf("%s: %v, want it allowed: %t", name, err, ok)
		}
	}
	open := t.TempDir()
	mustInit(t, open, pki.Scope{AnyName: true})
	if _, err = pki.Issue(t.Context(), open, plan(pki.Node{ID: "a", Names: []string{"a.example.org", "8.8.8.8"}}), start()); err != nil {
		t.Error(err)
	}
}

func TestIssue(t *testing.T) {
	dir := t.TempDir()
	_, err := pki.Issue(t.Context(), dir, plan(pki.Node{ID: "a"}), start())
	wantError(t, err, pki.KindFiles, "there is no authority", "tidal certs ca init")
	mustInit(t, dir, pki.Scope{})
	_, err = pki.Issue(t.Context(), dir, pki.Plan{Cluster: "staging", Nodes: []pki.Node{{ID: "a"}}}, start())
	wantError(t, err, pki.KindRefused, "staging")
	_, err = pki.Issue(t.Context(), dir, pki.Plan{}, start())
	wantError(t, err, pki.KindUsage, "0 certificates")
	p := pki.Plan{Nodes: []pki.Node{{ID: "a"}}, Clients: []pki.Client{{Name: "app", Role: "writer"}}, Life: 90 * time.Second}
	r, err := pki.Issue(t.Context(), dir, p, start())
	if err != nil || r.Made() != 2 || r.Cluster != "prod" {
		t.Fatalf("made %d for %q, %v", r.Made(), r.Cluster, err)
	}
	if _, err = os.Stat(filepath.Join(dir, "clients/admin")); err == nil {
		t.Error("an admin was made unasked")
	}
	c := cert(t, dir+"/nodes/a/tls.crt")
	if !c.NotAfter.Equal(start().Add(90*time.Second)) || !c.NotBefore.Equal(start().Add(-time.Hour)) {
		t.Errorf("it lives from %s to %s", c.NotBefore, c.NotAfter)
	}
	for _, life := range []time.Duration{-time.Hour, time.Second, 3 * 365 * day} {
		p.Life = life
		_, err = pki.Issue(t.Context(), dir, p, start())
		wantError(t, err, pki.KindUsage, "a life of")
	}
	// Nothing is replaced unasked, not even what has expired.
	p.Life = 0
	before := tree(t, dir)
	_, err = pki.Issue(t.Context(), dir, p, start().Add(time.Hour))
	wantError(t, err, pki.KindRefused, "expired at", "--overwrite")
	if !maps.Equal(before, tree(t, dir)) {
		t.Error("a refused run changed something")
	}
}

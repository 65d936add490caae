package pki_test

import (
	"maps"
	"testing"

	"tidal/pki"
)

func TestBundle(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	mustGen(t, dir, abc(), start())
	mustGen(t, other, abc(), start())
	before := tree(t, dir)
	roots, err := pki.Bundle(dir, start())
	if err != nil || len(roots) != 1 || roots[0].State != "ok" || len(roots[0].Use) != 4 {
		t.Fatalf("%+v, %v", roots, err)
	}
	own := roots[0].Fingerprint
	for i, state := range []string{"added", "ok"} {
		roots, err = pki.AddRoots(t.Context(), dir, other+"/ca/root.crt", start())
		if err != nil || len(roots) != 2 || roots[0].Fingerprint != own || roots[1].State != state {
			t.Fatalf("run %d: %+v, %v", i, roots, err)
		}
	}
	theirs := roots[1].Fingerprint
	if _, err = pki.LoadClient(pki.Files{CA: dir + "/bundle.crt", Cert: other + "/clients/admin/tls.crt", Key: other + "/clients/admin/tls.key"}, start()); err != nil {
		t.Errorf("a client of the added root: %v", err)
	}
	for _, tt := range []struct {
		which string
		kind  pki.Kind
		say   string
	}{
		{own, pki.KindRefused, "node/a, node/b, node/c, client/admin were signed under it"},
		{"", pki.KindUsage, "0 roots"},
		{own[:5], pki.KindUsage, "0 roots"},
		{"abcdefabcdef", pki.KindUsage, "0 roots"},
	} {
		_, err = pki.RemoveRoot(t.Context(), dir, tt.which, start())
		wantError(t, err, tt.kind, tt.say)
	}
	roots, err = pki.RemoveRoot(t.Context(), dir, theirs[:8], start())
	if err != nil || len(roots) != 2 || roots[1].State != "removed" {
		t.Errorf("%+v, %v", roots, err)
	}
	if !maps.Equal(before, tree(t, dir)) {
		t.Error("adding and removing a root is not nothing")
	}
	_, err = pki.RemoveRoot(t.Context(), dir, own, start())
	wantError(t, err, pki.KindRefused, "it is the only root")
	for _, tt := range []struct{ file, say string }{
		{other + "/nodes/a/tls.crt", "not an authority's"},
		{other + "/ca/intermediate.crt", "is an intermediate"},
		{other + "/ca/root.key", "holds no certificate"},
	} {
		_, err = pki.AddRoots(t.Context(), dir, tt.file, start())
		wantError(t, err, pki.KindFiles, tt.file, tt.say)
	}
	_, err = pki.AddRoots(t.Context(), dir, other+"/ca/root.crt", start().Add(11*365*day))
	wantError(t, err, pki.KindFiles, "expired at")
}

// The root that signs here stays although nothing it signed is here.
func TestBundleKeepsItsOwnRoot(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	mustInit(t, dir, pki.Scope{})
	mustInit(t, other, pki.Scope{})
	roots, err := pki.AddRoots(t.Context(), dir, other+"/bundle.crt", start())
	if err != nil {
		t.Fatal(err)
	}
	_, err = pki.RemoveRoot(t.Context(), dir, roots[0].Fingerprint, start())
	wantError(t, err, pki.KindRefused, "the authority that signs here")
}

package pki_test

import (
	"crypto/x509"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tidal/pki"
)

// rotated are the steps of a rotation, in order.
func rotated() []func(t *testing.T, dir string, now time.Time) (pki.Rotation, error) {
	return []func(*testing.T, string, time.Time) (pki.Rotation, error){
		func(t *testing.T, dir string, now time.Time) (pki.Rotation, error) {
			t.Helper()
			return pki.StartRotation(t.Context(), dir, now)
		},
		func(t *testing.T, dir string, now time.Time) (pki.Rotation, error) {
			t.Helper()
			return pki.SwitchAuthority(t.Context(), dir, now)
		},
		func(t *testing.T, dir string, now time.Time) (pki.Rotation, error) {
			t.Helper()
			return pki.EndTrust(t.Context(), dir, now)
		},
	}
}

// verifies reports whether a directory's leaf is valid under a bundle.
func verifies(t *testing.T, bundle, leafDir string, now time.Time) bool {
	t.Helper()
	_, err := pki.LoadServer(pki.Files{CA: bundle, Cert: leafDir + "/tls.crt", Key: leafDir + "/tls.key"}, "prod", filepath.Base(leafDir), now)
	return err == nil
}

// save copies a file and returns the copy's path.
func save(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), filepath.Base(path))
	if err = os.WriteFile(to, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

func TestRotation(t *testing.T) {
	dir, now := t.TempDir(), start().Add(10*day)
	mustGen(t, dir, abc(), start())
	if err := os.Remove(dir + "/nodes/c/tls.key"); err != nil { // it is on its machine
		t.Fatal(err)
	}
	before := tree(t, dir)
	oldBundle := save(t, dir+"/bundle.crt")
	root := cert(t, dir+"/ca/root.crt")
	_, err := pki.RotationIn(t.Context(), dir, now)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before it begins: %v", err)
	}
	for _, step := range rotated()[1:] {
		_, err = step(t, dir, now)
		wantError(t, err, pki.KindFiles, "no rotation of the authority is under way")
	}
	var first pki.Rotation
	for i, step := range rotated() {
		var r pki.Rotation
		for again := range 2 { // each step may be taken again
			was := tree(t, dir)
			if r, err = step(t, dir, now); err != nil {
				t.Fatal(err)
			}
			if again == 1 && !maps.Equal(was, tree(t, dir)) {
				t.Errorf("step %d, taken again, changes something", i)
			}
		}
		if first.Old == "" {
			first = r
		}
		if r.Old != pki.Fingerprint(root) || r.New != first.New || r.NewIssuer != first.NewIssuer {
			t.Errorf("step %d: %+v, at first %+v", i, r, first)
		}
		wantNew, wantOld := i >= 1, i < 2
		if got := verifies(t, oldBundle, dir+"/nodes/a", now); got == wantNew {
			t.Errorf("step %d: under the old root alone node a verifies: %t", i, got)
		}
		if !verifies(t, dir+"/bundle.crt", dir+"/nodes/a", now) {
			t.Errorf("step %d: node a does not verify under the bundle", i)
		}
		roots, listErr := pki.Bundle(dir, now)
		if listErr != nil || slices.ContainsFunc(roots, func(x pki.Root) bool { return x.Fingerprint == r.Old }) != wantOld ||
			!slices.ContainsFunc(roots, func(x pki.Root) bool { return x.Fingerprint == r.New }) {
			t.Errorf("step %d: the bundle holds %+v, %v", i, roots, listErr)
		}
		old, readErr := r.OldSerials(dir, false)
		if readErr != nil || len(old) != 4 || old[pki.Serial(cert(t, dir+"/nodes/b/tls.crt"))] == wantNew {
			t.Errorf("step %d: old serials %v, %v", i, old, readErr)
		}
	}
	after := tree(t, dir)
	for _, name := range []string{"nodes/a/tls.key", "nodes/b/tls.key", "clients/admin/tls.key"} {
		if before[name] != after[name] {
			t.Errorf("%s changed", name)
		}
	}
	c := cert(t, dir+"/nodes/a/tls.crt")
	was := mustParse(t, before["nodes/a/tls.crt"])
	if diff := cmp.Diff(was.DNSNames, c.DNSNames); diff != "" || c.URIs[0].String() != was.URIs[0].String() || c.NotAfter.Sub(c.NotBefore) != was.NotAfter.Sub(was.NotBefore) {
		t.Errorf("names, identity or life changed: %s %v %s", diff, c.URIs, c.NotAfter)
	}
	next := cert(t, dir+"/ca/root.crt")
	if diff := cmp.Diff(root.PermittedDNSDomains, next.PermittedDNSDomains); diff != "" || next.Subject.String() == root.Subject.String() || len(next.PermittedIPRanges) != len(root.PermittedIPRanges) {
		t.Errorf("the new root may sign for others: %s %s", diff, next.Subject)
	}
	retired, err := pki.RetireAuthority(dir)
	if err != nil || !strings.HasSuffix(retired, "ca-retired-"+first.Old[:16]) {
		t.Errorf("retired to %s, %v", retired, err)
	}
	if retired, err = pki.RetireAuthority(dir); retired != "" || err != nil {
		t.Errorf("retired again: %s, %v", retired, err)
	}
	// All goes on with the new authority, and another rotation can follow.
	mustGen(t, dir, plan(pki.Node{ID: "d"}), now)
	if r, err := pki.StartRotation(t.Context(), dir, now); err != nil || r.Old != first.New {
		t.Errorf("another rotation: %+v, %v", r, err)
	}
}

func mustParse(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.crt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return cert(t, path)
}

// From after each step the way back leads to what was before, but for serial
// numbers.
func TestRotationUndone(t *testing.T) {
	for steps := 1; steps <= 2; steps++ {
		dir := t.TempDir()
		mustGen(t, dir, abc(), start())
		before := tree(t, dir)
		for _, step := range rotated()[:steps] {
			if _, err := step(t, dir, start()); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if _, err := pki.UndoRotation(t.Context(), dir, start()); err != nil {
				t.Fatal(err)
			}
		}
		if !verifies(t, save(t, dir+"/ca/root.crt"), dir+"/nodes/a", start()) {
			t.Errorf("after %d steps and back node a is not under the old root", steps)
		}
		for range 2 {
			if _, err := pki.EndUndo(t.Context(), dir, start()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := pki.RetireAuthority(dir); err != nil {
			t.Fatal(err)
		}
		after := tree(t, dir)
		for name, data := range before {
			changes := name == "serials.jsonl" || steps == 2 && strings.HasSuffix(name, "/tls.crt")
			if (after[name] != data) != changes {
				t.Errorf("%d steps and back: %s changed, or did not", steps, name)
			}
		}
	}
}

// Killed after any of its writes and renames, in any step, a rotation is completed
// by the same steps, and what verifies stays verifiable throughout.
func TestRotationKilled(t *testing.T) {
	for i := range rotated() {
		for stop := 1; ; stop++ {
			dir := t.TempDir()
			mustGen(t, dir, abc(), start())
			for _, step := range rotated()[:i] {
				if _, err := step(t, dir, start()); err != nil {
					t.Fatal(err)
				}
			}
			err := pki.RotateStop(t.Context(), dir, start(), i, stop)
			if err == nil {
				break
			}
			if !errors.Is(err, pki.ErrStopped) {
				t.Fatal(err)
			}
			if !verifies(t, dir+"/bundle.crt", dir+"/nodes/a", start()) {
				t.Errorf("step %d stopped at %d: node a does not verify", i, stop)
			}
			for _, step := range rotated()[i:] {
				if _, err = step(t, dir, start()); err != nil {
					t.Fatalf("step %d stopped at %d: %v", i, stop, err)
				}
			}
			for _, node := range []string{"a", "b", "c"} {
				if !verifies(t, save(t, dir+"/ca/root.crt"), dir+"/nodes/"+node, start()) || !verifies(t, dir+"/bundle.crt", dir+"/nodes/"+node, start()) {
					t.Errorf("step %d stopped at %d: node %s is not under the new root", i, stop, node)
				}
			}
		}
	}
}

// Between the two renames of a switch there is no authority, and nothing else may
// make one.
func TestGenLeavesARotationAlone(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	if _, err := pki.StartRotation(t.Context(), dir, start()); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(dir+"/ca", dir+"/ca-old"); err != nil {
		t.Fatal(err)
	}
	_, err := pki.Gen(t.Context(), dir, abc(), start())
	wantError(t, err, pki.KindFiles, "ca/root.crt: is missing, and a rotation", "tidal certs rotate")
	if _, err = pki.SwitchAuthority(t.Context(), dir, start()); err != nil {
		t.Fatal(err)
	}
	mustGen(t, dir, abc(), start())
}

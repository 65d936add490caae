package pki_test

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tidal/pki"
)

const day = 24 * time.Hour

func start() time.Time { return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC) }

func plan(nodes ...pki.Node) pki.Plan { return pki.Plan{Cluster: "prod", Nodes: nodes} }

func abc() pki.Plan {
	return plan(
		pki.Node{ID: "a", Names: []string{"node-a.example.com", "10.0.0.1"}},
		pki.Node{ID: "b", Names: []string{"node-b.example.com"}},
		pki.Node{ID: "c"},
	)
}

func mustGen(t *testing.T, dir string, p pki.Plan, now time.Time) pki.Report {
	t.Helper()
	r, err := pki.Gen(t.Context(), dir, p, now)
	if err != nil {
		t.Fatalf("Gen: %v", err)
	}
	return r
}

// tree returns the contents of all files below a directory.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		rel, _ := filepath.Rel(dir, path)
		all[filepath.ToSlash(rel)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func cert(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(b)
	c, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func wantError(t *testing.T, err error, kind pki.Kind, parts ...string) {
	t.Helper()
	var e *pki.Error
	if !errors.As(err, &e) || e.Kind != kind {
		t.Errorf("error is %v, want one of kind %d", err, kind)
		return
	}
	for _, p := range parts {
		if !strings.Contains(e.Message+"\n"+e.Hint, p) {
			t.Errorf("error is %q, hint %q; want %q in it", e.Message, e.Hint, p)
		}
	}
}

func files() []string {
	return []string{
		"bundle.crt", "ca/intermediate.crt", "ca/intermediate.key", "ca/root.crt", "ca/root.key",
		"clients/admin/tls.crt", "clients/admin/tls.key",
		"nodes/a/tls.crt", "nodes/a/tls.key", "nodes/b/tls.crt", "nodes/b/tls.key", "nodes/c/tls.crt", "nodes/c/tls.key",
		"serials.jsonl",
	}
}

func TestGenIsIdempotent(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "certs")
	r := mustGen(t, dir, abc(), start())
	if r.Made() != 7 || len(r.Files) != 7 {
		t.Errorf("first run made %d of %d, want 7 of 7: %+v", r.Made(), len(r.Files), r)
	}
	first := tree(t, dir)
	if got := slices.Sorted(maps.Keys(first)); !slices.Equal(got, files()) {
		t.Errorf("files are %v, want %v", got, files())
	}
	if n := strings.Count(first["serials.jsonl"], "\n"); n != 6 {
		t.Errorf("serials.jsonl has %d lines, want one for each of 6 certificates", n)
	}
	r = mustGen(t, dir, abc(), start().Add(day))
	if r.Made() != 0 {
		t.Errorf("second run made %d, want 0: %+v", r.Made(), r)
	}
	if !maps.Equal(first, tree(t, dir)) {
		t.Error("the second run changed something")
	}
	more := abc()
	more.Nodes = append(more.Nodes, pki.Node{ID: "d", Names: []string{"node-d.example.com", "192.168.7.7"}})
	more.Clients = []pki.Client{{Name: "app", Role: "writer"}}
	r = mustGen(t, dir, more, start().Add(day))
	if r.Made() != 2 {
		t.Errorf("a run with a node and a client more made %d, want 2: %+v", r.Made(), r)
	}
	after := tree(t, dir)
	for name, data := range first {
		if name != "serials.jsonl" && after[name] != data {
			t.Errorf("%s was changed for another node", name)
		}
	}
	if !strings.HasPrefix(after["serials.jsonl"], first["serials.jsonl"]) {
		t.Error("serials.jsonl lost lines")
	}
}

// Stopped after each of its writes, a run is completed by the next: all files
// are there, all load, and what was written before the stop is kept.
func TestGenCompletesAKilledRun(t *testing.T) {
	for stop := 1; ; stop++ {
		dir := t.TempDir()
		_, err := pki.GenStop(t.Context(), dir, abc(), start(), stop)
		if err == nil {
			if stop != len(files())+1 {
				t.Errorf("a run has %d writes, want %d", stop-1, len(files()))
			}
			return
		}
		if !errors.Is(err, pki.ErrStopped) {
			t.Fatal(err)
		}
		half := tree(t, dir)
		// What a kill inside a write leaves.
		if err := os.WriteFile(filepath.Join(dir, ".bundle.crt.tmp"), []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		mustGen(t, dir, abc(), start().Add(time.Hour))
		whole := tree(t, dir)
		for name, data := range half {
			if !strings.HasPrefix(whole[name], data) || name != "serials.jsonl" && whole[name] != data {
				t.Errorf("stop %d: %s was replaced", stop, name)
			}
		}
		delete(whole, ".bundle.crt.tmp") // there only where the bundle had been written
		if got := slices.Sorted(maps.Keys(whole)); !slices.Equal(got, files()) {
			t.Errorf("stop %d: files are %v, want %v", stop, got, files())
		}
		for _, id := range []string{"a", "b", "c"} {
			if _, err := pki.LoadServer(pki.NodeFiles(dir, id), "prod", id, start().Add(time.Hour)); err != nil {
				t.Errorf("stop %d: %v", stop, err)
			}
		}
		if _, err := pki.LoadClient(pki.ClientFiles(dir, "admin"), start().Add(time.Hour)); err != nil {
			t.Errorf("stop %d: %v", stop, err)
		}
	}
}

func TestGenEndsATornSerial(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	path := filepath.Join(dir, "serials.jsonl")
	whole := tree(t, dir)["serials.jsonl"]
	if err := os.WriteFile(path, []byte(whole[:len(whole)-20]), 0o600); err != nil {
		t.Fatal(err)
	}
	mustGen(t, dir, plan(pki.Node{ID: "d"}), start())
	lines := strings.Split(tree(t, dir)["serials.jsonl"], "\n")
	if last := lines[len(lines)-2]; !strings.HasPrefix(last, `{"serial"`) || strings.Count(last, `"serial"`) != 1 || !strings.Contains(last, "spiffe://prod/node/d") {
		t.Errorf("last line is %q", last)
	}
}

func TestGenOverwritesOnlyWhenAsked(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	before := tree(t, dir)
	other := plan(pki.Node{ID: "a", Names: []string{"10.0.0.9", "node-a.example.com"}})
	_, err := pki.Gen(t.Context(), dir, other, start())
	wantError(t, err, pki.KindRefused, "nodes", "not valid for 10.0.0.9", "--overwrite")
	if !maps.Equal(before, tree(t, dir)) {
		t.Error("a refused run changed something")
	}
	fewer := plan(pki.Node{ID: "a"})
	if r := mustGen(t, dir, fewer, start()); r.Made() != 0 {
		t.Errorf("asked for fewer names it made %d, want 0", r.Made())
	}
	other.Overwrite = true
	mustGen(t, dir, other, start())
	after := tree(t, dir)
	for _, name := range []string{"nodes/a/tls.crt", "nodes/a/tls.key", "clients/admin/tls.crt"} {
		if before[name] == after[name] {
			t.Errorf("--overwrite kept %s", name)
		}
	}
	for _, name := range []string{"ca/root.crt", "ca/root.key", "ca/intermediate.crt", "bundle.crt", "nodes/b/tls.crt", "nodes/c/tls.key"} {
		if before[name] != after[name] {
			t.Errorf("--overwrite changed %s", name)
		}
	}
	if _, err = pki.LoadServer(pki.NodeFiles(dir, "a"), "prod", "a", start()); err != nil {
		t.Error(err)
	}
	other.Overwrite, other.Clients = false, []pki.Client{{Name: "x", Role: "reader"}}
	mustGen(t, dir, other, start())
	other.Clients[0].Role = "admin"
	_, err = pki.Gen(t.Context(), dir, other, start())
	wantError(t, err, pki.KindRefused, "spiffe://prod/role/reader/x", "spiffe://prod/role/admin/x", "--overwrite")
}

// Stopped between key and certificate, a run with Overwrite is finished by the
// same run, and another says what is wrong.
func TestGenOverwriteKilled(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	again := plan(pki.Node{ID: "a"})
	again.Overwrite = true
	if _, err := pki.GenStop(t.Context(), dir, again, start(), 2); !errors.Is(err, pki.ErrStopped) {
		t.Fatal(err)
	}
	_, err := pki.Gen(t.Context(), dir, abc(), start())
	wantError(t, err, pki.KindFiles, "not made for the private key", "--overwrite")
	mustGen(t, dir, again, start())
	if _, err := pki.LoadServer(pki.NodeFiles(dir, "a"), "prod", "a", start()); err != nil {
		t.Error(err)
	}
}

func TestGenUsage(t *testing.T) {
	many := make([]pki.Node, 201)
	for _, tt := range []struct {
		name string
		plan pki.Plan
		say  string
	}{
		{"no cluster", pki.Plan{Nodes: []pki.Node{{ID: "a"}}}, "cluster name"},
		{"bad cluster", pki.Plan{Cluster: "Prod", Nodes: []pki.Node{{ID: "a"}}}, `"Prod"`},
		{"no node", pki.Plan{Cluster: "prod"}, "0 nodes"},
		{"many nodes", pki.Plan{Cluster: "prod", Nodes: many}, "201 nodes"},
		{"bad node", plan(pki.Node{ID: "a.b"}), `"a.b"`},
		{"path", plan(pki.Node{ID: "../a"}), `"../a"`},
		{"twice", plan(pki.Node{ID: "a"}, pki.Node{ID: "a"}), "node a is named twice"},
		{"bad name", plan(pki.Node{ID: "a", Names: []string{"x:1"}}), "node a: name"},
		{"bad role", pki.Plan{Cluster: "prod", Nodes: []pki.Node{{ID: "a"}}, Clients: []pki.Client{{Name: "x", Role: "root"}}}, `no role "root"`},
		{"bad client", pki.Plan{Cluster: "prod", Nodes: []pki.Node{{ID: "a"}}, Clients: []pki.Client{{Name: "x/y", Role: "admin"}}}, `"x/y"`},
	} {
		dir := filepath.Join(t.TempDir(), "new")
		_, err := pki.Gen(t.Context(), dir, tt.plan, start())
		t.Run(tt.name, func(t *testing.T) {
			wantError(t, err, pki.KindUsage, tt.say)
			if _, err := os.Stat(dir); err == nil {
				t.Error("a refused run made the directory")
			}
		})
	}
}

func TestLifetimes(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	root, inter := cert(t, dir+"/ca/root.crt"), cert(t, dir+"/ca/intermediate.crt")
	leaf := cert(t, dir+"/nodes/a/tls.crt")
	for _, tt := range []struct {
		c            *x509.Certificate
		before, life time.Duration
	}{{root, 25 * time.Hour, 3650 * day}, {inter, 25 * time.Hour, 730 * day}, {leaf, time.Hour, 397 * day}} {
		if !tt.c.NotBefore.Equal(start().Add(-tt.before)) || !tt.c.NotAfter.Equal(start().Add(tt.life)) {
			t.Errorf("%s lives from %s to %s", tt.c.Subject.CommonName, tt.c.NotBefore, tt.c.NotAfter)
		}
		if tt.c.SerialNumber.BitLen() > 127 || tt.c.SerialNumber.BitLen() < 64 {
			t.Errorf("%s has a serial of %d bits", tt.c.Subject.CommonName, tt.c.SerialNumber.BitLen())
		}
	}
	if root.MaxPathLen != 2 || inter.MaxPathLen != 0 || !inter.MaxPathLenZero {
		t.Errorf("path lengths are %d and %d, want 2 and 0", root.MaxPathLen, inter.MaxPathLen)
	}

	// A year and a half on the intermediate has half a year left.
	late := start().Add(550 * day)
	mustGen(t, dir, plan(pki.Node{ID: "d"}), start().Add(390*day))
	if got := cert(t, dir+"/nodes/d/tls.crt").NotAfter; !got.Equal(inter.NotAfter) {
		t.Errorf("a leaf ends at %s, its issuer at %s", got, inter.NotAfter)
	}
	again := plan(pki.Node{ID: "e"})
	_, err := pki.Gen(t.Context(), dir, again, late)
	wantError(t, err, pki.KindRefused, "expired at", "--overwrite") // the admin's
	again.Overwrite = true
	mustGen(t, dir, again, late)
	for _, tt := range []struct {
		at  time.Time
		say string
	}{
		{start().Add(640 * day), "has 90 days left"},
		{start().Add(731 * day), "expired at"},
		{start().Add(11 * 365 * day), "expired at"},
		{start().Add(-26 * time.Hour), "not valid before"},
	} {
		again.Nodes[0].ID = "f"
		_, err := pki.Gen(t.Context(), dir, again, tt.at)
		wantError(t, err, pki.KindRefused, tt.say)
	}
}

func TestAuthoritiesHaveNamesOfTheirOwn(t *testing.T) {
	long := strings.Repeat("x", 32)
	names := map[string]bool{}
	for range 3 {
		dir := t.TempDir()
		mustGen(t, dir, pki.Plan{Cluster: long, Nodes: []pki.Node{{ID: "a"}}}, start())
		for _, f := range []string{"/ca/root.crt", "/ca/intermediate.crt"} {
			cn := cert(t, dir+f).Subject.CommonName
			if len(cn) > 64 || names[cn] {
				t.Errorf("common name %q has more than 64 bytes or repeats", cn)
			}
			names[cn] = true
		}
	}
}

func TestConstraints(t *testing.T) {
	for _, tt := range []struct {
		name   string
		first  []string
		allow  []string
		refuse []string
	}{
		{"loopback alone", nil, []string{"localhost", "10.9.9.9", "fd00::9"}, []string{"node-d", "d.example.com", "8.8.8.8", "2001:db8::1"}},
		{"a domain", []string{"a.example.com"}, []string{"d.example.com", "*.eu.example.com", "x.y.example.com"}, []string{"d.example.org", "example.com.evil.org", "node-d"}},
		{"two domains", []string{"a.example.com", "a.int.example.org"}, []string{"d.int.example.org"}, []string{"d.example.org"}},
		{"a wildcard", []string{"*.tidal.example"}, []string{"d.tidal.example"}, []string{"tidal.example.com"}},
		{"bare names", []string{"node-a"}, []string{"node-d", "d.example.com"}, []string{"8.8.8.8"}},
		{"a top-level domain", []string{"a.lan"}, []string{"d.lan"}, nil},
		{"public addresses", []string{"203.0.113.7", "2001:db8:0:1::7"}, []string{"203.0.113.200", "2001:db8:0:1::8"}, []string{"203.0.114.1", "2001:db8:0:2::1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			mustGen(t, dir, plan(pki.Node{ID: "a", Names: tt.first}), start())
			before := tree(t, dir)
			for _, n := range tt.refuse {
				_, err := pki.Gen(t.Context(), dir, plan(pki.Node{ID: "d", Names: []string{n}}), start())
				wantError(t, err, pki.KindRefused, "node d", n, "another --dir")
			}
			if !maps.Equal(before, tree(t, dir)) {
				t.Error("a refused run changed something")
			}
			mustGen(t, dir, plan(pki.Node{ID: "d", Names: tt.allow}), start())
		})
	}
}

func TestGenRefusesAForeignDirectory(t *testing.T) {
	t.Run("other cluster", func(t *testing.T) {
		dir := t.TempDir()
		mustGen(t, dir, abc(), start())
		p := abc()
		p.Cluster = "staging"
		_, err := pki.Gen(t.Context(), dir, p, start())
		wantError(t, err, pki.KindRefused, `"prod"`, `"staging"`)
	})
	change := func(name string, f func(dir string) error, kind pki.Kind, parts ...string) {
		t.Run(name, func(t *testing.T) {
			dir, other := t.TempDir(), t.TempDir()
			mustGen(t, dir, abc(), start())
			mustGen(t, other, abc(), start())
			if err := os.Rename(other+"/ca", dir+"/ca2"); err != nil {
				t.Fatal(err)
			}
			if err := f(dir); err != nil {
				t.Fatal(err)
			}
			before := tree(t, dir)
			p := abc()
			p.Nodes = append(p.Nodes, pki.Node{ID: "d"})
			_, err := pki.Gen(t.Context(), dir, p, start())
			wantError(t, err, kind, parts...)
			if !maps.Equal(before, tree(t, dir)) {
				t.Error("a refused run changed something")
			}
		})
	}
	move := func(from, to string) func(string) error {
		return func(dir string) error { return os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)) }
	}
	gone := func(name string) func(string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, name)) }
	}
	change("root gone", gone("ca/root.crt"), pki.KindFiles, "root.crt", "is missing")
	change("intermediate key gone", gone("ca/intermediate.key"), pki.KindFiles, "intermediate.key", "is missing")
	change("other root", func(dir string) error {
		return errors.Join(move("ca2/root.crt", "ca/root.crt")(dir), move("ca2/root.key", "ca/root.key")(dir))
	}, pki.KindFiles, "intermediate.crt", "was not signed by")
	change("other key", move("ca2/root.key", "ca/root.key"), pki.KindFiles, "root.key", "is not the key of")
	change("other authority", func(dir string) error { return errors.Join(os.RemoveAll(dir+"/ca"), move("ca2", "ca")(dir)) },
		pki.KindFiles, "bundle.crt", "does not hold the root")
	change("other bundle too", func(dir string) error {
		return errors.Join(os.RemoveAll(dir+"/ca"), move("ca2", "ca")(dir), gone("bundle.crt")(dir))
	}, pki.KindRefused, "nodes", "no root in", "--overwrite")
	change("empty certificate", func(dir string) error { return os.Truncate(dir+"/nodes/b/tls.crt", 0) }, pki.KindFiles, "holds no PEM block")
	change("key cut off", func(dir string) error { return os.Truncate(dir+"/ca/intermediate.key", 60) }, pki.KindFiles, "intermediate.key", "line 1")
}

// The root's key may be kept elsewhere, and a leaf's taken to its machine.
func TestGenWithoutKeysThatAreElsewhere(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	for _, name := range []string{"/ca/root.key", "/nodes/a/tls.key"} {
		if err := os.Remove(dir + name); err != nil {
			t.Fatal(err)
		}
	}
	p := abc()
	p.Nodes = append(p.Nodes, pki.Node{ID: "d"})
	if r := mustGen(t, dir, p, start()); r.Made() != 1 {
		t.Errorf("made %d, want 1: %+v", r.Made(), r)
	}
	if _, err := os.Stat(dir + "/nodes/a/tls.key"); err == nil {
		t.Error("a key was made for a certificate that has one elsewhere")
	}
}

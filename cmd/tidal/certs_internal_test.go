package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/pki"
)

// certsRun runs `tidal certs gen` with --dir and more words.
func certsRun(t *testing.T, dir string, words ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, talk bytes.Buffer
	args := append([]string{"tidal", "certs", "gen", "--dir", dir}, words...)
	code = run(t.Context(), args, strings.NewReader(""), &out, &talk, func(string) (string, bool) { return "", false })
	return code, out.String(), talk.String()
}

func TestCertsGen(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	line := []string{"--cluster", "prod", "--node", "a=10.0.0.1,Node-A.example.com", "--node", "b", "--name", "lb.example.com", "--client", "app=writer"}
	code, stdout, stderr := certsRun(t, dir, line...)
	if code != 0 || !strings.HasPrefix(stdout, "KIND") || !strings.Contains(stderr, "7 made, 0 kept") || !strings.Contains(stderr, "next: ") {
		t.Fatalf("exit %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = certsRun(t, dir, line...)
	if code != 0 || strings.Contains(stdout, "made") || !strings.Contains(stderr, "nothing to do, all 7") {
		t.Errorf("again: exit %d\n%s%s", code, stdout, stderr)
	}
	code, stdout, stderr = certsRun(t, dir, append(slices.Clone(line), "--node", "c", "-o", "json")...)
	var r pki.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != 0 {
		t.Fatalf("exit %d, %v\n%s%s", code, err, stdout, stderr)
	}
	want := []string{"node-a.example.com", "lb.example.com", "localhost", "10.0.0.1", "127.0.0.1", "::1"}
	if a := r.Files[3]; r.Made() != 1 || a.Name != "a" || a.State != "kept" || !slices.Equal(a.Names, want) {
		t.Errorf("made %d, a is %+v; want 1 and names %v", r.Made(), a, want)
	}
	if _, err := pki.LoadServer(pki.NodeFiles(dir, "c"), "prod", "c", time.Now()); err != nil {
		t.Error(err)
	}
	if _, err := pki.LoadClient(pki.ClientFiles(dir, "app"), time.Now()); err != nil {
		t.Error(err)
	}
}

func TestCertsGenForPods(t *testing.T) {
	dir := t.TempDir()
	code, _, stderr := certsRun(t, dir, "--cluster", "prod", "--statefulset", "tidal", "--service", "peers", "--namespace", "ns", "--nodes", "2", "--cluster-domain", "k.example")
	if code != 0 || !strings.Contains(stderr, "next: kubectl -n ns create secret generic tidal-tls --from-file="+filepath.Join(dir, "bundle.crt")) ||
		!strings.Contains(stderr, "--from-file=tidal-1.key="+filepath.Join(dir, "nodes", "tidal-1", "tls.key")) {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	k, err := pki.LoadServer(pki.NodeFiles(dir, "tidal-1"), "prod", "tidal-1", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Leaf().VerifyHostname("tidal-7.peers.ns.svc.k.example"); err != nil {
		t.Error(err)
	}
}

func TestCertsGenShared(t *testing.T) {
	dir := t.TempDir()
	code, stdout, stderr := certsRun(t, dir, "--cluster", "prod", "--node", "a=node-a.example.com", "--node", "b", "--shared-leaf")
	if code != 0 || !strings.Contains(stdout, "node          _shared  made") || !strings.Contains(stderr, "next: take bundle.crt and nodes/_shared/tls.* to each node") {
		t.Errorf("exit %d\n%s%s", code, stdout, stderr)
	}
	dir = t.TempDir()
	code, _, stderr = certsRun(t, dir, "--cluster", "prod", "--statefulset", "tidal", "--service", "peers", "--namespace", "ns", "--nodes", "2", "--shared-leaf")
	if code != 0 || !strings.Contains(stderr, "--from-file=tls.key="+filepath.Join(dir, "nodes", "_shared", "tls.key")) {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}

func TestCertsGenErrors(t *testing.T) {
	dir := t.TempDir()
	if code, _, stderr := certsRun(t, dir, "--cluster", "prod", "--node", "a"); code != 0 {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	for _, tt := range []struct {
		line string
		code exitCode
		say  string
	}{
		{"--node a", exitUsage, "--cluster is missing"},
		{"--cluster prod", exitUsage, "0 nodes"},
		{"--cluster prod --node a=", exitUsage, "names nothing"},
		{"--cluster prod --node a=,", exitUsage, "empty"},
		{"--cluster prod --node a=x:1", exitUsage, "has a port"},
		{"--cluster prod --node A", exitUsage, `node id "A"`},
		{"--cluster prod --node a --client x", exitUsage, "has no role"},
		{"--cluster prod --node a --client x=root", exitUsage, `no role "root"`},
		{"--cluster prod --node a --nodes 3", exitUsage, "--nodes is for pods"},
		{"--cluster prod --node a --statefulset s", exitUsage, "exclude each other"},
		{"--cluster prod --statefulset s --service t --nodes 3", exitUsage, `namespace ""`},
		{"--cluster prod --node a extra", exitUsage, `"extra"`},
		{"--cluster prod --node a -o xml", exitUsage, "xml"},
		{"--cluster prod --node a=10.0.0.7", exitRefused, "hint: --overwrite"},
		{"--cluster other --node a", exitRefused, `cluster "prod"`},
		{"--cluster prod --node d=d.example.com", exitRefused, "may not sign for it"},
		{"--cluster prod --node a --dir /dev/null", exitConfig, "not a directory"},
	} {
		code, stdout, stderr := certsRun(t, dir, strings.Fields(tt.line)...)
		if code != int(tt.code) || !strings.Contains(stderr, tt.say) || stdout != "" {
			t.Errorf("%s: exit %d, want %d, and %q in\n%s%s", tt.line, code, tt.code, tt.say, stdout, stderr)
		}
	}
}

// What an operator should know of certificates status says, and of nodes without
// certificates nothing.
func TestCertWarnings(t *testing.T) {
	now := time.Now()
	fine := func(node string) api.Node {
		return api.Node{Member: api.Member{Node: node}, Certificates: &api.Certificates{
			Identity: "spiffe://prod/node/" + node, NotAfter: now.Add(300 * 24 * time.Hour), Roots: []api.Root{{Fingerprint: "1", Subject: "root", NotAfter: now.Add(9000 * time.Hour)}},
		}}
	}
	for _, tt := range []struct {
		spoil func(c *api.Certificates)
		say   string
	}{
		{func(*api.Certificates) {}, ""},
		{func(c *api.Certificates) { c.NotAfter = now.Add(-time.Hour) }, "node b: its certificate expired at"},
		{func(c *api.Certificates) { c.Due, c.NotAfter = true, now.Add(50*time.Hour) }, "node b: its certificate is due, it ends in 2d: tidal certs renew node/b"},
		{func(c *api.Certificates) { c.Problem = "tls.crt: no" }, "node b: it cannot use its certificate files as they are now, and goes on with what it had: tls.crt: no"},
		{func(c *api.Certificates) { c.Roots[0].NotAfter = now.Add(time.Hour) }, "the root root that it trusts ends at"},
		{func(c *api.Certificates) { c.Roots[0].Fingerprint = "2" }, "the nodes do not trust the same roots"},
		{func(c *api.Certificates) { c.Identity = "spiffe://prod/node/*" }, "certificates that speak for every node are in use (nodes b)"},
		{func(c *api.Certificates) { c.Identity, c.NotAfter = "spiffe://prod/node/*", now.Add(-time.Hour) }, "tidal certs renew node/_shared"},
	} {
		b := fine("b")
		tt.spoil(b.Certificates)
		got := certWarnings([]api.Node{fine("a"), {Member: api.Member{Node: "plain"}}, b}, now)
		if all := strings.Join(got, "\n"); (tt.say == "") != (all == "") || !strings.Contains(all, tt.say) {
			t.Errorf("%q, want %q", all, tt.say)
		}
	}
}

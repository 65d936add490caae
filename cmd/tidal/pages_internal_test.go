package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// page is one whose commands run as they are printed, in their order, in one shell.
type page struct {
	name          string
	before, after string   // commands that make what the page takes for given, and that clean up
	skip          []string // lines that have one of these; they want a terminal, a host name, hours or what the test itself is
	instead       []string // old and new, in pairs: what is another's on the page
}

func pages() []page {
	const cluster = "tidal dev --dir ./dev --detach\ntidal tables create orders\n"
	return []page{
		{name: "README.md", skip: []string{"bin/tidal top", "make demo"}},
		{name: "docs/first-five-minutes.md"},
		{
			name: "docs/certificates.md", before: "tidal certs gen --dir other --cluster other --node x\n",
			skip: []string{"certs reload", "certs revoke", "certs rotate", "certs verify"},
			instead: []string{
				"tls.csr --dir", "host/nodes/d/tls.csr --dir",
				"d797bae9eb5a", `"$(tidal certs bundle show --dir other | awk 'NR == 2 {print $(NF-1)}')"`,
				"tidal-7.tidal-peers", "tidal-7.tidal-peers || test $? = 1", "10.0.0.1:8433", "10.0.0.1:8433 || test $? = 1",
			},
		},
		{
			name: "docs/operations.md", before: cluster, after: "tidal dev stop --dir ./dev\n",
			skip: []string{"tidal serve", "tidal debug", "--ttl", "--hold"}, // the last two are other ways of the line before
		},
		{
			name: "docs/top.md", before: cluster, after: "tidal dev stop --dir ./dev\n",
			instead: []string{"tidal top\n", "tidal top --once\n"},
		},
	}
}

// TestPages runs what a newcomer reads.
func TestPages(t *testing.T) {
	if testing.Short() || os.Getenv("TIDAL_PAGES") == "" {
		t.Skip("on demand: make pages")
	}
	program, err := exec.LookPath("tidal")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pages() {
		t.Run(p.name, func(t *testing.T) {
			dir := t.TempDir()
			bin := filepath.Join(dir, "bin")
			if err := os.MkdirAll(bin, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(program, filepath.Join(bin, "tidal")); err != nil {
				t.Fatal(err)
			}
			script := "set -eu\nmake() { test \"$1\" = build; }\n" + p.before + p.shell(t, readDoc(t, p.name)) + p.after
			cmd := exec.CommandContext(t.Context(), "bash", "-xc", script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "HOME="+dir, "TIDAL_CONFIG=", "TIDAL_CLUSTER=")
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Errorf("the commands of %s: %v", p.name, err)
			}
			stop := exec.CommandContext(t.Context(), program, "dev", "stop", "--dir", filepath.Join(dir, "dev"))
			if out, err := stop.CombinedOutput(); (err != nil || !strings.Contains(string(out), "nothing runs")) && strings.Contains(script, "tidal dev") {
				t.Errorf("a cluster was left: %s, %v", out, err)
			}
		})
	}
}

// shell returns the commands of a page. Where it shows what they print, they begin with
// a $; where it shows other things too, with tidal.
func (p *page) shell(t *testing.T, text string) string {
	t.Helper()
	only := strings.Contains(text, "$ tidal ")
	var b strings.Builder
	goesOn := false
	for line := range strings.Lines(fenced(text)) {
		command, said := strings.CutPrefix(strings.TrimSpace(line), "$ ")
		switch {
		case only && !goesOn && !said && !strings.HasPrefix(command, "tidal "):
			continue // not typed
		case only && said && !strings.HasPrefix(command, "tidal "):
			continue // another program's
		case !goesOn && slices.ContainsFunc(p.skip, func(s string) bool { return strings.Contains(line, s) }):
			continue
		}
		goesOn = strings.HasSuffix(command, "\\")
		b.WriteString(strings.TrimPrefix(line, "$ "))
	}
	out := b.String()
	for pair := range slices.Chunk(p.instead, 2) {
		if !strings.Contains(out, pair[0]) {
			t.Errorf("%s has no %q any more", p.name, pair[0])
		}
		out = strings.ReplaceAll(out, pair[0], pair[1])
	}
	return out
}

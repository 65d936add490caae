package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPages runs what a newcomer reads: every command of the pages, in their order,
// as it is printed, in one shell.
func TestPages(t *testing.T) {
	if testing.Short() || os.Getenv("TIDAL_PAGES") == "" {
		t.Skip("on demand: make pages")
	}
	program, err := exec.LookPath("tidal")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"README.md", "docs/first-five-minutes.md"} {
		t.Run(page, func(t *testing.T) {
			dir := t.TempDir()
			bin := filepath.Join(dir, "bin")
			if err := os.MkdirAll(bin, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(program, filepath.Join(bin, "tidal")); err != nil {
				t.Fatal(err)
			}
			script := "set -eu\nmake() { test \"$1\" = build; }\n" + shell(readDoc(t, page))
			cmd := exec.CommandContext(t.Context(), "bash", "-xc", script)
			cmd.Dir = dir
			cmd.Env = append(os.Environ(), "HOME="+dir, "TIDAL_CONFIG=", "TIDAL_CLUSTER=")
			out, err := cmd.CombinedOutput()
			t.Logf("%s", out)
			if err != nil {
				t.Errorf("the commands of %s: %v", page, err)
			}
			stop := exec.CommandContext(t.Context(), program, "dev", "stop", "--dir", filepath.Join(dir, "dev"))
			if out, err := stop.CombinedOutput(); err != nil || !strings.Contains(string(out), "nothing runs") {
				t.Errorf("a cluster was left: %s, %v", out, err)
			}
		})
	}
}

// shell returns the commands of a page, but for the one that wants a terminal and
// the one that builds the program and tries all of this.
func shell(page string) string {
	var b strings.Builder
	for line := range strings.Lines(fenced(page)) {
		if command := strings.TrimSpace(line); command != "bin/tidal top" && command != "make demo" {
			b.WriteString(line)
		}
	}
	return b.String()
}

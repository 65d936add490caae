package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"tidal/node/api"
)

// script is a program that says it is tidal of a version, whose `serve --check` ends
// with a code.
func script(version string, code int) string {
	return fmt.Sprintf(`#!/bin/sh
case "$1" in
version) echo '{"version":"%s","os":"linux","arch":"amd64","levels":{"min":1,"max":2}}' ;;
--check) echo "tidal: $2 says no" >&2; exit %d ;;
esac
`, version, code)
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func wantFile(t *testing.T, path, want string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		t.Errorf("%s holds %.80q, %v", path, b, err)
	}
}

// TestBinaries: a binary that is sent is checked, takes the place of the one that is
// there when it is told to, and gives it back; also where the kernel lets nobody link
// to what is another user's (fs.protected_hardlinks).
func TestBinaries(t *testing.T) {
	a, b := script("1.0", 0), script("1.1", 0)
	for i := range 4 {
		linked, copied := i&1 != 0, i&2 != 0
		dir := t.TempDir()
		path := filepath.Join(dir, "ti*dal")
		at := path
		if linked { // as a package may have it
			at = filepath.Join(dir, "tidal-1.0")
			if err := os.Symlink("tidal-1.0", path); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(at, []byte(a), 0o755); err != nil {
			t.Fatal(err)
		}
		x := &binaries{path: path, args: []string{"tidal", "serve"}, environ: os.Environ(), levels: api.Levels{Min: 1, Max: 1}}
		if copied {
			x.link = func(string, string) error { return syscall.EPERM }
		}
		left, now := x.hidden("sending-1"), x.hidden("sending-2") // of a node that was killed, and of one of the same path
		for _, file := range []string{left, now} {
			if err := os.WriteFile(file, []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(left, time.Time{}, time.Now().Add(-2*sendingLeft)); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Check(t.Context(), sumOf(b)); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("of one that is not here: %v", err)
		}
		p, err := x.Stage(t.Context(), sumOf(b), strings.NewReader(b))
		if err != nil || p.Version != "1.1" || p.Levels.Max != 2 || p.SHA256 != sumOf(b) {
			t.Fatalf("%+v, %v", p, err)
		}
		wantFile(t, path, a) // until it is told
		wantFile(t, now, "half")
		if _, err = os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("what a node that was killed was being sent is left: %v", err)
		}
		list, err := x.List(t.Context())
		if err != nil || list.Installed == nil || list.Installed.Version != "1.0" || list.Previous != nil || len(list.Staged) != 1 || len(list.Running.SHA256) != 64 {
			t.Errorf("%+v, %v", list, err)
		}
		for _, step := range []struct{ sum, now, before string }{
			{sumOf(b), b, a}, {sumOf(b), b, a}, {sumOf(a), a, b}, {sumOf(b), b, a},
		} {
			if err = errors.Join(x.Prepare(step.sum, step.sum), x.Prepare(step.sum, step.sum), x.Install(step.sum)); err != nil {
				t.Fatal(err)
			}
			wantFile(t, path, step.now)
			wantFile(t, path+".previous", step.before)
			if p, err = x.Check(t.Context(), ""); err != nil || p.SHA256 != step.sum {
				t.Errorf("%+v, %v", p, err)
			}
		}
		files, err := os.ReadDir(dir)
		want := 3
		if linked {
			want = 4
		}
		if err != nil || len(files) != want {
			t.Errorf("left are %v, %v", files, err)
		}
		if linked {
			wantFile(t, at, a) // what the link led to is as it was
		}
	}
}

// TestBinariesRefused: what is not what was announced, does not run here, is not tidal
// or cannot run this node is not kept.
func TestBinariesRefused(t *testing.T) {
	dir := t.TempDir()
	a := script("1.0", 0)
	x := &binaries{path: filepath.Join(dir, "tidal"), args: []string{"tidal", "serve"}, environ: os.Environ()}
	if err := os.WriteFile(x.path, []byte(a), 0o755); err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]string{
		"no program":                 "it does not run on this machine (" + runtime.GOOS + "/" + runtime.GOARCH,
		"#!/bin/sh\necho 1.2.3\n":    "is not tidal",
		script("1.1", 3):             "serve says no",
		"\x7fELF of another machine": "it does not run on this machine",
	} {
		if _, err := x.Stage(t.Context(), sumOf(content), strings.NewReader(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", content, err, want)
		}
		if err := x.Prepare(sumOf(content), sumOf(content)); api.CodeOf(err) != api.CodeNotFound {
			t.Errorf("%.20q was kept: %v", content, err)
		}
	}
	// Another node of the same path may be sent it at the same time: what is wrong with it
	// is found before it has a name that they share.
	says := "#!/bin/sh\necho \"$0\"\n"
	if _, err := x.Stage(t.Context(), sumOf(says), strings.NewReader(says)); err == nil || !strings.Contains(err.Error(), "sending-") {
		t.Errorf("one that says its name: %v", err)
	}
	if _, err := x.Stage(t.Context(), sumOf(a), strings.NewReader(a+" ")); api.CodeOf(err) != api.CodeBadRequest {
		t.Errorf("another than was announced: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("left are %v, %v", files, err)
	}
	x.path = filepath.Join(dir, "nowhere", "tidal")
	if _, err := x.Stage(t.Context(), sumOf(a), strings.NewReader(a)); api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "--upgrade-to") {
		t.Errorf("into a folder that takes none: %v", err)
	}
}

// TestBinariesArePrepared: once a binary is prepared, nothing that happens to the staged one
// keeps it from its place; and what is not what was prepared is not put there.
func TestBinariesArePrepared(t *testing.T) {
	a, b, c := script("1.0", 0), script("1.1", 0), script("1.2", 0)
	x := &binaries{path: filepath.Join(t.TempDir(), "tidal"), args: []string{"tidal", "serve"}, environ: os.Environ()}
	if err := os.WriteFile(x.path, []byte(a), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{b, c} { // the second has the first one go
		if _, err := x.Stage(t.Context(), sumOf(content), strings.NewReader(content)); err != nil {
			t.Fatal(err)
		}
		if err := x.Prepare(sumOf(content), sumOf(content)); err != nil {
			t.Fatal(err)
		}
	}
	wantFile(t, x.path, a)
	if err := x.Install(sumOf(b)); err == nil || !strings.Contains(err.Error(), "changed since") {
		t.Errorf("one that is not the prepared one: %v", err)
	}
	wantFile(t, x.path, a)
	if err := os.Remove(x.staged(sumOf(c))); err != nil {
		t.Fatal(err)
	}
	if err := x.Install(sumOf(c)); err != nil {
		t.Fatal(err)
	}
	wantFile(t, x.path, c)
	wantFile(t, x.previous(), a)
}

// TestBinaryIsTheCheckedOne: the binary at the path is not run if it is another one than was
// checked there.
func TestBinaryIsTheCheckedOne(t *testing.T) {
	x := &binaries{path: filepath.Join(t.TempDir(), "tidal"), args: []string{"tidal", "serve"}, environ: os.Environ()}
	if err := os.WriteFile(x.path, []byte(script("1.0", 0)), 0o755); err != nil {
		t.Fatal(err)
	}
	p, err := x.Check(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if err = x.Prepare("", p.SHA256); err != nil {
		t.Errorf("the one that was checked: %v", err)
	}
	next := x.path + ".new"
	if err = errors.Join(os.WriteFile(next, []byte(script("1.1", 3)), 0o755), os.Rename(next, x.path)); err != nil {
		t.Fatal(err)
	}
	if err = x.Prepare("", p.SHA256); err == nil || !strings.Contains(err.Error(), "since it was checked") {
		t.Errorf("another: %v", err)
	}
}

// TestBinariesAreAskedOnce: what a binary is, it is asked once, wherever it stands.
func TestBinariesAreAskedOnce(t *testing.T) {
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	a := strings.Replace(script("1.0", 0), "version) ", "version) echo >>"+asked+"; ", 1)
	x := &binaries{path: filepath.Join(dir, "tidal"), args: []string{"tidal", "serve"}, environ: os.Environ()}
	for _, path := range []string{x.path, x.previous()} {
		if err := os.WriteFile(path, []byte(a), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 {
		list, err := x.List(t.Context())
		if err != nil || list.Installed == nil || list.Installed.Version != "1.0" || list.Previous == nil || list.Previous.Version != "1.0" {
			t.Fatalf("%+v, %v", list, err)
		}
	}
	wantFile(t, asked, "\n")
}

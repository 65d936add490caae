//go:build unix

package pki_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tidal/pki"
)

// With no umask at all keys are their owner's alone, and so are directories.
func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "certs")
	old := syscall.Umask(0)
	mustGen(t, dir, abc(), start())
	syscall.Umask(old)
	keys := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		want := fs.FileMode(0o644)
		switch {
		case e.IsDir():
			want = 0o700
		case strings.HasSuffix(path, ".key"):
			want = 0o600
			keys++
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("%s has mode %04o, want %04o", path, got, want)
		}
		return nil
	})
	if err != nil || keys != 6 {
		t.Errorf("%d keys, want 6; %v", keys, err)
	}
}

func TestKeyModes(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	f := pki.NodeFiles(dir, "a")
	for mode, ok := range map[fs.FileMode]bool{0o600: true, 0o400: true, 0o440: true, 0o640: true, 0o644: false, 0o604: false, 0o666: false, 0o601: false} {
		if err := os.Chmod(f.Key, mode); err != nil {
			t.Fatal(err)
		}
		_, err := pki.LoadServer(f, "prod", "a", start())
		if ok && err != nil {
			t.Errorf("mode %04o: %v", mode, err)
		}
		if !ok {
			wantError(t, err, pki.KindFiles, f.Key, "others than its owner", "chmod 600")
		}
	}
	if os.Geteuid() != 0 {
		t.Log("not root: that another user's key for a group is refused was not tried")
		return
	}
	if err := os.Chown(f.Key, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(f.Key, 0o640); err != nil {
		t.Fatal(err)
	}
	_, err := pki.LoadServer(f, "prod", "a", start())
	wantError(t, err, pki.KindFiles, "a group can use")
}

func TestGenIsLocked(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	_, err = pki.Gen(t.Context(), dir, abc(), start())
	wantError(t, err, pki.KindLocked, "another tidal command")
}

package proctest_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// onTmpfs gives a node that has not started a data directory of so many bytes.
func (c *cluster) onTmpfs(t *testing.T, n *node, bytes int) string {
	t.Helper()
	dir := filepath.Join(c.dir, n.id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		if !errors.Is(err, syscall.EPERM) {
			t.Fatal(err)
		}
		t.Skip("needs root, to give a node a file system of its own")
	}
	t.Cleanup(func() {
		n.kill()
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// leave makes a file so large that only so many bytes are left in its folder.
func leave(t *testing.T, file string, left int64) {
	t.Helper()
	if err := fill(file, left); err != nil {
		t.Fatal(err)
	}
}

// TestFullDisk fills the file system of a node: with rows, until it takes no more,
// and then from outside, nearly to the last byte. Reads go on; the node starts on
// the full disk too; and with space back it takes rows again by itself.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	const size = 256 << 20 // of which 64 MiB are the reserve, and 16 MiB the ballast
	c := newCluster(t, clusterOptions{nodes: 1, plain: true})
	n := c.nodes[0]
	dir := c.onTmpfs(t, n, size)
	filler, ballast := filepath.Join(dir, "filler"), filepath.Join(dir, "BALLAST")
	c.startAll(t)
	c.createTables(t, 1)
	leave(t, filler, 120<<20)
	put := func(key string) int {
		return c.must(t, 0, http.MethodPut, "/v1/tables/t0/rows/"+key, strings.Repeat("v", 1<<20), nil).status
	}
	taken := 0
	eventually(t, 20*time.Second, func() error {
		switch status := put(fmt.Sprint("k", taken)); status {
		case http.StatusInsufficientStorage:
			return nil
		case http.StatusOK, http.StatusCreated, http.StatusNoContent:
			taken++
			return errors.New("rows are taken")
		case http.StatusTooManyRequests:
			return errors.New("the disk is slow")
		default:
			t.Fatalf("row %d: %d", taken, status)
			return nil
		}
	})
	t.Logf("%d MiB of rows were taken", taken)
	if taken == 0 {
		t.Error("no row was taken, though there was space")
	}
	check := func(what string) {
		t.Helper()
		for _, key := range []string{"k0", fmt.Sprint("k", taken-1)} {
			if a := c.must(t, 0, http.MethodGet, "/v1/tables/t0/rows/"+key, "", nil); a.status != http.StatusOK || len(a.body) != 1<<20 {
				t.Errorf("%s: %s: %d, %d bytes", what, key, a.status, len(a.body))
			}
		}
		if status := put("x"); status != http.StatusInsufficientStorage {
			t.Errorf("%s: a write: %d", what, status)
		}
		eventually(t, 10*time.Second, func() error {
			if a := c.must(t, 0, http.MethodGet, "/health", "", nil); a.status != http.StatusServiceUnavailable || !strings.Contains(string(a.body), `"disk-full"`) {
				return fmt.Errorf("%s: /health: %s", what, a)
			}
			return nil
		})
	}
	check("full of rows")
	leave(t, filler+"2", 4<<20)
	eventually(t, 5*time.Second, func() error {
		if _, err := os.Stat(ballast); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("the ballast is still there: %w", err)
		}
		return nil
	})
	check("full to the brim")
	n.kill()
	c.clients[0].CloseIdleConnections() // which the client may not have seen end yet
	n.start(t, "")
	eventually(t, 20*time.Second, func() error {
		a, err := c.call(0, http.MethodGet, "/v1/tables/t0/rows/k0", "", nil)
		if err == nil && a.status != http.StatusOK {
			err = errors.New(a.String())
		}
		return err
	})
	leave(t, filler+"3", 4<<20) // a start tidies up
	eventually(t, 5*time.Second, func() error {
		if status := put("x"); status != http.StatusInsufficientStorage {
			return fmt.Errorf("a write: %d", status)
		}
		return nil
	})
	check("started on a full disk")
	pid := n.cmd.Process.Pid
	if err := errors.Join(os.Remove(filler), os.Remove(filler+"2"), os.Remove(filler+"3")); err != nil {
		t.Fatal(err)
	}
	c.healthy(t, 10*time.Second)
	if status := put("x"); status/100 != 2 || n.cmd.Process.Pid != pid || !n.running() {
		t.Errorf("with space back: a write: %d", status)
	}
	eventually(t, 5*time.Second, func() error { _, err := os.Stat(ballast); return err })
}

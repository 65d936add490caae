package proctest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestFreezeDisk freezes the file system under the node that owns most: its loop hangs
// in a sync, its heartbeats go on, and the others serve what it owned. It runs with
// FAILOVER_RUNS, and needs root for a file system of its own.
func TestFreezeDisk(t *testing.T) {
	runs(t, "FAILOVER_RUNS", 0)
	needRoot(t)
	need(t, "mkfs.ext4", "fsfreeze", "mount", "umount")
	c, tables := newFailover(t, func(c *cluster) {
		for _, n := range c.nodes {
			c.mountDisk(t, n)
		}
	})
	victim := c.ownsMost(t, tables)
	disk := filepath.Join(c.dir, c.nodes[victim].id)
	standstill{victim: victim, long: 8 * time.Second, limit: freezeGap, set: func(stop bool) error {
		if stop {
			return exec.Command("fsfreeze", "--freeze", disk).Run()
		}
		return exec.Command("fsfreeze", "--unfreeze", disk).Run()
	}}.run(t, c, tables)
}

// mountDisk gives a node's data directory a file system of its own.
func (c *cluster) mountDisk(t *testing.T, n *node) {
	t.Helper()
	dir, image := filepath.Join(c.dir, n.id), filepath.Join(c.dir, n.id+".img")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"truncate", "-s", "256M", image},
		{"mkfs.ext4", "-q", "-F", image},
		{"mount", "-o", "loop", image, dir},
	} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("no file system of its own: %v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		_ = exec.Command("fsfreeze", "--unfreeze", dir).Run() // it fails if it is not frozen
		n.kill()
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount %s: %v: %s", dir, err, out)
		}
	})
}

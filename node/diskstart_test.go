package node_test

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tidal/node"
)

// TestDiskFailsAtStart fails one sync while a node starts, before anything watches its
// storage: it ends and says which file it was, though the database holds whoever uses it.
func TestDiskFailsAtStart(t *testing.T) {
	for suffix, of := range map[string]string{"/db": "its folder", "/MANIFEST-000001": "its list of files", ".log": "its log"} {
		t.Run(of, func(t *testing.T) {
			var failed atomic.Bool
			c := newTrio(t, "a")
			c.disk = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
				switch op.Kind {
				case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
					if strings.HasSuffix(op.Path, suffix) && failed.CompareAndSwap(false, true) {
						return syscall.EIO
					}
				default:
				}
				return nil
			}))
			c.start("a")
			err := c.ends("a")
			disk, ok := errors.AsType[*node.DiskError](err)
			if !ok || !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), suffix) || !strings.Contains(err.Error(), "sync ") {
				t.Fatalf("the node ended with %v", err)
			}
			if strings.Contains(err.Error(), "damaged") || !strings.Contains(disk.Hint, "kernel's log") {
				t.Errorf("the disk failed, and what is said is: %v; hint: %s", err, disk.Hint)
			}
		})
	}
}

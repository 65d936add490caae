package store_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tidal/node/internal/store"
)

// failsAt opens the database on fs, whose operation with the number at fails, once. It
// returns which one that was, nil if there are fewer, and what is known of it first: what
// the owner is told, or else what Open returns.
func failsAt(t *testing.T, fs vfs.FS, at int64) (failed *errorfs.Op, known error) {
	t.Helper()
	var n atomic.Int64
	var op atomic.Pointer[errorfs.Op]
	told, returned := make(chan error, 8), make(chan error, 1)
	go func() { // may never end: see fatal_test.go
		_, err := store.Open("db", store.Options{
			Fatal: func(err error) { told <- err },
			FS: errorfs.Wrap(fs, errorfs.InjectorFunc(func(o errorfs.Op) error {
				if o.Kind == errorfs.OpFileClose || n.Add(1)-1 != at {
					return nil
				}
				op.Store(&o)
				return syscall.EIO
			})),
		})
		returned <- err
	}()
	select {
	case known = <-told:
	case known = <-returned:
		select {
		case known = <-told:
		default:
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("operation %d, %+v, failed: the database hangs, and nobody was told", at, op.Load())
	}
	return op.Load(), known
}

// TestOpenOnAFailingDisk fails each operation of the disk in turn while a database is
// opened that is new, or has a log to be read. The disk is to blame, and not what is on
// it; a sync or a read that failed is told as such, with its file.
func TestOpenOnAFailingDisk(t *testing.T) {
	for _, state := range []string{"new", "log"} {
		syncs, reads := 0, 0
		for at := int64(0); ; at++ {
			fs := vfs.NewMem()
			if state == "log" {
				db := open(t, fs)
				set(t, db, "k", strings.Repeat("v", 1000))
				check(t, db.Close())
			}
			op, known := failsAt(t, fs, at)
			if op == nil {
				break
			}
			what := fmt.Sprintf("%s: operation %d (kind %d) on %s failed: %v", state, at, op.Kind, op.Path, known)
			if errors.Is(known, store.ErrDamaged) {
				t.Errorf("%s: that is no damage", what)
			}
			var want string
			switch op.Kind {
			case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
				want = "sync"
				syncs++
			case errorfs.OpFileRead, errorfs.OpFileReadAt:
				want = "read"
				reads++
			default:
				continue
			}
			if trouble, ok := errors.AsType[*store.DiskError](known); !ok || trouble.Op != want || trouble.Path != op.Path {
				t.Errorf("%s: want a %s that failed, and its file", what, want)
			}
		}
		if syncs < 8 || state == "log" && reads < 5 {
			t.Errorf("%s: %d syncs and %d reads failed: the test sees too little", state, syncs, reads)
		}
	}
}

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
// returns which one that was, nil if opening takes fewer, and what is known of it first:
// what the owner is told, or else what Open returns.
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
		n.Add(1 << 40) // what the database does now is not opening it
		returned <- err
	}()
	late := time.After(20 * time.Second)
	select {
	case known = <-told:
		return op.Load(), known
	case known = <-returned:
	case <-late:
		t.Fatalf("operation %d, %+v, failed: the database hangs, and nobody was told", at, op.Load())
	}
	if failed = op.Load(); failed == nil || failsAs(failed) == "" {
		return failed, known
	}
	select {
	case known = <-told:
	case <-late:
		t.Fatalf("operation %d, %+v, failed, and nobody was told", at, failed)
	}
	return failed, known
}

// failsAs is how an operation that fails must be told, "" if it need not be.
func failsAs(op *errorfs.Op) string {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		return "sync"
	case errorfs.OpFileRead, errorfs.OpFileReadAt:
		return "read"
	default:
		return ""
	}
}

// TestOpenOnAFailingDisk fails each operation of the disk in turn while a database is
// opened that is new, or has a log to be read. The disk is to blame, and not what is on
// it; a sync or a read that failed is told as such, with its file.
func TestOpenOnAFailingDisk(t *testing.T) {
	for _, state := range []string{"new", "log"} {
		count := map[string]int{}
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
			want := failsAs(op)
			count[want]++
			if trouble, ok := errors.AsType[*store.DiskError](known); want != "" && (!ok || trouble.Op != want || trouble.Path != op.Path) {
				t.Errorf("%s: want a %s that failed, and its file", what, want)
			}
		}
		if count["sync"] < 4 || state == "log" && count["read"] < 5 {
			t.Errorf("%s: %v failed: the test sees too little", state, count)
		}
	}
}

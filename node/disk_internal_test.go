package node

import (
	"errors"
	"strings"
	"syscall"
	"testing"

	"tidal/node/internal/store"
)

// TestCarry: what nothing else of the node watches, its start and its end, ends with the
// disk's error when the disk fails, whether that hangs, fails or goes well.
func TestCarry(t *testing.T) {
	told := &store.DiskError{Op: "sync", Path: "f", Offset: -1, Err: syscall.EIO}
	own := errors.New("its own")
	never := make(chan struct{})
	t.Cleanup(func() { close(never) })
	hangs := func() error { <-never; return nil }
	for i, c := range []struct {
		told   error
		f      func() error
		failed bool
		want   string // in the error; "": there is none
	}{
		{nil, func() error { return nil }, false, ""},
		{nil, func() error { return own }, false, own.Error()},
		{told, hangs, true, told.Error()},
		{told, func() error { return nil }, true, told.Error()},
		{told, func() error { return own }, true, told.Error()},
	} {
		n := &node{fatal: make(chan error, 1)}
		failed, err := n.carry(func() error {
			if c.told != nil {
				n.die(c.told)
			}
			return c.f()
		})
		_, disk := errors.AsType[*DiskError](err)
		if failed != c.failed || disk != c.failed || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d: failed %t, %v", i, failed, err)
		}
	}
}

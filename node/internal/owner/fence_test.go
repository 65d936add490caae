package owner_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/api"
	"tidal/node/internal/owner"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/store"
)

// TestFence: a replica that is fenced answers nothing, gives the table away and is given
// none; one that takes its place is not.
func TestFence(t *testing.T) {
	fenced, alone := "", true // no other may take the table
	c := newTrioWith(t, owner.Options{Sound: func(_ api.TableID, node string) bool { return node != fenced && !alone }})
	a := c.open("a")
	_, err := a.tables.Execute(t.Context(), table, request(api.OpPut, "k", "v"))
	c.check(err)
	if err = a.tables.Fence(t.Context(), table, 99); !errors.Is(err, rafthost.ErrNoGroup) {
		t.Errorf("of another replica: %v", err)
	}
	if len(a.tables.Fenced()) != 0 {
		t.Error("a replica is fenced")
	}
	fenced = "a"
	c.check(a.tables.Fence(t.Context(), table, 11))
	if !a.fencedAfterACrash() {
		t.Error("a crash takes the fence away")
	}
	c.check(a.tables.Fence(t.Context(), table, 11)) // again
	if f := a.tables.Fenced(); len(f) != 1 || f[0].Name != "orders" {
		t.Errorf("fenced: %+v", f)
	}
	for _, op := range []api.Op{api.OpGet, api.OpPut} {
		_, err = a.tables.Execute(t.Context(), table, request(op, "k", "v"))
		if e := c.code("a request that nobody can serve", err, api.CodeNoOwner); !strings.Contains(e.Message, "on node a differs from the others") {
			t.Errorf("it is said of it: %s", e.Message)
		}
	}
	alone = false
	owns := func() *node {
		for _, n := range c.nodes {
			if n.owns() {
				return n
			}
		}
		return nil
	}
	c.tidying()
	c.await("another owns the table", func() bool { n := owns(); return n != nil && n != a })
	local := request(api.OpGet, "k", "")
	local.Local = true
	_, err = a.tables.Execute(t.Context(), table, local)
	c.code("a local read", err, api.CodeNotReady)
	_, err = c.nodes["b"].tables.Execute(t.Context(), table, local)
	c.check(err)
	if err = owns().tables.HandOver(t.Context(), table, "a"); !errors.Is(err, owner.ErrBehind) {
		t.Errorf("it is handed over: %v", err)
	}

	c.check(a.tables.Drop(t.Context(), table))
	if len(a.tables.Fenced()) != 0 {
		t.Error("a replica that is gone is fenced")
	}
	moved := info(table)
	moved.Replicas[0].ID = 14
	c.check(a.tables.Open(t.Context(), moved))
	if len(a.tables.Fenced()) != 0 {
		t.Error("the replica that took its place is fenced")
	}
}

// fencedAfterACrash reports whether a power cut now would leave the fence on the disk.
func (n *node) fencedAfterACrash() bool {
	n.trio.Helper()
	db, err := store.Open("db", store.Options{FS: n.fs.CrashClone(vfs.CrashCloneCfg{})})
	n.trio.check(err)
	_, found, err := db.Get(store.UnsoundKey(uint64(table)))
	n.trio.check(errors.Join(err, db.Close()))
	return found
}

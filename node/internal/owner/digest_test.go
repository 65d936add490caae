package owner_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/owner"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/store"
	tables "tidal/node/internal/table"
)

// digests asks all replicas at once and has the owner put marks into the order until
// all have answered.
func (c *trio) digests(ctx context.Context) (index map[string]uint64, hash map[string][32]byte) {
	c.Helper()
	index, hash = map[string]uint64{}, map[string][32]byte{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for id, n := range c.nodes {
		wg.Go(func() {
			i, h, err := n.tables.Digest(ctx, table, owner.DigestRate)
			mu.Lock()
			defer mu.Unlock()
			if index[id], hash[id] = i, h; err != nil {
				c.Errorf("%s: %v", id, err)
			}
		})
	}
	c.await("all wait for a mark", func() bool {
		for _, n := range c.nodes {
			if n.tables.Looking(table) == 0 {
				return false
			}
		}
		return true
	})
	c.check(c.nodes["a"].tables.Mark(ctx, table))
	wg.Wait()
	return index, hash
}

// TestDigest compares replicas while they are written to: at one mark they are the
// same, and one that was changed behind raft's back is not.
func TestDigest(t *testing.T) {
	c := newTrio(t, 0)
	a := c.open("a")
	// Raft's own entry is no mark to a replica that has not applied it yet.
	for range 2 {
		if index, _ := c.digests(t.Context()); index["b"] != index["a"] || index["c"] != index["a"] {
			t.Errorf("marks of a table that is new: %v", index)
		}
	}
	_, err := a.tables.Execute(t.Context(), table, request(api.OpPut, "first", "x"))
	c.check(err)
	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for w := range 8 {
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				r := request(api.OpPut, fmt.Sprintf("k%d", w), fmt.Sprint(i))
				r.Born = api.Position{Table: table, Index: 1 << 40}
				_, _ = a.tables.Execute(ctx, table, r) // it ends with an error
			}
		})
	}
	for range 20 {
		index, hash := c.digests(t.Context())
		for _, id := range []string{"b", "c"} {
			if index[id] != index["a"] || hash[id] != hash["a"] {
				t.Errorf("%s has %x at %d, a has %x at %d", id, hash[id], index[id], hash["a"], index["a"])
			}
		}
	}
	cancel()
	writers.Wait()
	b := c.nodes["b"].db.NewBatch()
	b.Set(append(store.GroupKey(uint64(table), tables.SubRow), "first"...), []byte{1, 1, 'x'})
	c.check(b.Commit(false))
	if _, hash := c.digests(t.Context()); hash["b"] == hash["a"] || hash["c"] != hash["a"] {
		t.Errorf("after a change on b alone: %x", hash)
	}
}

// TestDigestEnds: who waits for a mark that does not come leaves nothing behind.
func TestDigestEnds(t *testing.T) {
	c := newTrio(t, 0)
	a := c.open("a")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Millisecond, errors.New("over"))
	defer cancel()
	if _, _, err := a.tables.Digest(ctx, table, owner.DigestRate); err == nil || err.Error() != "over" {
		t.Errorf("no mark came, and the answer is %v", err)
	}
	if n := a.tables.Looking(table); n != 0 {
		t.Errorf("%d wait still", n)
	}
	if _, _, err := a.tables.Digest(t.Context(), 99, owner.DigestRate); !errors.Is(err, rafthost.ErrNoGroup) {
		t.Errorf("of a table that is not here: %v", err)
	}
	if err := c.nodes["b"].tables.Mark(t.Context(), table); !errors.Is(err, rafthost.ErrNotLeader) {
		t.Errorf("a mark by a node that does not own the table: %v", err)
	}
}

// TestPacerEnds: a read of a slow disk, which is never ahead of the rate, ends too.
func TestPacerEnds(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	pace := owner.Pacer(ctx, 1<<30)
	if err := pace(1); err != nil {
		t.Error(err)
	}
	over := errors.New("over")
	cancel(over)
	if err := pace(1); !errors.Is(err, over) {
		t.Errorf("after the end: %v", err)
	}
}

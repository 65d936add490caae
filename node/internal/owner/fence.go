package owner

import (
	"context"
	"fmt"
	"time"

	"tidal/node/api"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/store"
)

// evadeTime is how long the hand-over of a table may take whose replica here is fenced.
const evadeTime = 2 * time.Second

// Fence keeps a replica of a table here from serving anything, because it differs from
// most others: it answers no read, gives its state to no other replica, and hands the
// table over if it leads. Its log is sound, so it goes on following. That lasts until the replica is removed or a snapshot
// takes the place of its state, and is on the disk before Fence returns. Errors:
// rafthost.ErrNoGroup if the replica is not here, and those of the disk.
func (t *Tables) Fence(ctx context.Context, id api.TableID, replica uint64) error {
	r := t.find(id)
	if r == nil || r.id != replica {
		return rafthost.ErrNoGroup
	}
	b := t.o.DB.NewBatch()
	rafthost.MarkUnsound(b, uint64(id), replica)
	if err := b.Commit(true); err != nil {
		return fmt.Errorf("fence a replica of table %s: %w", r.info.Name, err)
	}
	if !r.fenced.Swap(true) {
		t.fenced.Add(1)
		if t.o.OnFence != nil {
			t.o.OnFence(r.info.Name)
		}
	}
	t.evade(ctx)
	return nil
}

// readFence reports whether the disk says that the replica is fenced.
func (t *Tables) readFence(r *replica) error {
	fenced, err := rafthost.Unsound(t.o.DB, uint64(r.info.ID), r.id)
	if err != nil {
		return fmt.Errorf("table %s: %w", r.info.Name, err)
	}
	if fenced {
		r.fenced.Store(true)
		t.fenced.Add(1)
	}
	return nil
}

// unfence says that a replica is gone, or has another state now.
func (t *Tables) unfence(r *replica) error {
	if !r.fenced.Swap(false) {
		return nil
	}
	t.fenced.Add(-1)
	b := t.o.DB.NewBatch()
	b.Delete(store.UnsoundKey(uint64(r.info.ID)))
	return b.Commit(false) // what took its place stands before it in the one sequence
}

// Fenced returns the tables whose replicas here are fenced, in the order of their ids.
func (t *Tables) Fenced() []Local {
	if t.fenced.Load() == 0 {
		return nil
	}
	var out []Local
	for _, r := range t.ordered() {
		if r.fenced.Load() {
			out = append(out, r.local())
		}
	}
	return out
}

// evade hands over what this node leads with replicas that are fenced.
func (t *Tables) evade(ctx context.Context) {
	if t.fenced.Load() == 0 {
		return
	}
	for _, r := range t.ordered() {
		if !r.fenced.Load() || !r.state.Load().Leads {
			continue
		}
		for _, node := range r.shape.Load().nodes {
			limited, cancel := context.WithTimeout(ctx, evadeTime)
			err := t.HandOver(limited, r.info.ID, node)
			cancel()
			if err == nil {
				break
			}
		}
	}
}

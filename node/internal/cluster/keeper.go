package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/wire"
)

// Run is the node's membership from when it can be reached until ctx ends: it
// forms or rejoins the cluster, gets and keeps the lease, and keeps tables where
// they should be.
func (c *Cluster) Run(ctx context.Context) error {
	if err := c.form(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	if err := c.Open(ctx); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return c.herald(ctx) })
	g.Go(func() error { return c.keep(ctx) })
	g.Go(func() error { return c.watchPeers(ctx) })
	g.Go(func() error { return c.renewLease(ctx) })
	g.Go(func() error { return c.expireLeases(ctx) })
	g.Go(func() error { return c.move(ctx) })
	g.Go(func() error { return c.keepClaim(ctx) })
	g.Go(func() error { return c.catchUp(ctx) })
	g.Go(func() error { return c.reshape(ctx) })
	g.Go(func() error { return c.watch(ctx) })
	g.Go(func() error { return c.gather(ctx) })
	return g.Wait()
}

// Open opens the meta group and the tables that the disk knows of, if the node
// belongs to a cluster and they are not open yet. Peers see nothing of it.
func (c *Cluster) Open(ctx context.Context) error {
	if err := c.memory.load(c.o.DB); err != nil {
		return err
	}
	if !c.Formed() {
		return nil
	}
	select {
	case <-c.ready:
		return nil
	default:
	}
	if err := c.openMeta(ctx); err != nil {
		return err
	}
	c.tellLevel(ctx)
	if err := c.sweep(ctx, c.View()); err != nil {
		return err
	}
	return c.reconcile(ctx, c.View())
}

// sweep removes replicas that do not belong here any more, which a crash left
// behind. The record of a table is on the disk before its replica is, so one
// without a record, or under another id, is no newcomer.
func (c *Cluster) sweep(ctx context.Context, v *meta.View) error {
	groups, err := c.o.DB.Groups()
	if err != nil {
		return err
	}
	for _, g := range groups {
		id := api.TableID(g)
		if id == api.MetaGroup {
			continue
		}
		if own, holds := ownReplicaOf(v, id, c.o.Node); holds {
			stored, err := c.o.Host.Stored(ctx, g)
			if err != nil {
				return fmt.Errorf("look for the replica of table %s: %w", id, err)
			}
			if stored == own {
				continue
			}
		}
		if err := c.o.Host.Remove(ctx, g); err != nil {
			return fmt.Errorf("remove what is left of table %s: %w", id, err)
		}
	}
	return nil
}

// keep holds tables, peers and readiness in step with the meta group's state.
func (c *Cluster) keep(ctx context.Context) error {
	for {
		change, rest := c.changed.wait(), time.Second
		if err := c.reconcile(ctx, c.View()); err != nil {
			return err
		}
		c.tellLevel(ctx)
		c.updateMetaNodes()
		c.updatePeers(time.Now())
		level := c.updateLevel()
		if c.campaign() || !level {
			change = nil // look again soon, however often things change meanwhile
			rest = 50 * time.Millisecond
		}
		if c.sleep(ctx, rest, change) {
			return nil
		}
	}
}

// ownReplicaOf returns the raft id of a node's replica of a table, if the table is
// there and the node is to hold one.
func ownReplicaOf(v *meta.View, id api.TableID, node string) (uint64, bool) {
	t, exists := v.Table(id)
	if !exists {
		return 0, false
	}
	r, holds := t.Replica(node)
	return r.ID, holds
}

// reconcile opens the replicas that belong here, drops those that do not any more,
// and tells the open ones where the others are. The meta group is the one source
// of what belongs where.
func (c *Cluster) reconcile(ctx context.Context, v *meta.View) error {
	if v == c.reconciled {
		return nil
	}
	before := c.reconciled
	if before == nil {
		before = &meta.View{}
	}
	err := eachChange(before, v, func(was, is *wire.Table) error {
		if is == nil {
			return c.close(ctx, was)
		}
		own, holds := is.Replica(c.o.Node)
		l, open := c.o.Tables.Local(is.ID)
		switch {
		case open && holds && own.ID == l.State.Replica:
			return c.o.Tables.Update(is)
		case open:
			// Another replica of it is not level because this one was.
			if err := c.close(ctx, is); err != nil {
				return err
			}
		}
		if !holds {
			return nil
		}
		if err := c.o.Tables.Open(ctx, is); err != nil {
			return err
		}
		c.expect(is.ID)
		return nil
	})
	if err != nil {
		return ignoreEnd(ctx, err)
	}
	c.reconciled = v
	return nil
}

// close drops the replica of a table that does not belong here any more.
func (c *Cluster) close(ctx context.Context, t *wire.Table) error {
	c.forget(t.ID)
	if _, open := c.o.Tables.Local(t.ID); !open {
		return nil
	}
	if err := c.o.Tables.Drop(ctx, t.ID); err != nil {
		return err
	}
	c.o.Log.InfoContext(ctx, "replica dropped", "table", t.Name, "table_id", t.ID.String())
	return nil
}

// ignoreEnd drops an error that comes of the node's own end, or of a host that has
// too much under way: keep looks again.
func ignoreEnd(ctx context.Context, err error) error {
	if ctx.Err() != nil || errors.Is(err, rafthost.ErrBusy) {
		return nil //nolint:nilerr // see above
	}
	return fmt.Errorf("keep the tables: %w", err)
}

// campaign stands for election in new tables that should be owned here, so that
// they need not wait for a timeout, and reports whether there are any.
func (c *Cluster) campaign() bool {
	var places map[api.TableID]string
	found := false
	for _, id := range c.unlevel() {
		l, open := c.o.Tables.Local(id)
		if !open || l.State.Term != 0 || l.State.Lead != 0 {
			continue
		}
		if places == nil {
			places = c.places()
		}
		if places[l.ID] == c.o.Node {
			c.o.Host.Campaign(uint64(l.ID))
			found = true
		}
	}
	return found
}

// move hands owned tables to their places whenever leases or owners change.
func (c *Cluster) move(ctx context.Context) error {
	for {
		change := c.changed.wait()
		if c.moveOnce(ctx) {
			change = nil // some could not go: try again after a rest
		}
		rest := time.Second
		if c.drain.Load() {
			rest = 20 * time.Millisecond
		}
		if c.sleep(ctx, rest, change) {
			return nil
		}
	}
}

// moveOnce tries to hand over every owned table that should be elsewhere, and
// reports whether one stayed.
func (c *Cluster) moveOnce(ctx context.Context) bool {
	owned := c.directory.owns()
	stays := c.staying(owned, time.Now())
	if len(owned) == 0 {
		return false
	}
	places, rests := c.places(), c.resting(time.Now())
	var g errgroup.Group
	g.SetLimit(64)
	tried := false
	for _, id := range owned {
		to := places[id]
		if to == "" || to == c.o.Node || !c.mayMove(id) || (rests[to] || stays[id]) && !c.drain.Load() {
			continue
		}
		tried = true
		g.Go(func() error {
			c.handOver(ctx, id, to)
			return nil
		})
	}
	_ = g.Wait() // the functions return no errors
	return tried
}

// resting returns the nodes that went without a word and are not back for long
// enough to be given tables: what made them go may do so again.
func (c *Cluster) resting(now time.Time) map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	since, out := map[api.Incarnation]time.Time{}, map[string]bool{}
	for _, l := range c.View().Leases {
		if !l.Crashed {
			continue
		}
		at, known := c.mu.returned[l.Incarnation]
		if !known {
			at = now
		}
		since[l.Incarnation] = at
		if now.Sub(at) < c.o.ReturnAfter {
			out[l.Incarnation.Node] = true
		}
	}
	c.mu.returned = since
	return out
}

// mayMove reports whether a table has rested long enough. A drain waits only for
// one that came back.
func (c *Cluster) mayMove(id api.TableID) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, moved := c.mu.moved[id]
	rest := moveRest
	if c.drain.Load() {
		rest = drainRest
	}
	return !moved || time.Since(at) >= rest
}

// handOver gives a table to a node, or, while this node drains, to any that
// takes it.
func (c *Cluster) handOver(ctx context.Context, id api.TableID, to string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := c.o.Tables.HandOver(ctx, id, to)
	if err != nil && c.drain.Load() {
		for _, other := range c.holders(id) {
			if other != to && err != nil {
				to = other
				err = c.o.Tables.HandOver(ctx, id, to)
			}
		}
	}
	if err != nil {
		c.o.Log.DebugContext(ctx, "table not handed over", "table_id", id.String(), "to", to, "error", err)
		return
	}
	c.noteMoved(id)
	c.o.Log.InfoContext(ctx, "table handed over", "table_id", id.String(), "to", to)
}

// noteMoved notes that this node has just handed a table over.
func (c *Cluster) noteMoved(id api.TableID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.moved[id] = time.Now()
}

// holders returns the other nodes with a live lease that hold a voter of a table.
func (c *Cluster) holders(id api.TableID) []string {
	v := c.View()
	t, ok := v.Table(id)
	if !ok {
		return nil
	}
	var out []string
	for _, r := range t.Replicas {
		if l, live := v.Lease(r.Node); live && !l.Draining && r.Voter && !r.Leaving && r.Node != c.o.Node && c.Sound(id, r.Node) {
			out = append(out, r.Node)
		}
	}
	return out
}

// owesTables reports whether this node owns a table that another could own.
func (c *Cluster) owesTables() bool {
	for _, id := range c.directory.owns() {
		if len(c.holders(id)) > 0 {
			return true
		}
	}
	return false
}

// leaveMeta hands the meta group's lead to a live, level voter.
func (c *Cluster) leaveMeta(ctx context.Context) {
	for ctx.Err() == nil && c.metaNow.Load().Leads {
		change := c.changed.wait()
		v, found := c.View(), false
		for _, m := range v.Members {
			if l, live := v.Lease(m.Node); !live || l.Draining || !m.Voter || m.Node == c.o.Node {
				continue
			}
			found = true
			to, err := c.o.Host.Level(ctx, uint64(api.MetaGroup), m.Node, 0)
			if err == nil && to != 0 && c.o.Host.Transfer(ctx, uint64(api.MetaGroup), to) == nil {
				c.o.Log.InfoContext(ctx, "meta group handed over", "to", m.Node)
				return
			}
		}
		if !found || c.sleep(ctx, 50*time.Millisecond, change) {
			return
		}
	}
}

// Leased reports whether this node has its lease.
func (c *Cluster) Leased() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leasedLocked()
}

// leasedLocked is Leased: an answer that was on its way grants no lease to a run that
// has withdrawn its own.
func (c *Cluster) leasedLocked() bool { return c.mu.lease.granted && !c.left.Load() }

// Owned returns how many tables this node owns.
func (c *Cluster) Owned() int { return len(c.directory.owns()) }

package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/ready"
	"tidal/node/internal/wire"
)

// Times about peers.
const (
	heardLately = 2 * time.Second // a node not heard for longer is not heard
	tryAddress  = 2 * time.Second // how long one of a peer's addresses is tried
)

// Up takes word of a connection with an incarnation: what an older one claimed
// is void.
func (c *Cluster) Up(remote wire.Hello) {
	c.memory.hello(&remote, time.Now())
	if c.directory.disk(remote.Incarnation.Node, remote.Disk) {
		c.pulses.replaced(remote.Incarnation.Node)
		c.o.Host.Replaced(remote.Incarnation.Node)
	}
	c.pulses.hello(remote.Incarnation)
	if c.directory.dead(remote.Incarnation.Node, remote.Incarnation) {
		c.changed.fire()
	}
}

// Down takes word that the connection to an incarnation ended, and whether nothing
// listened there when it was dialled again. Claims stand until a newer incarnation
// or another owner speaks.
func (c *Cluster) Down(node string, inc api.Incarnation, refused bool, why error) { //nolint:revive // the flag is what the transport found
	c.o.Log.Debug("peer connection ended", "peer", node, "peer_incarnation", inc.String(), "reason", why)
	c.o.Host.Unreachable(node)
	if refused {
		c.pulses.refuse(inc)
	}
	c.changed.fire()
}

// Heartbeat takes what another node says of itself.
func (c *Cluster) Heartbeat(from api.Incarnation, hb *wire.Heartbeat) {
	c.Passed(from, hb.Pass)
	changed := c.pulses.beat(from, hb)
	if c.directory.heard(from, hb) || changed {
		c.changed.fire()
	}
	c.unsound.heard(from.Node, hb.Fenced, len(hb.Fenced) == 0)
	c.burdens.heard(from.Node, burden{made: hb.SpentMade, keyed: hb.SpentKeyed}, !hb.SpentMade && !hb.SpentKeyed)
	if others, changed := c.room.heard(from.Node, hb.Crowded); changed {
		c.o.Host.CrowdedPeers(others)
		c.changed.fire()
	}
}

// Beat returns what to tell a peer. The first of a connection has the host say
// how far each group is that is led here.
func (c *Cluster) Beat(peer string, full bool) *wire.Heartbeat { //nolint:revive // the flag is the peer protocol's
	if full {
		c.o.Host.Welcome(peer)
	}
	hb := &wire.Heartbeat{
		Pass: c.o.Host.Synced(), Full: full, Hears: c.pulses.living(), Age: c.o.Host.Idle(), Crowded: c.room.own.Load(),
		SpentMade: c.o.Spent(false), SpentKeyed: c.o.Spent(true), Fenced: c.o.Unsound(),
	}
	c.directory.beat(peer, hb, func(id api.TableID) uint64 {
		l, _ := c.o.Tables.Local(id)
		return l.Commit
	})
	return hb
}

// hears returns the other nodes that this one has heard lately.
func (c *Cluster) hears() []string {
	var out []string
	for _, m := range c.View().Members {
		if m.Node != c.o.Node && c.heard(m.Node) {
			out = append(out, m.Node)
		}
	}
	return out
}

func (c *Cluster) heard(node string) bool {
	_, at := c.o.Net.Heard(node)
	return !at.IsZero() && time.Since(at) < heardLately
}

// Call answers what another node asks of this one's membership.
func (c *Cluster) Call(ctx context.Context, from wire.Hello, method wire.Method, payload []byte) ([]byte, error) {
	switch method { //nolint:exhaustive // the others are answered below, or by the router
	case wire.MethodFormProbe:
		return c.answerProbe(payload)
	case wire.MethodFormAccept:
		return nil, c.accept(from, payload)
	case wire.MethodFound:
		return c.answerFound(ctx, payload)
	case wire.MethodJoin:
		return c.answerJoin(ctx, from, payload)
	}
	if from.ClusterID.IsZero() || !c.Formed() {
		return nil, refusal("node %s or node %s does not belong to a cluster yet", c.o.Node, from.Incarnation.Node)
	}
	switch method { //nolint:exhaustive // the others are answered above, or by the router
	case wire.MethodPropose:
		return c.answerPropose(ctx, payload)
	case wire.MethodRenew:
		return c.answerRenew(ctx, from, payload)
	case wire.MethodProve:
		l, err := wire.DecodeLease(payload)
		if err != nil {
			return nil, err
		}
		return nil, c.dialProof(ctx, &l)
	case wire.MethodAwait:
		return nil, c.answerAwait(ctx, payload)
	case wire.MethodStatus:
		return c.answerLag(ctx, payload)
	case wire.MethodReleased:
		return nil, c.answerReleased(ctx, from.Incarnation.Node, payload)
	case wire.MethodWithdraw:
		return nil, c.letGo(ctx, from.Incarnation)
	case wire.MethodPositions:
		return c.answerPositions(), nil
	case wire.MethodRoster:
		return c.answerRoster(), nil
	case wire.MethodMetaRead:
		return c.answerMetaRead(ctx, payload)
	case wire.MethodHandOver:
		return c.answerHandOver(ctx, payload)
	}
	return nil, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("node %s does not know method %d", c.o.Node, method)}
}

func (c *Cluster) answerPropose(ctx context.Context, payload []byte) ([]byte, error) {
	cmd, err := wire.DecodeMetaCommand(payload)
	if err != nil {
		return nil, err
	}
	a, err := c.lead(ctx, &cmd)
	if err != nil {
		return nil, err
	}
	return wire.AppendMetaAnswer(nil, &a), nil
}

func (c *Cluster) answerRenew(ctx context.Context, from wire.Hello, payload []byte) ([]byte, error) {
	l, err := wire.DecodeLease(payload)
	if err != nil {
		return nil, err
	}
	if l.Incarnation != from.Incarnation || l.Disk != from.Disk {
		return nil, refusal("%s asked for the lease of %s", from.Incarnation, l.Incarnation)
	}
	r, err := c.grant(ctx, l)
	if err != nil {
		return nil, err
	}
	return wire.AppendRenewal(nil, r), nil
}

// attempt is which of a peer's addresses is being tried, and since when.
type attempt struct {
	n     int
	since time.Time
}

// updatePeers tells the transport where the other nodes are. A lease's address
// comes first; a node that does not answer there is looked for where the
// configuration or its membership say, in turn, so that a cluster whose nodes
// have all moved finds itself again.
func (c *Cluster) updatePeers(now time.Time) {
	v := c.View()
	addresses := map[string]string{}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members() {
		if m.Node == c.o.Node {
			continue
		}
		var known []string
		if l, ok := v.Lease(m.Node); ok {
			known = append(known, l.Address)
		}
		known = append(known, m.Address)
		if a := c.o.Members[m.Node]; a != "" {
			known = append(known, a)
		}
		t := c.mu.tried[m.Node]
		switch {
		case c.heard(m.Node):
			t.since = now
		case t.since.IsZero() || now.Sub(t.since) > tryAddress:
			if !t.since.IsZero() {
				t.n++
			}
			t.since = now
		}
		c.mu.tried[m.Node] = t
		addresses[m.Node] = known[t.n%len(known)]
	}
	c.o.Net.SetPeers(addresses)
}

// heardMeta takes the meta leader's word of how far it is.
func (c *Cluster) heardMeta(f ready.Frontier) {
	if c.o.NoFrontier {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.meta.Heard(f)
}

// updateLevel moves the latches of readiness, and reports whether all are set.
// It runs by itself: nobody needs to ask. It is for keep alone.
func (c *Cluster) updateLevel() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.leadsMeta() {
		c.mu.meta.Lead()
	}
	all := c.mu.meta.Applied(c.gauge.Applied.Load())
	for id := range c.mu.unlevel {
		l, open := c.o.Tables.Local(id)
		if !open {
			continue // keep opens it
		}
		latch := c.mu.level[id]
		word := c.frontierLocked(&l)
		latch.Heard(word)
		if l.State.Owns || c.o.UnsetFrontier && word == (ready.Frontier{}) {
			latch.Lead()
		}
		if latch.Applied(l.Applied) {
			delete(c.mu.unlevel, id)
		}
	}
	// What was applied of the meta group is in the view by now: that of a newcomer
	// may have tables that are not open yet.
	all = all && len(c.mu.unlevel) == 0 && c.reconciled == c.View()
	if all && c.mu.lease.granted && !c.mu.wasLevel {
		c.mu.wasLevel = true
		c.o.Log.Info("all replicas are level", "tables", len(c.mu.level), "since_last_applied", c.sinceApplied())
	}
	return all
}

// frontierLocked returns how far a table's owner is, by its newest word; nothing
// before the lease is there: what was said before may be old by then.
func (c *Cluster) frontierLocked(l *Replica) ready.Frontier {
	f := c.directory.claim(l.ID).frontier
	if !c.mu.lease.granted || c.o.NoFrontier || f.Index == 0 {
		return ready.Frontier{}
	}
	f.Index = max(f.Index, l.Frontier) // heartbeats of the group say it anew, claims only once
	return f
}

// sinceApplied returns how long ago a replica here last applied anything.
func (c *Cluster) sinceApplied() time.Duration {
	last := c.gauge.Moved.Load()
	for _, l := range c.o.Tables.All() {
		last = max(last, int64(l.Moved))
	}
	return c.o.Host.Clock() - time.Duration(last)
}

// expect notes a replica that was opened: it has to become level.
func (c *Cluster) expect(id api.TableID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.level[id] = &ready.Latch{}
	c.mu.unlevel[id] = true
}

// forget lets go of what is known of a table that is gone.
func (c *Cluster) forget(id api.TableID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.mu.level, id)
	delete(c.mu.unlevel, id)
	delete(c.mu.moved, id)
}

// unlevel returns the tables whose replicas here are not level yet.
func (c *Cluster) unlevel() []api.TableID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.mu.unlevel))
}

// Ready fills in what readiness depends on here.
func (c *Cluster) Ready(in *ready.Input) {
	v := c.View()
	in.Formed, in.Members = c.Formed(), len(v.Members)
	in.Heard = 1 + len(c.hears())
	c.mu.Lock()
	defer c.mu.Unlock()
	in.Leased = c.leasedLocked()
	in.Draining = c.claims.wanted(time.Now())
	in.Meta = ready.Replica{HasLeader: c.metaLeader() != "", Applied: c.gauge.Applied.Load(), Latch: c.mu.meta}
	in.Meta.Snapshot, in.Meta.Receives = c.o.Receiving(uint64(api.MetaGroup))
	if c.mu.wasLevel {
		// A replica that this node is given since, of a table that is made or moved, takes no
		// readiness away: else all nodes would be without it at once whenever a table is made.
		return
	}
	open := c.o.Tables.All()
	unheard := c.directory.unheard(v.Leases)
	delete(unheard, c.o.Node)
	in.Tables = unopened(v, c.o.Node, open)
	for _, l := range open {
		r := ready.Replica{Table: l.Name, Applied: l.Applied}
		r.HasLeader = l.State.Lead != 0 || !c.directory.claim(l.ID).by.IsZero() || mayLead(v, l.ID, unheard)
		if latch := c.mu.level[l.ID]; latch != nil {
			r.Latch = *latch
		}
		r.Snapshot, r.Receives = c.o.Receiving(uint64(l.ID))
		in.Tables = append(in.Tables, r)
	}
}

// mayLead reports whether one of some nodes holds a voter of a table.
func mayLead(v *meta.View, id api.TableID, nodes map[string]bool) bool {
	t, exists := v.Table(id)
	return exists && slices.ContainsFunc(t.Replicas, func(r wire.Replica) bool { return r.Voter && nodes[r.Node] })
}

// unopened returns the replicas that a node is to hold and has not opened yet.
func unopened(v *meta.View, node string, open []Replica) []ready.Replica {
	here := make(map[api.TableID]bool, len(open))
	for i := range open {
		here[open[i].ID] = true
	}
	var out []ready.Replica
	for _, t := range v.Tables {
		if _, holds := t.Replica(node); holds && !here[t.ID] {
			out = append(out, ready.Replica{Table: t.Name, HasLeader: true})
		}
	}
	return out
}

// Waiting returns what the node waits for before it belongs to a cluster or has
// its lease, for people; "" if it has both.
func (c *Cluster) Waiting() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.formation == nil:
		return c.mu.waiting
	case c.left.Load():
		return "this run has withdrawn its lease, and gets no other before it starts again"
	case !c.mu.lease.granted:
		why := []string{c.mu.lease.why}
		for _, node := range slices.Sorted(maps.Keys(c.mu.untold)) {
			why = append(why, c.mu.untold[node])
		}
		return strings.Join(why, "; ")
	}
	return ""
}

package cluster

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"tidal/node/api"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// sayWaiting is how often the log says what a cluster that forms waits for.
const sayWaiting = 10 * time.Second

// newID returns a random request id.
func newID() (id api.RequestID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
}

// form makes this node a member of a cluster. The first time, every listed member
// must answer, with an empty disk and the same list; the lowest id then proposes
// the cluster, and each member writes its acceptance to its disk, once, before
// it answers. With one missing, it waits and says who.
func (c *Cluster) form(ctx context.Context) error {
	for !c.Formed() {
		why, err := c.enter(ctx)
		if err != nil {
			return err
		}
		c.setWaiting(why)
		if c.sleep(ctx, 500*time.Millisecond, c.formed) {
			return nil
		}
	}
	return nil
}

// setWaiting notes what is missing. It is logged now and then: an error names
// another port each time, so the text alone does not tell what is news.
func (c *Cluster) setWaiting(why string) {
	c.mu.Lock()
	say := why != "" && time.Since(c.mu.said) > sayWaiting
	if say {
		c.mu.said = time.Now()
	}
	c.mu.waiting = why
	c.mu.Unlock()
	if say {
		c.o.Log.Warn("waiting to form the cluster", "reason", why)
	}
}

// tryForm asks all members, and proposes the cluster if they agree and this node
// has the lowest id. It returns what is missing.
func (c *Cluster) tryForm(ctx context.Context) (string, error) {
	f := &wire.Formation{Cluster: c.o.Name}
	_, _ = rand.Read(f.ClusterID[:]) // never fails
	ids := slices.Sorted(maps.Keys(c.o.Members))
	var missing []string
	for _, id := range ids {
		m := wire.Founder{Node: id, Address: c.o.Members[id]}
		if id == c.o.Node {
			m.Disk = c.o.Identity.Disk
		} else {
			remote, err := c.probe(ctx, id)
			if err != nil && !remote.ClusterID.IsZero() {
				return c.askToJoin(ctx, m.Address) // there is a cluster: it cannot be formed again
			}
			if err != nil {
				missing = append(missing, err.Error())
			}
			m.Disk = remote.Disk
		}
		f.Members = append(f.Members, m)
	}
	switch {
	case len(missing) > 0:
		return strings.Join(missing, "; "), nil
	case ids[0] != c.o.Node:
		return "node " + ids[0] + " has the lowest id and is to propose the cluster", nil
	}
	return "", c.take(f, 0)
}

// probe asks a listed member whether it could form this cluster now. With an
// error, it still returns the hello of whoever answered.
func (c *Cluster) probe(ctx context.Context, id string) (wire.Hello, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	url := c.o.Members[id]
	remote, _, err := c.o.Net.CallAddress(ctx, url, wire.MethodFormProbe, wire.AppendString(nil, c.list()))
	switch {
	case err != nil:
		return remote, fmt.Errorf("member %s at %s: %w", id, url, err)
	case remote.Incarnation.Node != id:
		return wire.Hello{}, fmt.Errorf("member %s at %s: node %s answers there", id, url, remote.Incarnation.Node)
	}
	return remote, nil
}

// list is the configured member list in one line, the same on all members that agree.
func (c *Cluster) list() string {
	var b strings.Builder
	for _, id := range slices.Sorted(maps.Keys(c.o.Members)) {
		fmt.Fprintf(&b, "%s=%s ", id, c.o.Members[id])
	}
	return b.String()
}

func (c *Cluster) answerProbe(payload []byte) ([]byte, error) {
	r := wire.NewReader(payload)
	list := r.String("member list", 1<<16)
	if err := r.Done(); err != nil {
		return nil, err
	}
	if f := c.formation(); f != nil {
		return nil, refusal("node %s belongs to cluster id %s already: a node with an empty disk must be admitted to it", c.o.Node, f.ClusterID)
	}
	if list != c.list() {
		return nil, refusal("node %s has another member list: %snot %s", c.o.Node, c.list(), list)
	}
	return nil, nil
}

// accept takes the lowest member's proposal, unless this node has taken another.
func (c *Cluster) accept(from wire.Hello, payload []byte) error {
	f, err := wire.DecodeFormation(payload)
	if err != nil {
		return err
	}
	if len(f.Members) == 0 || f.Members[0].Node != from.Incarnation.Node || f.Members[0].Disk != from.Disk {
		return refusal("%s proposed a cluster, and only the member with the lowest id may", from.Incarnation)
	}
	if old := c.formation(); old != nil {
		if old.ClusterID == f.ClusterID {
			return nil
		}
		return refusal("node %s belongs to cluster id %s already", c.o.Node, old.ClusterID)
	}
	for _, m := range f.Members {
		if m.Node == c.o.Node && m.Disk != c.o.Identity.Disk {
			return refusal("the proposed list has disk %s for node %s, which has disk %s", m.Disk, c.o.Node, c.o.Identity.Disk)
		}
		if c.o.Members[m.Node] != m.Address {
			return refusal("node %s has another member list: %s", c.o.Node, c.list())
		}
	}
	if len(f.Members) != len(c.o.Members) || f.Cluster != c.o.Name {
		return refusal("node %s has another member list: %s", c.o.Node, c.list())
	}
	return c.take(&f, 0)
}

// take makes this node a member of the cluster for good: a founder, or one that is
// admitted now with a replica of the meta group.
func (c *Cluster) take(f *wire.Formation, replica uint64) error {
	if replica == f.Replica(c.o.Node) {
		replica = 0 // a founder whom the proposal had not reached
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.formation != nil {
		if c.mu.formation.ClusterID == f.ClusterID {
			return nil
		}
		return refusal("node %s belongs to cluster id %s already", c.o.Node, c.mu.formation.ClusterID)
	}
	b := c.o.DB.NewBatch()
	b.Set(store.NodeKey(store.NodeFormation), wire.AppendFormation(nil, f))
	if replica != 0 {
		b.Set(store.NodeKey(store.NodeAdmission), encodeAdmission(replica))
	}
	if err := b.Commit(true); err != nil {
		return err
	}
	c.mu.formation, c.mu.replica, c.mu.waiting = f, replica, ""
	close(c.formed)
	if replica != 0 {
		c.o.Log.Info("admitted to the cluster", "cluster", f.Cluster, "cluster_id", f.ClusterID.String(), "replica", replica)
		return nil
	}
	c.o.Log.Info("the cluster forms", "cluster", f.Cluster, "cluster_id", f.ClusterID.String(), "members", len(f.Members))
	return nil
}

// herald brings the proposal to members that have not taken it, also after a
// restart in the middle, until each has had a lease. Only the proposer does.
func (c *Cluster) herald(ctx context.Context) error {
	f := c.formation()
	if f.Members[0].Node != c.o.Node || c.admitted() {
		return nil
	}
	payload := wire.AppendFormation(nil, f)
	done := map[string]bool{c.o.Node: true}
	for len(done) < len(f.Members) {
		for _, m := range f.Members {
			if done[m.Node] {
				continue
			}
			if now, ok := c.View().Member(m.Node); !ok || !now.Last.IsZero() {
				done[m.Node] = true
				continue
			}
			call, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, _, err := c.o.Net.CallAddress(call, m.Address, wire.MethodFormAccept, payload)
			cancel()
			if err != nil {
				c.o.Log.WarnContext(ctx, "a founding member has not taken the list", "member", m.Node, "error", err)
				continue
			}
			done[m.Node] = true
		}
		if c.metaNow.Load().Term == 0 {
			c.o.Host.Campaign(uint64(api.MetaGroup)) // nobody leads yet: no need to wait for a timeout
		}
		if c.sleep(ctx, 250*time.Millisecond, nil) {
			return nil
		}
	}
	return nil
}

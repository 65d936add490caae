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
	"tidal/node/internal/meta"
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
	ids := slices.Sorted(maps.Keys(c.o.Members))
	found := c.probeAll(ctx)
	f := &wire.Formation{Cluster: c.o.Name, ClusterID: newClusterID(), Level: c.shared(found)}
	var missing []string
	for _, id := range ids {
		m, p := wire.Founder{Node: id, Address: c.o.Members[id], Disk: found[id].hello.Disk}, found[id]
		if p.err != nil && !p.hello.ClusterID.IsZero() {
			return c.askToJoin(ctx, m.Address) // there is a cluster: it cannot be formed again
		}
		if p.err != nil {
			missing = append(missing, p.err.Error())
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

func newClusterID() (id api.ClusterID) {
	_, _ = rand.Read(id[:]) // never fails
	return id
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

// accept takes the proposal of the lowest member that is there, unless this node has
// taken another.
func (c *Cluster) accept(from wire.Hello, payload []byte) error {
	f, err := wire.DecodeFormation(payload)
	if err != nil {
		return err
	}
	if p := f.Proposer(); p.Node != from.Incarnation.Node || p.Disk != from.Disk {
		return refusal("%s proposed a cluster, and only the member with the lowest id of those that are there may", from.Incarnation)
	}
	if old := c.formation(); old != nil {
		if old.ClusterID == f.ClusterID {
			return nil
		}
		return refusal("node %s belongs to cluster id %s already", c.o.Node, old.ClusterID)
	}
	if !c.o.Levels.Speaks(max(f.Level, 1)) {
		return meta.LevelError(c.o.Node, c.o.Version, c.o.Levels, max(f.Level, 1))
	}
	for _, m := range f.Members {
		if m.Node == c.o.Node && m.Disk != c.o.Identity.Disk {
			return refusal("the proposed list has disk %s for node %s, which has disk %s", m.Disk, c.o.Node, c.o.Identity.Disk)
		}
		if c.o.Members[m.Node] != m.Address {
			return refusal("node %s has another member list: %s", c.o.Node, c.list())
		}
	}
	if len(f.Members) != len(c.o.Members) && !c.o.PartVoters || f.Cluster != c.o.Name {
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
// restart in the middle, until each has had a lease. Only the proposer does. Who was
// away when the cluster formed asks to be admitted.
func (c *Cluster) herald(ctx context.Context) error {
	f := c.formation()
	if f.Proposer().Node != c.o.Node || c.admitted() {
		return nil
	}
	payload := wire.AppendFormation(nil, f)
	left := slices.DeleteFunc(slices.Clone(f.Members), func(m wire.Founder) bool { return m.Node == c.o.Node || m.Disk.IsZero() })
	for len(left) > 0 {
		left = slices.DeleteFunc(left, func(m wire.Founder) bool {
			err := c.bring(ctx, m, payload)
			c.noteUntold(m, err)
			return err == nil
		})
		if c.metaNow.Load().Term == 0 {
			c.o.Host.Campaign(uint64(api.MetaGroup)) // nobody leads yet: no need to wait for a timeout
		}
		if c.sleep(ctx, 250*time.Millisecond, nil) {
			break
		}
	}
	return nil
}

// bring brings the proposal to a member, unless it has had a lease.
func (c *Cluster) bring(ctx context.Context, m wire.Founder, payload []byte) error {
	if now, ok := c.View().Member(m.Node); !ok || !now.Last.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	_, _, err := c.o.Net.CallAddress(ctx, m.Address, wire.MethodFormAccept, payload)
	return err
}

// noteUntold keeps why a founder has not taken the list, which is logged now and then;
// nil: it has.
func (c *Cluster) noteUntold(m wire.Founder, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		delete(c.mu.untold, m.Node)
		return
	}
	c.mu.untold[m.Node] = fmt.Sprintf("member %s at %s has not taken the founding list: %s", m.Node, m.Address, publicCause(err))
	if time.Since(c.mu.said) > sayWaiting {
		c.mu.said = time.Now()
		c.o.Log.Warn("a founding member has not taken the list", "member", m.Node, "error", err)
	}
}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"tidal/node/api"
	"tidal/node/internal/ready"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// Times of joining.
const (
	joinPatience = 5 * time.Second        // for a member's answer to a node that asks to be admitted
	askRoster    = 300 * time.Millisecond // between two rounds of asking who the members are
)

// admissionVersion is the first byte of the stored admission.
const admissionVersion = 1

func encodeAdmission(replica uint64) []byte {
	return wire.AppendUvarint([]byte{admissionVersion}, replica)
}

func loadAdmission(db *store.DB) (uint64, error) {
	v, found, err := db.Get(store.NodeKey(store.NodeAdmission))
	if err != nil || !found {
		return 0, err
	}
	r := wire.NewReader(v)
	if version := r.Byte("version of the admission"); r.Err() == nil && version != admissionVersion {
		return 0, fmt.Errorf("the admission on disk is of version %d, this binary reads version %d", version, admissionVersion)
	}
	replica := r.Uvarint("replica id")
	if err := r.Done(); err != nil {
		return 0, fmt.Errorf("the admission on disk: %w", err)
	}
	return replica, nil
}

// enter tries once to make this node a member: of the cluster that it was told to
// join, or of one that forms. It returns what is missing.
func (c *Cluster) enter(ctx context.Context) (string, error) {
	if len(c.o.Join) == 0 {
		return c.tryForm(ctx)
	}
	var missing []string
	for _, url := range c.o.Join {
		why, err := c.askToJoin(ctx, url)
		if err != nil || c.Formed() {
			return why, err
		}
		missing = append(missing, why)
	}
	return strings.Join(missing, "; "), nil
}

// askToJoin asks a member to admit this node, whose disk is empty, and returns why
// it did not. The error is that of the disk.
func (c *Cluster) askToJoin(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, joinPatience)
	defer cancel()
	ask := wire.JoinRequest{Address: c.o.Advertise, Zone: c.o.Zone, Known: len(c.o.Join) == 0}
	_, b, err := c.o.Net.CallAddress(ctx, url, wire.MethodJoin, wire.AppendJoinRequest(nil, &ask))
	if err != nil {
		return fmt.Sprintf("asked %s to be admitted: %v", url, err), nil
	}
	a, err := wire.DecodeAdmission(b)
	if err != nil {
		return fmt.Sprintf("asked %s to be admitted: %v", url, err), nil
	}
	return "", c.take(&a.Formation, a.Replica)
}

// answerJoin admits a node with an empty disk. Its certificate named it before
// this is asked.
func (c *Cluster) answerJoin(ctx context.Context, from wire.Hello, payload []byte) ([]byte, error) {
	f := c.formation()
	if f == nil {
		return nil, &api.Error{Code: api.CodeNotReady, Message: fmt.Sprintf("node %s does not belong to a cluster itself yet", c.o.Node)}
	}
	j, err := wire.DecodeJoinRequest(payload)
	if err != nil {
		return nil, err
	}
	cmd := &wire.MetaCommand{
		Kind: wire.MetaAdmitNode, ID: newID(), Known: j.Known,
		Joiner: wire.Founder{Node: from.Incarnation.Node, Disk: from.Disk, Address: j.Address, Zone: j.Zone},
	}
	a, err := c.propose(ctx, cmd)
	if err != nil {
		if e, ok := errors.AsType[*api.Error](err); ok && e.Outcome() == api.OutcomeDone && !c.runs(from) {
			c.Refused(from, e)
		}
		return nil, err
	}
	c.o.Log.InfoContext(ctx, "node admitted", "peer", from.Incarnation.Node, "disk", from.Disk.String(), "new", a.Changed)
	return wire.AppendAdmission(nil, &wire.Admission{Formation: *f, Replica: a.Replica}), nil
}

// runs reports whether a node is a member as just this incarnation, with this disk:
// what it asked twice to become, and the second answer came late.
func (c *Cluster) runs(from wire.Hello) bool {
	l, held := c.View().Lease(from.Incarnation.Node)
	return held && l.Incarnation == from.Incarnation && l.Disk == from.Disk
}

// admitted reports whether this node came to the cluster after it had formed, or
// came back without its data.
func (c *Cluster) admitted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.replica != 0
}

// ownReplica returns the raft id of this node's replica of the meta group, or 0.
func (c *Cluster) ownReplica() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.mu.formation == nil:
		return 0
	case c.mu.replica != 0:
		return c.mu.replica
	}
	return c.mu.formation.Replica(c.o.Node)
}

// members returns the members as far as this node knows: those of its own replica
// of the meta group, or those that another member told if they are newer. A node
// that has missed a change would else refuse the very one that could tell it.
func (c *Cluster) members() []wire.Member {
	if r := c.roster.Load(); r != nil && r.Next > c.View().NextReplica {
		return r.Members
	}
	return c.View().Members
}

func (c *Cluster) member(node string) (wire.Member, bool) {
	all := c.members()
	i := slices.IndexFunc(all, func(m wire.Member) bool { return m.Node == node })
	if i < 0 {
		return wire.Member{}, false
	}
	return all[i], true
}

func metaNodes(members []wire.Member) map[uint64]string {
	nodes := make(map[uint64]string, len(members))
	for _, m := range members {
		nodes[m.Replica] = m.Node
	}
	return nodes
}

// updateMetaNodes tells the host where the replicas of the meta group are. It is
// for keep alone.
func (c *Cluster) updateMetaNodes() {
	now := c.members()
	if slices.Equal(now, c.shown) {
		return
	}
	if c.o.Host.SetNodes(uint64(api.MetaGroup), metaNodes(now)) == nil {
		c.shown = now // else the host is busy or ends
	}
}

// metaLevel reports whether the replica of the meta group was level in this run.
func (c *Cluster) metaLevel() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.meta.Level()
}

// awaitMeta waits until the replica of the meta group is level, and reports
// whether it is: else ctx has ended.
func (c *Cluster) awaitMeta(ctx context.Context) bool {
	c.setLeaseCause("the metadata is not here yet")
	for !c.metaLevel() {
		if c.sleep(ctx, 20*time.Millisecond, nil) {
			return false
		}
	}
	return true
}

// catchUp asks members who they are, and how far the meta group is, until this
// node's replica of it is level. Most nodes learn that with their lease, before
// they ask.
func (c *Cluster) catchUp(ctx context.Context) error {
	ask := c.admitted()
	for !c.metaLevel() {
		for _, url := range c.addresses() {
			if ask && !c.metaLevel() && ctx.Err() == nil {
				c.askRoster(ctx, url)
			}
		}
		ask = true
		if c.sleep(ctx, askRoster, nil) {
			break
		}
	}
	return nil
}

// addresses returns the URLs under which members may answer.
func (c *Cluster) addresses() []string {
	var out []string
	add := func(url string) {
		if url != "" && url != c.o.Advertise && !slices.Contains(out, url) {
			out = append(out, url)
		}
	}
	for _, m := range c.members() {
		if m.Node != c.o.Node {
			add(m.Address)
			add(c.o.Members[m.Node])
		}
	}
	for _, url := range c.o.Join {
		add(url)
	}
	return out
}

func (c *Cluster) askRoster(ctx context.Context, url string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	remote, b, err := c.o.Net.CallAddress(ctx, url, wire.MethodRoster, nil)
	if err != nil {
		c.o.Log.DebugContext(ctx, "asked for the members", "address", url, "error", err)
		return
	}
	r, err := wire.DecodeRoster(b)
	if err != nil {
		c.o.Log.WarnContext(ctx, "the list of members", "peer", remote.Incarnation.Node, "error", err)
		return
	}
	if old := c.roster.Load(); old == nil || r.Next > old.Next {
		c.roster.Store(&r)
		c.changed.fire()
	}
	c.heardMeta(ready.Frontier{Term: r.Term, Index: r.Index})
}

func (c *Cluster) answerRoster() []byte {
	v := c.View()
	r := wire.Roster{Next: v.NextReplica, Members: v.Members}
	if s := c.metaNow.Load(); s.Owns {
		r.Term, r.Index = s.Term, c.gauge.Commit.Load()
	}
	return wire.AppendRoster(nil, &r)
}

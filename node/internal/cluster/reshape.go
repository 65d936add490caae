package cluster

import (
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/place"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/wire"
)

const (
	reshapeReach    = 1024                  // entries that a replica may lack and be called level
	reshapePatience = 5 * time.Second       // for one step
	reshapeRest     = 50 * time.Millisecond // between looks while replicas move
	reshapeAtOnce   = 4                     // tables that one node moves at once
)

// MoveReplica has a replica of a table go from one node to another. It returns once
// that is decided; the table's owner then carries it out, step by step.
func (c *Cluster) MoveReplica(ctx context.Context, table, from, to string) (api.Table, error) {
	t, err := c.Named(ctx, table)
	if err != nil {
		return api.Table{}, err
	}
	cmd := &wire.MetaCommand{Kind: wire.MetaMoveReplica, ID: newID(), Table: t.ID, From: from, To: to}
	if _, err = c.propose(ctx, cmd); err != nil {
		return api.Table{}, err
	}
	return c.Table(ctx, table)
}

// ReplaceNode says that a member's disk is gone for good: the node may come back
// with an empty one, and gets its replicas anew.
func (c *Cluster) ReplaceNode(ctx context.Context, node string) error {
	_, err := c.propose(ctx, &wire.MetaCommand{Kind: wire.MetaReplaceDisk, ID: newID(), Node: node})
	return err
}

// reshape leads the groups that this node leads from the replicas that they have
// to those that they should have. It looks at what is there and takes the next
// step, so it goes on wherever another node left off.
func (c *Cluster) reshape(ctx context.Context) error {
	var seen *meta.View
	var moving []*wire.Table
	metaDone := reshaped{}
	for {
		change, rest := c.changed.wait(), time.Second
		if v := c.View(); v != seen {
			seen, moving = v, movingTables(v)
		}
		if now := (reshaped{seen, c.metaNow.Load().Term}); c.leadsMeta() && metaDone != now {
			if c.reshapeMeta(ctx, seen) {
				metaDone = now
			} else {
				change, rest = nil, reshapeRest
			}
		}
		switch c.reshapeTables(ctx, moving) {
		case soon:
			change, rest = nil, reshapeRest
		case waiting:
			change = nil // whatever changes meanwhile: there may be many, and it may last
		case idle:
		}
		if c.sleep(ctx, rest, change) {
			return nil
		}
	}
}

// reshaped is for which state, and as whose leader, the meta group has what it
// should have.
type reshaped struct {
	view *meta.View
	term uint64
}

func movingTables(v *meta.View) []*wire.Table {
	var out []*wire.Table
	for _, t := range v.Tables {
		if t.Moving() {
			out = append(out, t)
		}
	}
	return out
}

// prospect is when it is worth to look at moving tables again.
type prospect int32

const (
	idle    prospect = iota // none moves here
	waiting                 // they wait for a node that does not live
	soon
)

// reshapeTables takes the next step of each moving table that this node owns.
func (c *Cluster) reshapeTables(ctx context.Context, moving []*wire.Table) prospect {
	if len(moving) == 0 {
		return idle
	}
	owned := map[api.TableID]bool{}
	for _, id := range c.directory.owns() {
		owned[id] = true
	}
	var g errgroup.Group
	g.SetLimit(reshapeAtOnce)
	next := idle
	for _, t := range moving {
		if !owned[t.ID] {
			continue
		}
		next = max(next, waiting)
		if c.comersLive(t) {
			next = soon
		}
		g.Go(func() error {
			c.reshapeTable(ctx, t)
			return nil
		})
	}
	_ = g.Wait() // the functions return no errors
	return next
}

// comersLive reports whether the nodes of all replicas on their way in live.
func (c *Cluster) comersLive(t *wire.Table) bool {
	for _, r := range t.Replicas {
		if _, live := c.View().Lease(r.Node); !live && !r.Voter && !r.Leaving {
			return false
		}
	}
	return true
}

// reshapeTable takes a table's next step, or tells the meta group that it has what
// it should have.
func (c *Cluster) reshapeTable(ctx context.Context, t *wire.Table) {
	ctx, cancel := context.WithTimeout(ctx, reshapePatience)
	defer cancel()
	p, err := c.o.Host.Progress(ctx, uint64(t.ID))
	if err != nil || !p.Owns {
		return
	}
	g := groupOf(&p)
	for _, r := range t.Replicas {
		if !r.Leaving {
			g.WantVoters = append(g.WantVoters, r.ID)
		}
	}
	if differs(t, &p.Conf) {
		cmd := &wire.MetaCommand{
			Kind: wire.MetaSettleTable, ID: newID(), Table: t.ID,
			Index: p.Applied, Voters: p.Conf.Voters, Learners: p.Conf.Learners,
		}
		if _, err := c.propose(ctx, cmd); err != nil {
			c.o.Log.DebugContext(ctx, "configuration not made known", "table", t.Name, "error", err)
		}
		return
	}
	step := place.Next(g)
	if step.HandOver {
		for _, to := range c.holders(t.ID) {
			c.handOver(ctx, t.ID, to)
			if l, _ := c.o.Tables.Local(t.ID); !l.State.Leads {
				return
			}
		}
		return
	}
	c.stepTo(ctx, uint64(t.ID), t.Name, step)
}

// differs reports whether a table's record has a replica as it is not in the
// configuration. Between two configurations it is too early to say.
func differs(t *wire.Table, conf *rafthost.Conf) bool {
	if conf.Joint {
		return false
	}
	for _, r := range t.Replicas {
		voter := slices.Contains(conf.Voters, r.ID)
		if r.Voter != voter || r.Leaving && !voter && !slices.Contains(conf.Learners, r.ID) {
			return true
		}
	}
	return false
}

// reshapeMeta takes the meta group's next step, and reports whether there is none.
func (c *Cluster) reshapeMeta(ctx context.Context, v *meta.View) bool {
	ctx, cancel := context.WithTimeout(ctx, reshapePatience)
	defer cancel()
	p, err := c.o.Host.Progress(ctx, uint64(api.MetaGroup))
	if err != nil || !p.Owns {
		return false
	}
	g := groupOf(&p)
	settled := true
	for _, m := range v.Members {
		if m.Voter || m.Rising {
			g.WantVoters = append(g.WantVoters, m.Replica)
		} else {
			g.WantLearners = append(g.WantLearners, m.Replica)
		}
		settled = settled && (!m.Rising || !slices.Contains(p.Conf.Voters, m.Replica))
	}
	if !settled && !p.Conf.Joint {
		cmd := &wire.MetaCommand{Kind: wire.MetaSettleTable, ID: newID(), Table: api.MetaGroup, Index: p.Applied, Voters: p.Conf.Voters}
		if _, err := c.lead(ctx, cmd); err != nil {
			c.o.Log.DebugContext(ctx, "configuration of the meta group not made known", "error", err)
		}
		return false
	}
	step := place.Next(g)
	if step.IsZero() {
		return !p.Conf.Joint && len(p.Conf.Voters) == len(g.WantVoters) && len(p.Conf.Learners) == len(g.WantLearners)
	}
	c.stepTo(ctx, uint64(api.MetaGroup), "", step)
	return false
}

// groupOf is a group as place wants it, without what it should be.
func groupOf(p *rafthost.Progress) place.Group {
	g := place.Group{Leader: p.Replica, Voters: p.Conf.Voters, Learners: p.Conf.Learners, Joint: p.Conf.Joint}
	for _, x := range p.Peers {
		if x.Active && x.Match > 0 && x.Match+reshapeReach >= p.Last {
			g.Level = append(g.Level, x.Replica)
		}
	}
	return g
}

// stepTo changes a group's configuration by one step.
func (c *Cluster) stepTo(ctx context.Context, group uint64, table string, step place.Step) {
	var changes []rafthost.Change
	if step.AddLearner != 0 {
		changes = append(changes, rafthost.Change{Kind: rafthost.AddLearner, Replica: step.AddLearner})
	}
	for _, id := range step.AddVoters {
		changes = append(changes, rafthost.Change{Kind: rafthost.AddVoter, Replica: id})
	}
	for _, id := range step.Remove {
		changes = append(changes, rafthost.Change{Kind: rafthost.RemoveReplica, Replica: id})
	}
	if len(changes) == 0 {
		return
	}
	if err := c.o.Host.ChangeConf(ctx, group, changes); err != nil {
		c.o.Log.DebugContext(ctx, "configuration not changed", "group", group, "table", table, "error", err)
		return
	}
	c.o.Log.InfoContext(ctx, "configuration changed", "group", group, "table", table,
		"learner", step.AddLearner, "voters", step.AddVoters, "removed", step.Remove)
}

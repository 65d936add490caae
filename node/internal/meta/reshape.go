package meta

import (
	"fmt"
	"slices"
	"strings"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

func conflict(format string, args ...any) wire.MetaAnswer {
	return wire.MetaAnswer{Code: api.CodeConflict, Message: fmt.Sprintf(format, args...)}
}

func noNode(node string) wire.MetaAnswer {
	e := api.NoNode(node)
	return wire.MetaAnswer{Code: e.Code, Message: e.Message}
}

// newReplica hands out the raft id of a replica, once and never again: with an id
// used twice, a late answer of the former life would count for a replica that has
// nothing of it.
func (d *draft) newReplica() uint64 {
	id := d.NextReplica
	d.NextReplica++
	d.record(Change{Key: []byte(keyNextReplica), Value: appendCounter(d.NextReplica)})
	return id
}

// admit makes a node with an empty disk a member, or gives a member whose disk is
// to be replaced the new one.
func (d *draft) admit(c *wire.MetaCommand) wire.MetaAnswer {
	j := c.Joiner
	m, known := d.Member(j.Node)
	switch {
	case api.CheckNode(j.Node) != nil || j.Disk.IsZero() || j.Address == "":
		return refuse("node %q cannot be admitted with disk %s and address %q", j.Node, j.Disk, j.Address)
	case d.Dead(j.Disk):
		return conflict("disk %s of node %s was replaced, and is dead for ever: wipe it", j.Disk, j.Node)
	case known && m.Disk == j.Disk && !m.Last.IsZero():
		return conflict("disk %s ran as %s, and comes back without what it had then: it went back in time", j.Disk, m.Last)
	case known && m.Disk == j.Disk:
		return wire.MetaAnswer{Replica: m.Replica}
	case known && !m.Disk.IsZero():
		return conflict("node %s is known here with disk %s, and comes with the empty disk %s: "+
			"if its data is gone for good, `tidal node replace %s` lets it back in", j.Node, m.Disk, j.Disk, j.Node)
	case !known && c.Known:
		return conflict("node %s is not a member of cluster %s: set cluster.join to have it admitted", j.Node, d.Formation.Cluster)
	case !known:
		m = wire.Member{Node: j.Node, Replica: d.newReplica()}
	}
	m.Disk, m.Address, m.Zone = j.Disk, j.Address, j.Zone
	d.record(d.putMember(m))
	return wire.MetaAnswer{Changed: true, Replica: m.Replica}
}

// replace says that a member's disk is gone. The disk and its replicas are dead
// for ever; others, under new ids, wait for the node to come back without data.
func (d *draft) replace(node string) wire.MetaAnswer {
	m, known := d.Member(node)
	switch {
	case !known:
		return noNode(node)
	case m.Disk.IsZero():
		return wire.MetaAnswer{Replica: m.Replica}
	}
	if l, held := d.Lease(node); held {
		return conflict("node %s is alive as %s: only a disk that is gone is replaced", node, l.Incarnation)
	}
	if why := d.needs(m); why != "" {
		return conflict("the disk of node %s is not to be replaced: %s", node, why)
	}
	d.record(d.putDead(m.Disk, node))
	if _, seen := d.Seen(node); seen {
		d.record(d.dropSeen(node))
	}
	m.Disk, m.Last, m.Left, m.Replica = api.DiskID{}, api.Incarnation{}, false, d.newReplica()
	m.Voter, m.Rising = false, m.Voter || m.Rising
	d.record(d.putMember(m))
	for _, t := range d.Tables {
		r, holds := t.Replica(node)
		if !holds || r.Leaving {
			continue // it goes anyhow
		}
		now := *t
		now.Replicas = slices.Clone(t.Replicas)
		for i := range now.Replicas {
			if now.Replicas[i].Node == node {
				now.Replicas[i].Leaving = true
			}
		}
		now.Replicas = append(now.Replicas, wire.Replica{Node: node, ID: d.newReplica()})
		d.record(d.putTable(&now))
	}
	return wire.MetaAnswer{Changed: true, Replica: m.Replica}
}

// needs says which group could never agree on anything again without a member's
// disk, "" if none is like that.
func (d *draft) needs(m wire.Member) string {
	var all, left []string
	for _, o := range d.Members {
		if o.Voter || o.Rising {
			all = append(all, o.Node)
			if o.Voter && o.Node != m.Node && !o.Disk.IsZero() {
				left = append(left, o.Node)
			}
		}
	}
	if slices.Contains(all, m.Node) && !majority(left, all) {
		return "the meta group " + arithmetic(left, all)
	}
	for _, t := range d.Tables {
		all, left = d.votersWithout(t, m.Node)
		if slices.Contains(all, m.Node) && !majority(left, all) {
			return "table " + t.Name + " " + arithmetic(left, all)
		}
	}
	return ""
}

// votersWithout returns the nodes of a table's voters, and those whose disks are
// there and are not the named node's.
func (d *draft) votersWithout(t *wire.Table, node string) (all, left []string) {
	for _, r := range t.Replicas {
		if !r.Voter {
			continue
		}
		all = append(all, r.Node)
		newest, _ := t.Replica(r.Node)
		if m, _ := d.Member(r.Node); r.Node != node && !m.Disk.IsZero() && newest.ID == r.ID {
			left = append(left, r.Node)
		}
	}
	return all, left
}

func majority(some, all []string) bool { return len(some) > len(all)/2 }

func arithmetic(left, all []string) string {
	without := "none"
	if len(left) > 0 {
		without = strings.Join(left, ", ")
	}
	return fmt.Sprintf("needs %d of its %d voters (%s), and without that disk it would have %d (%s)",
		len(all)/2+1, len(all), strings.Join(all, ", "), len(left), without)
}

// move has a replica of a table go from one node to another, or takes such a move
// back while it is under way.
func (d *draft) move(c *wire.MetaCommand) wire.MetaAnswer {
	t, exists := d.Table(c.Table)
	if !exists {
		return wire.MetaAnswer{Code: api.CodeTableNotFound, Message: "the table is gone"}
	}
	from, held := t.Replica(c.From)
	to, there := t.Replica(c.To)
	_, leaves := d.Member(c.From)
	m, comes := d.Member(c.To)
	switch {
	case !leaves:
		return noNode(c.From)
	case !comes:
		return noNode(c.To)
	case there && !to.Leaving && (!held || from.Leaving):
		return wire.MetaAnswer{Table: t.ID} // so it is, or will be
	case !held:
		return conflict("node %s holds no replica of table %s", c.From, t.Name)
	case c.From == c.To:
		return refuse("table %s: from and to are both node %s", t.Name, c.From)
	}
	now := *t
	now.Replicas = slices.Clone(t.Replicas)
	back := there && to.Leaving && !from.Voter && !from.Leaving
	switch {
	case back:
		now.Replicas[index(&now, to.ID)].Leaving = false
	case there:
		return conflict("node %s holds a replica of table %s already", c.To, t.Name)
	case t.Moving():
		return conflict("a replica of table %s is on its way already: %s", t.Name, moves(t))
	default:
		if m.Disk.IsZero() {
			return conflict("node %s has no disk yet: it cannot be given a replica", c.To)
		}
		if l, live := d.Lease(c.To); !live || l.Draining {
			return conflict("node %s has no live lease, or drains: it cannot be given a replica", c.To)
		}
		now.Replicas = append(now.Replicas, wire.Replica{Node: c.To, ID: d.newReplica()})
	}
	now.Replicas[index(&now, from.ID)].Leaving = true
	d.record(d.putTable(&now))
	return wire.MetaAnswer{Changed: true, Table: t.ID}
}

func index(t *wire.Table, id uint64) int {
	return slices.IndexFunc(t.Replicas, func(r wire.Replica) bool { return r.ID == id })
}

// moves says which replicas of a table are on their way.
func moves(t *wire.Table) string {
	var parts []string
	for _, r := range t.Replicas {
		switch {
		case r.Leaving:
			parts = append(parts, "from "+r.Node)
		case !r.Voter:
			parts = append(parts, "to "+r.Node)
		}
	}
	return strings.Join(parts, ", ")
}

// settleMeta takes word of the meta group's configuration: members that were to
// become voters are. Ids are used once, so an older word, late, does no harm.
func (d *draft) settleMeta(c *wire.MetaCommand) wire.MetaAnswer {
	changed := false
	for _, m := range d.Members {
		if m.Rising && slices.Contains(c.Voters, m.Replica) {
			m.Voter, m.Rising, changed = true, false, true
			d.record(d.putMember(m))
		}
	}
	return wire.MetaAnswer{Table: c.Table, Changed: changed}
}

// settle takes word of the configuration that a table's group has applied:
// replicas that joined it count from now on, and those that left it are gone.
func (d *draft) settle(c *wire.MetaCommand) wire.MetaAnswer {
	if c.Table == api.MetaGroup {
		return d.settleMeta(c)
	}
	t, exists := d.Table(c.Table)
	if !exists || c.Index <= t.Settled {
		return wire.MetaAnswer{Table: c.Table} // an older word, late
	}
	now := *t
	now.Settled, now.Replicas = c.Index, nil
	for _, r := range t.Replicas {
		voter := slices.Contains(c.Voters, r.ID)
		if r.Leaving && !voter && !slices.Contains(c.Learners, r.ID) {
			continue
		}
		r.Voter = voter
		now.Replicas = append(now.Replicas, r)
	}
	if slices.Equal(now.Replicas, t.Replicas) {
		return wire.MetaAnswer{Table: t.ID}
	}
	d.record(d.putTable(&now))
	return wire.MetaAnswer{Changed: true, Table: t.ID}
}

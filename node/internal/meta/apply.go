package meta

import (
	"fmt"
	"slices"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// Result is what applying an entry came to.
type Result struct {
	ID      api.RequestID // of the command; zero for raft's own empty entries
	Answer  wire.MetaAnswer
	Changes []Change // to store with the entry's index; none if nothing changed
	// Withdrawn is whose lease its holder gave up; zero: none.
	Withdrawn api.Incarnation
}

// draft is a state that is being changed.
type draft struct {
	View
	changes []Change
}

func (d *draft) record(c Change) { d.changes = append(d.changes, c) }

// Apply changes the state by one entry. An error means that this replica cannot
// go on: the command is damaged or from a later release. A command that the
// rules refuse is no error, but an answer.
func (s *State) Apply(index uint64, cmd []byte) (Result, error) {
	if len(cmd) == 0 {
		return Result{}, nil
	}
	c, err := wire.DecodeMetaCommand(cmd)
	if err != nil {
		return Result{}, fmt.Errorf("meta entry %d: %w", index, err)
	}
	d := &draft{View: *s.v}
	answer := d.do(&c)
	if len(d.changes) > 0 {
		d.Index = index
		v := d.View
		s.v = &v
	}
	r := Result{ID: c.ID, Answer: answer, Changes: d.changes}
	if c.Kind == wire.MetaWithdrawLease && len(d.changes) > 0 {
		r.Withdrawn = c.Incarnation
	}
	return r, nil
}

func (d *draft) do(c *wire.MetaCommand) wire.MetaAnswer {
	switch c.Kind {
	case wire.MetaGrantLease:
		return d.grant(c.Lease)
	case wire.MetaDrainLease:
		return d.drain(c.Incarnation, c.Draining)
	case wire.MetaExpireLease:
		return d.end(c.Incarnation)
	case wire.MetaWithdrawLease:
		return d.withdraw(c.Incarnation)
	case wire.MetaCreateTable:
		return d.create(c)
	case wire.MetaDropTable:
		return d.drop(c.Table)
	case wire.MetaAdmitNode:
		return d.admit(c)
	case wire.MetaReplaceDisk:
		return d.replace(c.Node)
	case wire.MetaMoveReplica:
		return d.move(c)
	case wire.MetaSettleTable:
		return d.settle(c)
	case wire.MetaChangeRoll:
		return d.roll(c.ID, &c.Roll)
	case wire.MetaRevoke:
		return d.revoke(c)
	case wire.MetaRotate:
		return d.rotate(c)
	case wire.MetaNoteDisk:
		return d.note(c.Seen)
	case wire.MetaRaiseLevel:
		return d.raise(c.Level)
	}
	return refuse("command %s is not known", c.Kind) // the decoder lets none through
}

func refuse(format string, args ...any) wire.MetaAnswer {
	return wire.MetaAnswer{Code: api.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}

// grant gives an incarnation its lease, or renews what the lease says of it.
func (d *draft) grant(l wire.Lease) wire.MetaAnswer {
	inc := l.Incarnation
	m, known := d.Member(inc.Node)
	switch {
	case !known:
		return refuse("node %s is not a member of this cluster", inc.Node)
	case m.Disk.IsZero():
		return refuse("the disk of node %s is being replaced: it must come back with an empty one, not with %s", inc.Node, l.Disk)
	case m.Disk != l.Disk:
		return refuse("node %s is known here with disk %s, not %s: its data was replaced", inc.Node, m.Disk, l.Disk)
	case inc.Start < m.Last.Start:
		return refuse("%s is older than %s, which ran before: this disk went back in time", inc, m.Last)
	case inc.Start == m.Last.Start && inc != m.Last && !m.Last.IsZero():
		return refuse("%s has the start number of %s: one of the two runs on a copy of the disk", inc, m.Last)
	case inc == m.Last && m.Left:
		return refuse("%s has withdrawn its lease: it gets no other before it starts again", inc)
	case !l.Levels.Speaks(d.Level):
		e := LevelError(inc.Node, l.Version, l.Levels, d.Level)
		return refuse("%s: %s", e.Message, e.Hint)
	}
	old, held := d.Lease(inc.Node)
	if held && old.Incarnation == inc {
		l.Draining = l.Draining || old.Draining // a grant that was sent twice does not end a drain
		l.Crashed = old.Crashed
		if old == l {
			return wire.MetaAnswer{}
		}
	} else {
		l.Crashed = !m.Last.IsZero() && !m.Left
	}
	d.record(d.putLease(l))
	now := m
	now.Address, now.Zone, now.Last, now.Left, now.Levels = l.Address, l.Zone, inc, false, l.Levels
	if now != m {
		d.record(d.putMember(now))
	}
	return wire.MetaAnswer{Changed: true}
}

func (d *draft) drain(inc api.Incarnation, draining bool) wire.MetaAnswer { //nolint:revive // draining is data, not a mode
	l, held := d.Lease(inc.Node)
	if !held || l.Incarnation != inc || l.Draining == draining {
		return wire.MetaAnswer{}
	}
	l.Draining = draining
	d.record(d.putLease(l))
	return wire.MetaAnswer{Changed: true}
}

// end drops a lease that has run out. Its incarnation may get another.
func (d *draft) end(inc api.Incarnation) wire.MetaAnswer {
	l, held := d.Lease(inc.Node)
	if !held || l.Incarnation != inc {
		return wire.MetaAnswer{}
	}
	d.record(d.dropLease(inc.Node))
	return wire.MetaAnswer{Changed: true}
}

// withdraw drops the lease of an incarnation that stops. It gets no other, so
// that a grant still on its way does not bring a stopped node back.
func (d *draft) withdraw(inc api.Incarnation) wire.MetaAnswer {
	answer := d.end(inc)
	if m, known := d.Member(inc.Node); known && m.Last == inc && !m.Left {
		m.Left = true
		d.record(d.putMember(m))
		answer.Changed = true
	}
	return answer
}

func (d *draft) create(c *wire.MetaCommand) wire.MetaAnswer {
	if t, exists := d.TableNamed(c.Name); exists {
		if c.Wanted == 0 || c.Wanted == t.Wanted || c.Wanted == t.Stays() {
			return wire.MetaAnswer{Table: t.ID}
		}
		return wire.MetaAnswer{
			Code:    api.CodeTableExists,
			Message: fmt.Sprintf("table %s exists with %d replicas, not %d", c.Name, t.Stays(), c.Wanted),
		}
	}
	if err := api.CheckTable(c.Name); err != nil {
		return refuse("table name %q is not a table name", c.Name)
	}
	if len(c.Nodes) == 0 || len(c.Nodes) > api.MaxReplicas || c.Wanted != 0 && c.Wanted != len(c.Nodes) {
		return refuse("table %s: %d nodes for %d replicas", c.Name, len(c.Nodes), c.Wanted)
	}
	t := &wire.Table{ID: api.TableID(d.NextTable), Name: c.Name, Wanted: c.Wanted}
	for i, node := range c.Nodes {
		if _, known := d.Member(node); !known {
			return refuse("table %s: node %s is not a member of this cluster", c.Name, node)
		}
		if slices.Contains(c.Nodes[:i], node) {
			return refuse("table %s: node %s is named twice", c.Name, node)
		}
		id := d.NextReplica + uint64(i)
		t.First = append(t.First, id)
		t.Replicas = append(t.Replicas, wire.Replica{Node: node, ID: id, Voter: true})
	}
	d.NextTable++
	d.NextReplica += uint64(len(t.Replicas))
	d.record(d.putTable(t))
	d.record(Change{Key: []byte(keyNextTable), Value: appendCounter(d.NextTable)})
	d.record(Change{Key: []byte(keyNextReplica), Value: appendCounter(d.NextReplica)})
	return wire.MetaAnswer{Changed: true, Table: t.ID}
}

func (d *draft) drop(id api.TableID) wire.MetaAnswer {
	t, exists := d.Table(id)
	if !exists {
		return wire.MetaAnswer{Table: id}
	}
	d.record(d.dropTable(t))
	return wire.MetaAnswer{Changed: true, Table: id}
}

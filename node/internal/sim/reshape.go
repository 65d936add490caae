package sim

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing/synctest"
	"time"

	"tidal/node/internal/place"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/raftlog"
)

// reach is how many entries a replica may lack to take the place of another.
const reach = 8

// roster is which replicas a table has, as the meta group would have it: every node
// that runs knows of a change at once. In a run that reshapes, replicas come to the
// node that has none and go from another, one move of a table at a time.
type roster struct {
	nodes       map[uint64]*node // of each replica, also of one that comes or goes
	first       []uint64         // voters of the first configuration
	next        uint64           // id of the next replica
	comes, goes uint64           // 0: none moves
}

// newRoster puts a replica on each of three nodes.
func (w *world) newRoster() *roster {
	r := &roster{nodes: map[uint64]*node{}, next: 4}
	for i, n := range w.nodes[:3] {
		id := uint64(i) + 1
		r.nodes[id] = n
		r.first = append(r.first, id)
	}
	return r
}

// on returns the replica on a node, or 0.
func (r *roster) on(n *node) uint64 {
	for id, x := range r.nodes {
		if x == n {
			return id
		}
	}
	return 0
}

// names returns the node of each replica.
func (r *roster) names() map[uint64]string {
	out := map[uint64]string{}
	for id, n := range r.nodes {
		out[id] = n.name
	}
	return out
}

// wanted returns the voters that the table is to have, in order.
func (r *roster) wanted() []uint64 {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.nodes)), func(id uint64) bool { return id == r.goes })
}

// replica returns the raft id of a table's replica on a node, or 0.
func (w *world) replica(group uint64, n *node) uint64 { return w.rosters[group].on(n) }

// reshape begins to move a replica of a random table, or takes back a move that is
// under way.
func (w *world) reshape() {
	group := pick(w, w.groups...)
	r := w.rosters[group]
	if r.comes != 0 {
		if w.chance(0.3) {
			w.trace("back %d: %d stays, %d goes", group, r.goes, r.comes)
			r.comes, r.goes = r.goes, r.comes
		}
		return
	}
	i := slices.IndexFunc(w.nodes, func(n *node) bool { return r.on(n) == 0 })
	free := w.nodes[i]
	r.goes = pick(w, r.wanted()...)
	r.comes = r.next
	r.next++
	r.nodes[r.comes] = free
	w.trace("move %d: %d comes to %s for %d", group, r.comes, free.name, r.goes)
	w.inform(group)
	if free.stepper != nil {
		free.sudden(func() error { return free.add(free.stepper, group) })
	}
}

// inform tells the nodes that run where a table's replicas are.
func (w *world) inform(group uint64) {
	for _, n := range w.nodes {
		if n.stepper != nil {
			n.stepper.SetNodes(group, w.rosters[group].names())
		}
	}
}

// shape takes, again and again, the next step of a table towards its roster, with
// the leader of the newest term. What that has applied is known to be decided.
func (w *world) shape(group uint64) {
	w.after(w.between(2*time.Millisecond, 15*time.Millisecond), func() { w.shape(group) })
	r := w.rosters[group]
	var lead *node
	var p rafthost.Progress
	for _, n := range w.nodes {
		if n.stepper == nil {
			continue
		}
		if x, _ := n.stepper.Progress(group); x.Owns && x.Term > p.Term {
			lead, p = n, x
		}
	}
	if lead == nil {
		return
	}
	if r.shaped(&p) {
		if r.goes != 0 {
			w.settle(group)
		}
		return
	}
	g := place.Group{
		Leader: p.Replica, Voters: p.Conf.Voters, Learners: p.Conf.Learners, Joint: p.Conf.Joint, WantVoters: r.wanted(),
	}
	for _, x := range p.Peers {
		if x.Active && x.Match > 0 && x.Match+reach >= p.Last {
			g.Level = append(g.Level, x.Replica)
		}
	}
	lead.take(group, place.Next(g), r.wanted())
}

// shaped reports whether a leader has applied the configuration of the roster.
func (r *roster) shaped(p *rafthost.Progress) bool {
	voters := slices.Sorted(slices.Values(p.Conf.Voters))
	return !p.Conf.Joint && len(p.Conf.Learners) == 0 && slices.Equal(voters, r.wanted())
}

// settle ends a table's move: the replica that goes is dropped from its disk.
func (w *world) settle(group uint64) {
	r := w.rosters[group]
	w.trace("settled %d: %d is gone", group, r.goes)
	w.report.Moves++
	n := r.nodes[r.goes]
	delete(r.nodes, r.goes)
	r.comes, r.goes = 0, 0
	w.inform(group)
	if n.stepper == nil {
		return // it drops the replica when it starts
	}
	delete(n.gauges, group)
	n.sudden(func() error { return n.stepper.Remove(group) })
}

// take carries out one step.
func (n *node) take(group uint64, step place.Step, wanted []uint64) {
	if step.IsZero() {
		return
	}
	n.w.trace("step %s %d: %+v", n.name, group, step)
	defer n.wake()
	if step.HandOver {
		to := pick(n.w, wanted...)
		n.stepper.Transfer(group, to, func(error) {})
		return
	}
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
	n.stepper.ChangeConf(group, changes, func(error) {})
}

// sudden does something to the disk of a node that runs, which may crash in it.
func (n *node) sudden(f func() error) {
	err := n.guard(f)
	synctest.Wait()
	if image := n.disk.image(); image != nil {
		n.w.report.Torn++
		n.stop(image)
		return
	}
	if err != nil {
		n.w.history.find("node %s: %v", n.name, err)
		return
	}
	n.synced = n.stepper.Synced() // it is no pass that synced
	n.wake()
}

// sweep drops the replica of a table that a node has on its disk and should not.
func (n *node) sweep(s *rafthost.Stepper, group uint64) error {
	stored, err := raftlog.Replica(n.db, group)
	switch {
	case errors.Is(err, raftlog.ErrNoReplica) || err == nil && stored == n.w.replica(group, n):
		return nil
	case err != nil:
		return err
	}
	return s.Remove(group)
}

// conf gives the history the configuration that a replica has, with how far it is.
func (n *node) conf(group uint64, p *rafthost.Progress) {
	n.w.history.conf(replicaOf{group, p.Replica}, p.Applied, fmt.Sprint(
		slices.Sorted(slices.Values(p.Conf.Voters)), slices.Sorted(slices.Values(p.Conf.Learners)), p.Conf.Joint))
}

package rafthost

import (
	pb "go.etcd.io/raft/v3/raftpb"
)

// hold is why a node takes no more entries for now. What is in the log already is
// committed and applied all the same, and hard states are written.
type hold struct {
	slow    bool            // the database falls behind its disk
	crowded bool            // the disk has hardly any space left
	others  map[string]bool // the other nodes of which that is known
	owed    int             // bytes of older terms that it took while crowded
}

// maxOwed bounds what a crowded node takes of older terms, until it has space again.
const maxOwed = 16 << 20

// Crowded says whether the disk has hardly any space left. A crowded node takes no
// entries, leaves it to others to stand for election, and takes no hand-over, but
// for vital groups.
func (s *Stepper) Crowded(crowded bool) { //nolint:revive // the flag is the news
	if s.hold.crowded = crowded; !crowded {
		s.hold.owed = 0
	}
}

// CrowdedPeers says which other nodes have hardly any space left. They are sent no
// snapshots.
func (s *Stepper) CrowdedPeers(nodes map[string]bool) { s.hold.others = nodes }

// Slow says whether the database falls behind its disk. Until it has caught up the
// node takes no entries: they come again.
func (s *Stepper) Slow(slow bool) { s.hold.slow = slow }

// pushesBack reports whether a group takes no proposals until the database has
// caught up. Vital groups take them: without leases nothing works.
func (s *Stepper) pushesBack(group uint64) bool {
	g := s.groups[group]
	return s.hold.slow && (g == nil || !g.vital)
}

// Crowded is Stepper.Crowded.
func (h *Host) Crowded(crowded bool) {
	h.tell(func(s *Stepper) { s.Crowded(crowded) })
}

// CrowdedPeers is Stepper.CrowdedPeers.
func (h *Host) CrowdedPeers(nodes map[string]bool) {
	h.tell(func(s *Stepper) { s.CrowdedPeers(nodes) })
}

// refuses reports whether a message is one that a node takes no more. What has no
// data costs nothing and is taken: a leader's first entry among them, without
// which nobody could read. It may cut a message.
func (s *Stepper) refuses(g *group, m *pb.Message) bool {
	if g.vital || !s.hold.crowded && !s.hold.slow {
		return false
	}
	switch m.GetType() { //nolint:exhaustive // the others carry no entries
	case pb.MsgTimeoutNow:
		return s.hold.crowded
	case pb.MsgApp:
		entries := m.GetEntries()
		n := s.takes(g, m.GetTerm(), entries)
		m.Entries = entries[:n]
		return n == 0 && len(entries) > 0 // empty, it would be answered, and sent again at once
	}
	return false
}

// takes returns how many of the entries that a leader sent in a term are taken. A
// crowded node takes what older terms left, up to maxOwed, since without that the
// leader's first entry could not follow, and nobody could read. It ends before the
// first entry with data that is the leader's own: to the leader that is a shorter
// message.
func (s *Stepper) takes(g *group, term uint64, entries []*pb.Entry) int {
	last, _ := g.log.LastIndex() // never fails
	for i, e := range entries {
		size := len(e.GetData())
		switch {
		case e.GetType() != pb.EntryNormal || size == 0:
			continue
		case s.hold.slow || e.GetTerm() == term:
			return i
		case e.GetIndex() <= last: // here already, or in place of another
			continue
		case s.hold.owed+size > maxOwed:
			return i
		}
		s.hold.owed += size
	}
	return len(entries)
}

// yields reports whether this replica leaves an election to others: its disk is
// full, and there is another voter that lives and whose disk is not. It votes. If
// nobody leads after every other has stood, this one may have the only log that
// can win, and stands itself.
func (s *Stepper) yields(g *group, m *pb.Message) bool {
	if !s.hold.crowded || g.vital || m.GetType() != pb.MsgVote && m.GetType() != pb.MsgPreVote || g.race.leaderless >= s.patience() {
		return false
	}
	for _, id := range g.log.Applied().Conf.GetVoters() {
		if node := g.nodes[id]; id != g.state.Replica && s.lives[node].alive && !s.hold.others[node] {
			return true
		}
	}
	return false
}

// patience is how many ticks without a leader a crowded replica leaves elections to
// others. Raft has a replica stand within two election timeouts.
func (s *Stepper) patience() int { return 2 * s.o.ElectionTicks }

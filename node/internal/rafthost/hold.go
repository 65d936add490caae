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
}

// Crowded says whether the disk has hardly any space left. A crowded node takes no
// entries, leaves it to others to stand for election, and takes no hand-over, but
// for vital groups.
func (s *Stepper) Crowded(crowded bool) { s.hold.crowded = crowded }

// CrowdedPeers says which other nodes have hardly any space left. They are sent no
// snapshots.
func (s *Stepper) CrowdedPeers(nodes map[string]bool) { s.hold.others = nodes }

// Slow says whether the database falls behind its disk. Until it has caught up the
// node takes no entries: they come again.
func (s *Stepper) Slow(slow bool) { s.hold.slow = slow }

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
// which nobody could read.
func (s *Stepper) refuses(g *group, m *pb.Message) bool {
	if g.vital || !s.hold.crowded && !s.hold.slow {
		return false
	}
	switch m.GetType() { //nolint:exhaustive // the others carry no entries
	case pb.MsgTimeoutNow:
		return s.hold.crowded
	case pb.MsgApp:
		for _, e := range m.GetEntries() {
			if e.GetType() == pb.EntryNormal && len(e.GetData()) > 0 {
				return true
			}
		}
	}
	return false
}

// yields reports whether this replica leaves an election to others: its disk is
// full, and there is another that lives and whose disk is not. It votes.
func (s *Stepper) yields(g *group, m *pb.Message) bool {
	if !s.hold.crowded || g.vital || m.GetType() != pb.MsgVote && m.GetType() != pb.MsgPreVote {
		return false
	}
	for id, node := range g.nodes {
		if id != g.state.Replica && s.lives[node].alive && !s.hold.others[node] {
			return true
		}
	}
	return false
}

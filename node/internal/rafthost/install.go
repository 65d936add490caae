package rafthost

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/raftlog"
)

// ErrUnwanted says that raft did not want a snapshot: the replica has all that is
// in it, or the leader that sent it leads no longer.
var ErrUnwanted = errors.New("the snapshot is not wanted")

// arrival is a snapshot that is staged here and that raft was told of.
type arrival struct {
	stage *Stage
	done  func(error)
}

// Install offers raft a snapshot that is staged, whole. done is called once, from
// Pass or from here: with nil once the snapshot is the replica's state and the
// disk has it, or with ErrNoGroup, ErrBusy or ErrUnwanted. Until then the stage is
// the Stepper's. Raft cannot take a snapshot back that it was told of, so nothing
// is told before all of it is here.
func (s *Stepper) Install(st *Stage, done func(error)) {
	h := st.Head()
	g := s.groups[h.Group]
	switch {
	case g == nil || h.To != g.state.Replica || g.nodes[h.From] == "" || h.From == h.To || !st.whole:
		done(ErrNoGroup)
		return
	case g.arrival != nil:
		done(ErrBusy)
		return
	}
	g.arrival = &arrival{stage: st, done: done}
	_ = g.rn.Step(h.Message()) // what it does not like it ignores: see greet
	s.touch(g)
}

// Arrive returns what takes in a snapshot that comes for a replica here. It is that
// replica's alone: another one of the group may have taken its place when all is here.
// Errors: ErrNoGroup, or ErrUnwanted if it takes none.
func (s *Stepper) Arrive(group, replica uint64) (Arriving, error) {
	switch g := s.groups[group]; {
	case g == nil || g.state.Replica != replica:
		return nil, ErrNoGroup
	case g.arrive == nil:
		return nil, ErrUnwanted
	default:
		return g.arrive(), nil
	}
}

// greet looks whether raft took the snapshot that it was told of before this
// Ready: it does at once, or never.
func (g *group) greet(appendMsg *pb.Message) {
	if g.arrival != nil && raft.IsEmptySnap(appendMsg.GetSnapshot()) {
		g.arrival.done(ErrUnwanted)
		g.arrival = nil
	}
}

// ingest makes the snapshot in m the state of the replica, together with the hard
// state of m: its vote is newer than whatever the snapshot was made with, and a
// commit behind what is applied makes raft panic at every start.
func (s *Stepper) ingest(g *group, m *pb.Message) error {
	if g.arrival == nil {
		return fmt.Errorf("group %d: raft wants a snapshot that nobody brought", g.id)
	}
	meta := m.GetSnapshot().GetMetadata()
	a := raftlog.Applied{Index: meta.GetIndex(), Term: meta.GetTerm(), Conf: meta.GetConfState()}
	h := g.log.Hard()
	if m.Term != nil {
		h = raftlog.HardState{Term: m.GetTerm(), Vote: m.GetVote(), Commit: m.GetCommit()}
	}
	h.Commit = max(h.Commit, a.Index)
	stored := h
	if s.o.Defect == VoteNotInIngest {
		stored.Vote = raft.None
	}
	if err := g.arrival.stage.ingest(a, stored); err != nil {
		return fmt.Errorf("group %d: take a snapshot: %w", g.id, err)
	}
	g.log.Restore(a, h)
	machine, err := g.arrival.stage.arriving.Machine()
	if err != nil {
		return fmt.Errorf("group %d: go on from a snapshot: %w", g.id, err)
	}
	g.machine = machine
	g.told = 0
	g.gauge.Commit.Store(h.Commit)
	g.gauge.Applied.Store(a.Index)
	g.gauge.Moved.Store(int64(s.o.Clock())) // an ingest takes its time
	g.arrival.done(nil)
	g.arrival = nil
	return nil
}

// ship gives a snapshot that raft wants to send to whoever carries it. Raft waits
// until it is told how that ended.
func (s *Stepper) ship(g *group, m *pb.Message) {
	to, node := m.GetTo(), g.nodes[m.GetTo()]
	if node == "" || s.o.Shipper == nil || s.hold.others[node] && !g.vital {
		g.rn.ReportSnapshot(to, raft.SnapshotFailure)
		s.touch(g)
		return
	}
	s.o.Shipper.Ship(Shipment{Group: g.id, From: g.state.Replica, To: to, Term: m.GetTerm(), Node: node})
}

// ReportSnapshot says how a shipment ended.
func (s *Stepper) ReportSnapshot(sh Shipment, taken bool) { //nolint:revive // one of two ends
	g := s.groups[sh.Group]
	if g == nil || g.state.Replica != sh.From || g.state.Term != sh.Term {
		return // another term's leader counts anew
	}
	status := raft.SnapshotFailure
	if taken {
		status = raft.SnapshotFinish
	}
	g.rn.ReportSnapshot(sh.To, status)
	s.touch(g)
}

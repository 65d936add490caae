package rafthost

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"tidal/node/internal/raftlog"
)

// ErrConfRefused says that the configuration was not changed, since another change
// of it was under way, or since it would remove or demote the leader itself.
var ErrConfRefused = errors.New("the change of the configuration was refused")

// ChangeKind is what a Change does with a replica.
type ChangeKind uint8

// The kinds.
const (
	AddLearner    ChangeKind = iota + 1 // it gets the log and does not count
	AddVoter                            // it counts; a learner is promoted
	RemoveReplica                       // it is no part of the group any more
)

// Change is one replica's part of a change of the configuration.
type Change struct {
	Kind    ChangeKind
	Replica uint64
}

// Conf is a group's configuration, as this replica has applied it.
type Conf struct {
	Voters   []uint64
	Learners []uint64
	Joint    bool // between two configurations: both must agree
}

// confChange is a change of the configuration on its way. A change that raft
// refuses becomes an empty entry, without an error: which of the two it became is
// known when the entry at its index is applied.
type confChange struct {
	changes []Change
	done    func(error)
	index   uint64 // of its entry; 0 until raft has it
	applied bool   // it is in force, and the group may still be between two
}

// ChangeConf changes a group's configuration, several replicas at once through a
// joint configuration. done is called once the change is in force and no joint
// configuration is left, or with ErrNoGroup, ErrNotLeader, ErrBusy,
// ErrConfRefused (nothing was done) or ErrUnknown.
func (s *Stepper) ChangeConf(group uint64, changes []Change, done func(error)) {
	g := s.groups[group]
	switch {
	case g == nil:
		done(ErrNoGroup)
		return
	case !g.state.Leads:
		done(ErrNotLeader)
		return
	case g.conf != nil || g.transfer != nil:
		done(ErrBusy)
		return
	case len(changes) == 0:
		done(ErrConfRefused)
		return
	}
	for _, ch := range changes {
		if ch.Replica == g.state.Replica && ch.Kind != AddVoter {
			done(ErrConfRefused) // a leader is never removed or demoted: it hands over first
			return
		}
	}
	g.conf = &confChange{changes: changes, done: done}
	s.touch(g)
}

// SetNodes says where the replicas of a group are. Messages from a replica that
// is not among them are dropped, and none are sent to it.
func (s *Stepper) SetNodes(group uint64, nodes map[uint64]string) {
	if g := s.groups[group]; g != nil {
		g.nodes = maps.Clone(nodes)
	}
}

// proposeConf gives raft the change that waits, as the last entry of the pass.
func (g *group) proposeConf() {
	c := g.conf
	if c == nil || c.index != 0 {
		return
	}
	if !g.state.Leads || g.transfer != nil {
		g.endConf(ErrNotLeader)
		return
	}
	cc := &pb.ConfChangeV2{}
	for _, ch := range c.changes {
		t := pb.ConfChangeAddNode
		switch ch.Kind {
		case AddLearner:
			t = pb.ConfChangeAddLearnerNode
		case RemoveReplica:
			t = pb.ConfChangeRemoveNode
		case AddVoter:
		}
		cc.Changes = append(cc.Changes, &pb.ConfChangeSingle{Type: t.Enum(), NodeId: &ch.Replica})
	}
	data, err := proto.Marshal(cc)
	if err != nil {
		g.endConf(fmt.Errorf("%w: %w", ErrConfRefused, err))
		return
	}
	e := &pb.Entry{Type: pb.EntryConfChangeV2.Enum(), Data: data}
	m := &pb.Message{Type: pb.MsgProp.Enum(), From: &g.state.Replica, Entries: []*pb.Entry{e}}
	if err := g.rn.Step(m); err != nil {
		g.endConf(ErrBusy)
		return
	}
	c.index = confStepped
}

// confStepped stands for the index of an entry that raft has and has not shown.
const confStepped = ^uint64(0)

// confAppended takes the entries that raft appends in the pass that gave it a
// change: that is the last of them.
func (g *group) confAppended(entries []*pb.Entry) {
	if g.conf != nil && g.conf.index == confStepped && len(entries) > 0 {
		g.conf.index = entries[len(entries)-1].GetIndex()
	}
}

// confApplied looks whether an applied entry is the change on its way, and what
// became of it. joint says whether the group is between two configurations now.
func (g *group) confApplied(e *pb.Entry, joint bool, answers *[]func()) { //nolint:revive // joint is data, not a mode
	c := g.conf
	if c == nil {
		return
	}
	if e.GetIndex() == c.index {
		if e.GetType() == pb.EntryNormal {
			g.conf = nil
			*answers = append(*answers, func() { c.done(ErrConfRefused) })
			return
		}
		c.applied = true
	}
	if c.applied && !joint {
		g.conf = nil
		*answers = append(*answers, func() { c.done(nil) })
	}
}

func (g *group) endConf(err error) {
	if c := g.conf; c != nil {
		g.conf = nil
		c.done(err)
	}
}

// lostConf ends the change on its way together with the leadership.
func (g *group) lostConf() {
	if g.conf != nil && g.conf.index == 0 {
		g.endConf(ErrNotLeader)
	}
	g.endConf(ErrUnknown)
}

// configuration returns the one that is applied.
func (g *group) configuration() Conf {
	cs := g.log.Applied().Conf
	return Conf{
		Voters:   slices.Clone(cs.GetVoters()),
		Learners: append(slices.Clone(cs.GetLearners()), cs.GetLearnersNext()...),
		Joint:    len(cs.GetVotersOutgoing()) > 0,
	}
}

// ChangeConf is Stepper.ChangeConf, and waits. More errors: ErrStopped, or the end
// of ctx with ErrUnknown.
func (h *Host) ChangeConf(ctx context.Context, group uint64, changes []Change) error {
	_, err := h.wait(ctx, ErrUnknown, func(s *Stepper, done func(any, error)) {
		s.ChangeConf(group, changes, func(err error) { done(nil, err) })
	})
	return err
}

// SetNodes is Stepper.SetNodes. Errors: ErrBusy and ErrStopped.
func (h *Host) SetNodes(group uint64, nodes map[uint64]string) error {
	return h.post(0, func(s *Stepper) { s.SetNodes(group, nodes) })
}

// Stored returns the raft id of the replica that the disk holds of a group, open
// or not. Errors: ErrNoGroup, ErrBusy, ErrStopped, or the end of ctx.
func (h *Host) Stored(ctx context.Context, group uint64) (uint64, error) {
	a, err := h.wait(ctx, ErrStopped, func(s *Stepper, done func(any, error)) {
		id, err := raftlog.Replica(s.o.DB, group)
		if errors.Is(err, raftlog.ErrNoReplica) {
			err = ErrNoGroup
		}
		done(id, err)
	})
	id, _ := a.(uint64) // 0 with an error
	return id, err
}

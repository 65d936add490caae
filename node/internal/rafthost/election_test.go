package rafthost_test

import (
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/wire"
)

// dies has every other node call one dead, whose messages are lost from now on.
func (f *fabric) dies(n *node) {
	f.isolate(n.id)
	for _, x := range f.nodes {
		if x != n {
			x.stepper.Dead(n.id)
		}
	}
}

// turn lets the next replica stand for election.
func (f *fabric) turn() {
	f.Helper()
	f.now += 50 * time.Millisecond
	f.settle()
}

// owner returns the node that owns a group, other than one; nil if none does.
func (f *fabric) owner(group uint64, but *node) *node {
	for _, n := range f.nodes {
		if n != but && n.state[group].Owns {
			return n
		}
	}
	return nil
}

// succession kills the leader of a quiet group, and reports whether another owns it
// before any clock has ticked.
func succession(t *testing.T, d rafthost.Defect) bool {
	t.Helper()
	f := newBroken(t, d, 1)
	lead := f.elect(1)
	f.meet()
	f.rested()
	f.dies(lead)
	f.settle()
	return f.owner(1, lead) != nil
}

// TestDeathElects: survivors need no timeout to replace a leader that is dead.
func TestDeathElects(t *testing.T) {
	if !succession(t, rafthost.Sound) {
		t.Error("nobody was elected")
	}
	if succession(t, rafthost.CampaignOnly) {
		t.Error("somebody was elected by those who follow the dead: the test proves nothing")
	}
}

// TestTurns: the first of the survivors stands at once, the second only if the first
// does not win.
func TestTurns(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	f.meet()
	f.dies(lead)
	f.settle()
	if n := f.owner(1, lead); n != f.nodes[1] {
		t.Fatalf("%+v owns the group: want n2, which is first", n)
	}
	if term := f.nodes[1].state[1].Term; term != lead.state[1].Term+1 {
		t.Errorf("it does in term %d after term %d: votes were split", term, lead.state[1].Term)
	}

	f = newFabric(t, 1)
	lead = f.elect(1)
	f.meet()
	f.drop = func(_, to string, _ wire.RaftMessage) bool { return to == "n2" }
	f.is("a write that n2 lacks", f.settled(lead.propose(1, "row")), nil)
	f.dies(lead)
	f.settle()
	if n := f.owner(1, lead); n != nil {
		t.Fatalf("%s was elected, and lacks what was acknowledged", n.id)
	}
	f.turn()
	if n := f.owner(1, lead); n != f.nodes[2] {
		t.Errorf("%+v owns the group: want n3, whose turn it is", n)
	}
}

func (f *fabric) settled(r *reply) *reply {
	f.Helper()
	f.settle()
	return r
}

// TestAskedBefore: who misses the leader first is elected as soon as another misses
// it too, without asking again.
func TestAskedBefore(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	f.meet()
	f.isolate(lead.id)
	f.nodes[1].stepper.Dead(lead.id)
	f.settle()
	if f.owner(1, lead) != nil {
		t.Fatal("one elects another alone")
	}
	f.nodes[2].stepper.Dead(lead.id)
	f.settle()
	if n := f.owner(1, lead); n != f.nodes[1] || n.state[1].Term != lead.state[1].Term+1 {
		t.Errorf("%+v owns the group: want n2, which asked before", n)
	}
}

// TestTurnsByPreference: who stands first is whom the group prefers.
func TestTurnsByPreference(t *testing.T) {
	f := &fabric{T: t, groups: []uint64{1}, prefer: func(_ uint64, node string) uint64 { return uint64(node[1]) }}
	f.start()
	lead := f.elect(1)
	f.meet()
	f.dies(lead)
	f.settle()
	if n := f.owner(1, lead); n != f.nodes[2] {
		t.Errorf("%+v owns the group: want n3, which it prefers", n)
	}
}

// partial cuts the leader off from one of its two followers, and returns the terms
// before and after.
func partial(t *testing.T, d rafthost.Defect) (before, after uint64) {
	t.Helper()
	f := newBroken(t, d, 1)
	lead := f.elect(1)
	f.meet()
	f.rested()
	f.drop = func(from, to string, _ wire.RaftMessage) bool {
		return from == "n1" && to == "n2" || from == "n2" && to == "n1"
	}
	before = lead.state[1].Term
	f.nodes[0].stepper.Dead("n2")
	f.nodes[1].stepper.Dead("n1")
	f.settle()
	for range 3 {
		f.tick()
	}
	return before, f.nodes[2].state[1].Term
}

// TestPartialPartition: one who misses a leader that others hear changes nothing.
func TestPartialPartition(t *testing.T) {
	if before, after := partial(t, rafthost.Sound); after != before {
		t.Errorf("term %d became %d", before, after)
	}
	if before, after := partial(t, rafthost.TimeoutNowFromAnyone); after == before {
		t.Error("the defect changes nothing: the test proves nothing")
	}
}

// ordered has a node that does not lead order another to take the group over, and
// reports whether the leader changes.
func ordered(t *testing.T, d rafthost.Defect) bool {
	t.Helper()
	f := newBroken(t, d, 1)
	lead := f.elect(1)
	f.tick()
	f.nodes[1].stepper.Receive("n3", message(pb.MsgTimeoutNow, 1, replica(1, 3), replica(1, 2), lead.state[1].Term))
	f.settle()
	return !lead.state[1].Leads
}

// TestOnlyTheLeaderOrders: a group is handed over by its leader alone.
func TestOnlyTheLeaderOrders(t *testing.T) {
	if ordered(t, rafthost.Sound) {
		t.Error("the leader was deposed")
	}
	if !ordered(t, rafthost.TimeoutNowFromAnyone) {
		t.Error("the defect changes nothing: the test proves nothing")
	}
}

// TestTransferAfterAFalseAlarm: who thought its leader dead for a moment is no
// reason for a hand-over to fail.
func TestTransferAfterAFalseAlarm(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	f.meet()
	f.tick()
	f.drop = func(_, _ string, m wire.RaftMessage) bool { return m.GetType() == pb.MsgPreVote }
	f.nodes[1].stepper.Dead("n1")
	f.settle()
	f.nodes[1].stepper.Alive("n1", 1)
	r := lead.transfer(1, f.nodes[1])
	f.settle()
	f.open("the transfer, whose target stands for election", r)
	for range 2 {
		f.tick()
	}
	f.is("the transfer", r, nil)
	if !f.nodes[1].state[1].Owns {
		t.Errorf("its target is %+v", f.nodes[1].state[1])
	}
}

// late has the words of a dead leader come to both survivors for ever. It reports
// whether they elect another.
func late(t *testing.T, d rafthost.Defect) bool {
	t.Helper()
	f := newBroken(t, d, 1)
	lead := f.elect(1)
	f.meet()
	f.tick()
	var words []parcel
	f.sent = func(n *node, batch []byte) {
		if n == lead {
			words = append(words, parcel{batch: batch})
		}
	}
	lead.stepper.Tick()
	lead.pass()
	f.sent = nil
	f.dies(lead)
	for range 10 {
		for _, n := range f.nodes[1:] {
			for _, w := range words {
				f.check(n.stepper.Deliver(lead.id, 1, w.batch))
			}
		}
		f.turn()
	}
	return f.owner(1, lead) != nil
}

// TestDeadFramesAreNotHeard: what a leader sent before it was declared dead makes
// nobody follow it again.
func TestDeadFramesAreNotHeard(t *testing.T) {
	if !late(t, rafthost.Sound) {
		t.Error("nobody was elected")
	}
	if late(t, rafthost.DeadFrames) {
		t.Error("the defect changes nothing: the test proves nothing")
	}
}

// TestFramesOfALaterLife: a node's later start is heard, its earlier one is not, and
// one that was thought dead is heard once it is heard anew.
func TestFramesOfALaterLife(t *testing.T) {
	f := newFabric(t, 1)
	f.elect(1)
	f.meet()
	n := f.nodes[1]
	hears := func(start uint64) bool {
		m := message(pb.MsgHeartbeat, 1, replica(1, 1), replica(1, 2), 9)
		f.check(n.stepper.Deliver("n1", start, wire.AppendRaft(wire.NewRaftBatch(), 1, m.Message)))
		f.settle()
		p, _ := n.stepper.Progress(1)
		return p.Term == 9
	}
	n.stepper.Alive("n1", 3)
	f.settle()
	if hears(2) {
		t.Error("a start that is over is heard")
	}
	n.stepper.Dead("n1")
	if hears(3) {
		t.Error("a start that was declared dead is heard")
	}
	n.stepper.Alive("n1", 3)
	if !hears(3) {
		t.Error("a start that lives is not heard")
	}
}

// TestParked: a leader that hears no quorum appends nothing. What waited is done
// when the quorum is back, and was not done if another leads.
func TestParked(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	f.meet()
	f.tick()
	last := func() uint64 {
		p, _ := lead.stepper.Progress(1)
		return p.Last
	}
	was := last()
	lead.stepper.Dead("n2")
	r := lead.propose(1, "with one of two")
	f.settle()
	f.is("a write with a quorum", r, nil)
	if was++; last() != was {
		t.Fatalf("the log ends at %d, want %d", last(), was)
	}
	lead.stepper.Dead("n3")
	r = lead.propose(1, "parked")
	f.settle()
	f.open("a write without a quorum", r)
	if last() != was {
		t.Errorf("it is in the log, which ends at %d", last())
	}
	lead.stepper.Alive("n3", 1)
	f.settle()
	f.open("a write before the quorum has answered", r)
	f.tick()
	f.is("a write that waited for the quorum", r, nil)

	lead.stepper.Dead("n3")
	f.isolate(lead.id)
	r = lead.propose(1, "never")
	f.settle()
	for _, n := range f.nodes[1:] {
		n.stepper.Dead(lead.id)
	}
	f.turn()
	next := f.owner(1, lead)
	if next == nil {
		t.Fatal("nobody else was elected")
	}
	f.open("a write without a quorum", r)
	f.drop = nil
	next.stepper.Alive(lead.id, 1)
	lead.stepper.Alive(next.id, 1)
	f.tick()
	f.is("it, when another leads", r, rafthost.ErrNotLeader)
}

// deposed cuts a leader off with a write in its log, and returns what is said of it
// when another leads, who has it too.
func deposed(t *testing.T, d rafthost.Defect) *reply {
	t.Helper()
	f := newBroken(t, d, 1)
	lead := f.elect(1)
	f.meet()
	f.tick()
	f.drop = func(_, to string, _ wire.RaftMessage) bool { return to == lead.id } // it hears nothing of it
	r := lead.propose(1, "row")
	f.settle()
	f.dies(lead)
	f.turn()
	f.drop = nil
	for _, n := range f.nodes[1:] {
		n.stepper.Alive(lead.id, 1)
	}
	f.tick()
	if got := lead.machines[1].texts(); len(got) != 1 || got[0] != "row" {
		t.Fatalf("%q was applied: want the write", got)
	}
	return r
}

// TestAppendedIsUnknown: nobody says of a write in a log that nothing was done.
func TestAppendedIsUnknown(t *testing.T) {
	f := &fabric{T: t}
	f.is("a write that was appended", deposed(t, rafthost.Sound), rafthost.ErrUnknown)
	if r := deposed(t, rafthost.StaleAppended); r.err != rafthost.ErrNotLeader { //nolint:errorlint // the very error
		t.Errorf("the defect says %v: the test proves nothing", r.err)
	}
}

// TestAloneStands: replicas that have no leader for whatever reason wait for no
// timeout of raft's, if a quorum of them lives.
func TestAloneStands(t *testing.T) {
	for _, met := range []bool{true, false} {
		f := newFabric(t, 1)
		if met {
			f.meet()
		}
		ticks := 0
		for ; ticks < electionTicks-1 && f.owner(1, nil) == nil; ticks++ {
			f.tick()
		}
		if f.owner(1, nil) != nil != met {
			t.Errorf("nodes that have met: %v; a leader after %d ticks: %v", met, ticks, !met)
		}
	}
}

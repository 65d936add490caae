package rafthost_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/wire"
)

// votes counts the requests for votes that a node sends, once it sends any.
func (f *fabric) votes(of *node) *int {
	sent := new(int)
	f.sent = func(n *node, batch []byte) {
		f.check(wire.DecodeRaft(batch, func(m wire.RaftMessage) {
			if t := m.GetType(); n == of && (t == pb.MsgVote || t == pb.MsgPreVote) {
				*sent++
			}
		}))
	}
	return sent
}

func (n *node) last(group uint64) uint64 {
	p, _ := n.stepper.Progress(group)
	return p.Last
}

// TestHeldFollower: a follower whose disk is full, or too slow, takes no entries;
// it votes, it writes what it voted, and it catches up by itself.
func TestHeldFollower(t *testing.T) {
	for name, hold := range map[string]func(*rafthost.Stepper, bool){
		"full": (*rafthost.Stepper).Crowded,
		"slow": (*rafthost.Stepper).Slow,
	} {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, 1)
			leader, held := f.elect(1), f.nodes[2]
			before := held.last(1)
			hold(held.stepper, true)
			var all []*reply
			for _, text := range []string{"one", "two", "three"} {
				all = append(all, leader.propose(1, text))
				f.settle()
				f.tick()
			}
			for _, r := range all {
				f.is("a proposal that two of three have", r, nil)
			}
			if held.last(1) != before || len(held.machines[1].texts()) > 0 {
				t.Errorf("it has %d entries, and had %d; applied %q", held.last(1), before, held.machines[1].texts())
			}
			f.isolate(leader.id)
			next := f.nodes[1]
			for range 200 {
				if f.tick(); next.state[1].Leads {
					break
				}
			}
			if !next.state[1].Leads { // by its vote; who lacks entries gets none
				t.Fatalf("nobody else was elected: %+v", next.state[1])
			}
			term := held.state[1].Term
			held.crash()
			hold(held.stepper, true)
			if p, _ := held.stepper.Progress(1); p.Term != term {
				t.Errorf("after a crash it is in term %d, and voted in %d", p.Term, term)
			}
			f.drop = nil
			hold(held.stepper, false)
			for range 3 * electionTicks {
				f.tick()
			}
			if got := held.machines[1].texts(); !slices.Equal(got, []string{"one", "two", "three"}) {
				t.Errorf("it caught up with %q", got)
			}
		})
	}
}

// TestVitalGroupsAreNotHeld: the cluster's metadata reaches a full disk too.
func TestVitalGroupsAreNotHeld(t *testing.T) {
	f := (&fabric{T: t, groups: []uint64{1}, vital: true}).start()
	leader, full := f.elect(1), f.nodes[2]
	full.stepper.Crowded(true)
	f.is("a proposal", f.settledReply(leader.propose(1, "x")), nil)
	f.tick()
	if got := full.machines[1].texts(); !slices.Equal(got, []string{"x"}) {
		t.Errorf("it applied %q", got)
	}
}

// settledReply settles and returns r.
func (f *fabric) settledReply(r *reply) *reply {
	f.Helper()
	f.settle()
	return r
}

// TestFullLeavesElectionsToOthers: of two that are left, the one with space leads.
// If both are full one of them does: reads need a leader.
func TestFullLeavesElectionsToOthers(t *testing.T) {
	f := newFabric(t, 1)
	f.meet()
	leader, roomy, full := f.elect(1), f.nodes[1], f.nodes[2]
	full.stepper.Crowded(true)
	asked := f.votes(full)
	f.isolate(leader.id)
	if next := f.another(1, leader); next != roomy {
		t.Errorf("%s was elected", next.id)
	}
	if *asked > 0 {
		t.Errorf("the full one asked for votes %d times", *asked)
	}
	f.drop = nil
	moved := roomy.transfer(1, full)
	for range 3 * electionTicks {
		f.tick()
	}
	if moved.times != 1 || !errors.Is(moved.err, rafthost.ErrTransfer) {
		t.Errorf("a hand-over to the full one ended %d times, with %v", moved.times, moved.err)
	}

	roomy.stepper.Crowded(true)
	roomy.stepper.CrowdedPeers(map[string]bool{full.id: true})
	full.stepper.CrowdedPeers(map[string]bool{roomy.id: true})
	for _, n := range []*node{roomy, full} {
		n.stepper.Dead(leader.id)
	}
	f.isolate(leader.id)
	roomy.crash() // it forgets that it led
	roomy.stepper.Crowded(true)
	roomy.stepper.CrowdedPeers(map[string]bool{full.id: true})
	roomy.stepper.Alive(full.id, 1)
	next := f.another(1, leader)
	f.is("a read", f.settledReply(next.read(1)), nil)
}

// TestFullIsSentNoSnapshots: a leader tries again when there is space.
func TestFullIsSentNoSnapshots(t *testing.T) {
	f := (&fabric{T: t, groups: []uint64{1}, logBytes: 1}).start()
	leader, away := f.elect(1), f.nodes[2]
	f.isolate(away.id)
	for range 40 {
		leader.propose(1, "x")
		f.tick()
	}
	leader.stepper.CrowdedPeers(map[string]bool{away.id: true})
	f.drop = nil
	for range 3 * electionTicks {
		f.tick()
	}
	if n := len(leader.owed); n > 0 {
		t.Fatalf("%d snapshots are owed to who has no space", n)
	}
	leader.stepper.CrowdedPeers(nil)
	for range 3 * electionTicks {
		f.tick()
	}
	if len(leader.owed) == 0 {
		t.Error("no snapshot is owed to who has space again")
	}
}

// TestFullStandsWhenNoOtherCanWin: the one with the longest log is full, and who has
// space lacks what is committed.
func TestFullStandsWhenNoOtherCanWin(t *testing.T) {
	f := newFabric(t, 1)
	f.meet()
	leader, behind, full := f.elect(1), f.nodes[1], f.nodes[2]
	f.isolate(behind.id)
	f.is("a proposal", f.settledReply(leader.propose(1, "x")), nil)
	f.tick()
	full.stepper.Crowded(true)
	f.isolate(leader.id)
	for _, n := range []*node{behind, full} {
		n.stepper.Dead(leader.id)
	}
	asked := f.votes(full)
	for range electionTicks / 2 {
		f.tick()
	}
	if *asked > 0 {
		t.Errorf("it asked for votes %d times at once", *asked)
	}
	if next := f.another(1, leader); next != full {
		t.Errorf("%s was elected", next.id)
	}
}

// TestFullTakesWhatOlderTermsLeft: a new leader owns nothing before the only other
// one has what the last leader committed; and that is not taken without end.
func TestFullTakesWhatOlderTermsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		n    int
		owns bool
	}{
		"little": {"x", 3, true},
		"much":   {strings.Repeat("x", 1<<20), 18, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFabric(t, 1)
			leader, next, full := f.elect(1), f.nodes[1], f.nodes[2]
			f.isolate(full.id)
			for i := range c.n {
				f.is("a proposal", f.settledReply(leader.propose(1, fmt.Sprint(i, c.text))), nil)
			}
			full.stepper.Crowded(true)
			f.isolate(leader.id)
			for range 6 * electionTicks {
				f.tick()
			}
			if !next.state[1].Leads || next.state[1].Owns != c.owns {
				t.Fatalf("the next leader is %+v", next.state[1])
			}
			if !c.owns {
				return
			}
			last := full.last(1)
			f.open("a proposal that nobody else takes", f.settledReply(next.propose(1, "own")))
			f.tick()
			if full.last(1) != last {
				t.Errorf("the full one has %d entries, and had %d", full.last(1), last)
			}
		})
	}
}

// TestFullCutsMessages: what older terms left is taken also if it comes with entries
// of the leader's own term, which are not.
func TestFullCutsMessages(t *testing.T) {
	f := newFabric(t, 1)
	f.elect(1)
	full := f.nodes[2]
	full.stepper.Crowded(true)
	last, term := full.last(1), full.state[1].Term
	m := message(pb.MsgApp, 1, replica(1, 2), replica(1, 3), term+1)
	m.Index, m.LogTerm = &last, &term
	for i, e := range []struct {
		term uint64
		data string
	}{{term, "older"}, {term + 1, ""}, {term + 1, "own"}} {
		index := last + 1 + uint64(i)
		m.Entries = append(m.Entries, &pb.Entry{Type: pb.EntryNormal.Enum(), Term: &e.term, Index: &index, Data: []byte(e.data)})
	}
	full.stepper.Receive("n2", m)
	full.pass()
	if got := full.last(1); got != last+2 {
		t.Errorf("of three entries behind %d it took those up to %d", last, got)
	}
}

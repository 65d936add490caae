package rafthost_test

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/wire"
)

// swap has two of three voters give way to two others in one change, of which one of
// the old ones has the entry and does not know that it is committed, and the other
// nothing. The old ones are cut off then, and elect one of them. It returns an index
// at which both sides applied an entry, and not the same; 0 if there is none.
func swap(t *testing.T, defect rafthost.Defect) uint64 {
	t.Helper()
	f := newBroken(t, defect, 1)
	lead := f.elect(1)
	f.comes("a write before", lead.propose(1, "before"), nil)
	for _, id := range []uint64{98, 99} {
		f.join(id)
		nodes := f.nodes[0].options(1).Nodes
		for i, n := range f.nodes[3:] {
			nodes[98+uint64(i)] = n.id
		}
		for _, n := range f.nodes {
			n.stepper.SetNodes(1, nodes)
		}
		f.comes("adding", lead.change(1, rafthost.Change{Kind: rafthost.AddLearner, Replica: id}), nil)
	}
	for range 3 {
		f.tick()
	}
	p, _ := lead.stepper.Progress(1)
	for _, x := range p.Peers {
		if x.Match != p.Last {
			t.Fatalf("replica %d has %d of %d entries before the change", x.Replica, x.Match, p.Last)
		}
	}
	entry := p.Last + 1
	f.drop = func(from, to string, m wire.RaftMessage) bool {
		// n2 hears nothing; n3 of no commit that covers the change.
		return from == "n2" || to == "n2" || to == "n3" && m.GetCommit() >= entry
	}
	lead.change(1,
		rafthost.Change{Kind: rafthost.AddVoter, Replica: 98}, rafthost.Change{Kind: rafthost.AddVoter, Replica: 99},
		rafthost.Change{Kind: rafthost.RemoveReplica, Replica: 12}, rafthost.Change{Kind: rafthost.RemoveReplica, Replica: 13})
	f.settle()
	old := map[string]bool{"n2": true, "n3": true}
	f.drop = func(from, to string, _ wire.RaftMessage) bool { return old[from] != old[to] }
	lead.propose(1, "one")
	for range 40 {
		f.tick()
	}
	terms := map[uint64]uint64{} // of the entries that the leader of the new ones applied
	for _, e := range lead.machines[1].applied {
		terms[e.Index] = e.Term
	}
	for _, n := range f.nodes[1:3] {
		if n.state[1].Term == lead.state[1].Term {
			t.Fatalf("%s never stood for election: %+v", n.id, n.state[1])
		}
		for _, e := range n.machines[1].applied {
			if term := terms[e.Index]; term != 0 && term != e.Term {
				return e.Index
			}
		}
	}
	return 0
}

// TestVotersChangeThroughBoth shows what joint configurations are for: two voters
// that give way at once leave two quorums that do not meet.
func TestVotersChangeThroughBoth(t *testing.T) {
	if at := swap(t, rafthost.Sound); at != 0 {
		t.Errorf("two entries are entry %d", at)
	}
	if at := swap(t, rafthost.VotersAtOnce); at == 0 {
		t.Error("without a joint configuration nothing happened: this test cannot find it")
	}
}

// TestConfIsStoredWithTheRows crashes a replica right behind a change of the
// configuration: what it has applied and its configuration are of one moment.
func TestConfIsStoredWithTheRows(t *testing.T) {
	crashed := func(defect rafthost.Defect) rafthost.Progress {
		f := newBroken(t, defect, 1)
		lead := f.elect(1)
		f.comes("a write before", lead.propose(1, "before"), nil)
		f.comes("the change", lead.change(1, rafthost.Change{Kind: rafthost.AddLearner, Replica: 99}), nil)
		f.tick()
		f.tick()
		applied, _ := f.nodes[1].stepper.Progress(1)
		f.drop = func(_, _ string, m wire.RaftMessage) bool { return m.GetType() == pb.MsgAppResp }
		lead.propose(1, "synced, and not committed")
		f.settle()
		f.nodes[1].crash()
		p, _ := f.nodes[1].stepper.Progress(1)
		if p.Applied != applied.Applied {
			t.Fatalf("applied %d before the crash and %d after it", applied.Applied, p.Applied)
		}
		return p
	}
	if p := crashed(rafthost.Sound); len(p.Conf.Learners) != 1 {
		t.Errorf("entry %d is applied, and the configuration is %+v", p.Applied, p.Conf)
	}
	if p := crashed(rafthost.ConfNotWithRows); len(p.Conf.Learners) != 0 {
		t.Errorf("the defect left %+v: this test cannot find it", p.Conf)
	}
}

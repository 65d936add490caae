package rafthost_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/raftlog"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// broken returns what a batch of messages promises and the synced part of its
// sender's disk does not hold. It looks at the disk as a crash at this very
// moment would leave it.
func broken(n *node, batch []byte) []string {
	n.f.Helper()
	var promises []wire.RaftMessage
	n.f.check(wire.DecodeRaft(batch, func(m wire.RaftMessage) {
		switch m.GetType() {
		case pb.MsgAppResp, pb.MsgVoteResp:
			if !m.GetReject() {
				promises = append(promises, m)
			}
		default:
		}
	}))
	if len(promises) == 0 {
		return nil
	}
	db, err := store.Open("db", store.Options{FS: n.fs.CrashClone(vfs.CrashCloneCfg{})})
	n.f.check(err)
	defer func() { n.f.check(db.Close()) }()
	var out []string
	for _, m := range promises {
		l, err := raftlog.Open(db, m.Group, raftlog.NewCache(0))
		n.f.check(err)
		last, _ := l.LastIndex()
		switch h := l.Hard(); {
		case h.Term < m.GetTerm():
			out = append(out, fmt.Sprintf("%s: term %d is promised, %d is stored", m.GetType(), m.GetTerm(), h.Term))
		case m.GetType() == pb.MsgVoteResp && h.Vote != m.GetTo():
			out = append(out, fmt.Sprintf("a vote for %d is promised, one for %d is stored", m.GetTo(), h.Vote))
		case m.GetType() == pb.MsgAppResp && last < m.GetIndex():
			out = append(out, fmt.Sprintf("entry %d is promised, %d are stored", m.GetIndex(), last))
		}
	}
	return out
}

// TestPromisesLeaveAfterTheSync looks at each answer that leaves a node, while
// leaders are elected and entries replicated. The two defects that break it must
// be seen: otherwise the look proves nothing.
func TestPromisesLeaveAfterTheSync(t *testing.T) {
	for _, test := range []struct {
		name   string
		defect rafthost.Defect
		want   bool
	}{
		{"sound", rafthost.Sound, false},
		{"ack before sync", rafthost.AckBeforeSync, true},
		{"vote not persisted", rafthost.VoteNotPersisted, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newBroken(t, test.defect, 1, 2)
			var found []string
			looked := 0
			f.sent = func(n *node, batch []byte) {
				looked++
				found = append(found, broken(n, batch)...)
			}
			lead := f.elect(1)
			for i := range 5 {
				lead.propose(1, fmt.Sprint("a", i))
				lead.propose(2, fmt.Sprint("b", i))
				f.settle()
				lead.propose(1, fmt.Sprint("c", i)) // in a pass with news of the other group, of which nothing is promised
				f.tick()
			}
			tr := lead.transfer(1, f.nodes[1])
			f.settle()
			f.is("the transfer", tr, nil)
			f.sent = nil
			if looked < 20 {
				t.Errorf("only %d batches left", looked)
			}
			if (len(found) > 0) != test.want {
				t.Errorf("broken promises: %q", found)
			}
		})
	}
}

// TestAnswersAreDurable crashes nodes to what they synced: what was answered is
// on a quorum's disks, and no replica is ahead of the entries that it has.
func TestAnswersAreDurable(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	var acked []string
	for i := range 10 {
		text := fmt.Sprint("text ", i)
		r := lead.propose(1, text)
		f.settle()
		f.is("a write", r, nil)
		acked = append(acked, text)
	}
	for _, n := range f.nodes {
		n.crash()
		p, _ := n.stepper.Progress(1)
		if p.Applied > p.Commit || p.Commit > p.Last {
			t.Errorf("%s came back with applied %d, commit %d, last %d", n.id, p.Applied, p.Commit, p.Last)
		}
	}
	next := f.elect(2)
	r := next.propose(1, "after")
	f.settle()
	f.tick()
	f.is("a write after the crash of all", r, nil)
	for _, n := range f.nodes {
		var got []string
		f.check(n.db.Scan(store.GroupKey(1, store.SubState), store.GroupEnd(1, store.SubState), func(_, v []byte) error {
			got = append(got, string(v[16:]))
			return nil
		}))
		if want := append(slices.Clone(acked), "after"); !slices.Equal(got, want) {
			t.Errorf("%s has %q, want %q", n.id, got, want)
		}
	}
}

// TestVotesSurvive crashes a voter after its answer left: it must not vote twice
// in one term.
func TestVotesSurvive(t *testing.T) {
	f := newFabric(t, 1)
	f.settle()
	voter := f.nodes[2]
	ask := func(from int) pb.Message {
		t.Helper()
		voter.out = nil
		m := message(pb.MsgVote, 1, replica(1, from), replica(1, 3), 5)
		m.LogTerm, m.Index = new(uint64), new(uint64)
		m.Context = []byte("CampaignTransfer") // asks also while another leads
		voter.stepper.Receive(fmt.Sprint("n", from), m)
		for voter.stepper.Dirty() {
			voter.pass()
		}
		var answer pb.Message
		for _, p := range voter.out {
			f.check(wire.DecodeRaft(p.batch, func(m wire.RaftMessage) {
				if m.GetType() == pb.MsgVoteResp {
					answer.Reject, answer.Term = m.Reject, m.Term
				}
			}))
		}
		return pb.Message{Reject: answer.Reject, Term: answer.Term}
	}
	if m := ask(1); m.GetReject() || m.GetTerm() != 5 {
		t.Fatalf("the first vote: %v", &m)
	}
	voter.crash()
	if m := ask(2); !m.GetReject() || m.GetTerm() != 5 {
		t.Errorf("after a crash it votes for another in the same term: %v", &m)
	}
	if m := ask(1); m.GetReject() {
		t.Errorf("it takes back the vote that it gave: %v", &m)
	}
	voter.out = nil
}

// TestOneSyncAPass changes many groups in one pass: the disk is synced once.
func TestOneSyncAPass(t *testing.T) {
	groups := []uint64{1, 2, 3, 4, 5, 6, 7, 8}
	f := newFabric(t, groups...)
	lead := f.elect(1)
	before := lead.stepper.Synced()
	for _, g := range groups {
		lead.propose(g, "x")
	}
	lead.pass()
	if n := lead.stepper.Synced() - before; n != 1 {
		t.Errorf("a pass over %d groups made %d synced batches", len(groups), n)
	}
	follower := f.nodes[1]
	before = follower.stepper.Synced()
	out := lead.out
	lead.out = nil
	for _, p := range out {
		f.deliver(lead, p)
	}
	follower.pass()
	if n := follower.stepper.Synced() - before; n != 1 {
		t.Errorf("a follower's pass made %d synced batches", n)
	}
	f.settle()
	// What only moves a commit is not waited for.
	before = follower.stepper.Synced()
	f.tick()
	if follower.gauges[1].Commit.Load() != 2 {
		t.Fatalf("the follower's commit is %d", follower.gauges[1].Commit.Load())
	}
	if n := follower.stepper.Synced() - before; n != 0 {
		t.Errorf("a commit alone made %d synced batches", n)
	}
	synced := follower.stepper.Synced()
	follower.crash()
	if got := follower.stepper.Synced(); got != synced {
		t.Errorf("pass %d was synced, and %d is on the disk", synced, got)
	}
}

// TestCommitMovesWithTheRows crashes right after an apply that was synced by
// somebody else's batch.
func TestCommitMovesWithTheRows(t *testing.T) {
	for _, test := range []struct {
		name   string
		defect rafthost.Defect
		behind bool
	}{
		{"sound", rafthost.Sound, false},
		{"commit not with rows", rafthost.CommitNotWithRows, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newBroken(t, test.defect, 1)
			lead := f.elect(1)
			behind := false
			look := func(n *node) {
				t.Helper()
				b := n.db.NewBatch()
				b.Set([]byte{0x01, 0x7f}, nil)
				f.check(b.Commit(true))
				db, err := store.Open("db", store.Options{FS: n.fs.CrashClone(vfs.CrashCloneCfg{})})
				f.check(err)
				l, err := raftlog.Open(db, 1, raftlog.NewCache(0))
				f.check(err)
				behind = behind || l.Hard().Commit < l.Applied().Index
				f.check(db.Close())
			}
			// Answers come between the batch of the applies and that of the hard
			// states: the place for a crash.
			for i := range 5 {
				lead.stepper.Propose(1, [16]byte{byte(i + 1)}, append([]byte{byte(i + 1), 15: 0}, "text"...), func(_ any, err error) {
					f.check(err)
					look(lead)
				})
				f.settle()
			}
			if behind != test.behind {
				t.Errorf("a stored commit was behind what is applied: %t", behind)
			}
		})
	}
}

// TestFailedWriteIsTold: a synced batch that the database does not take is an error
// of what wrote it, and no pass.
func TestFailedWriteIsTold(t *testing.T) {
	f := newFabric(t, 1)
	f.elect(1)
	db, err := store.Open("db", store.Options{FS: f.nodes[0].fs.CrashClone(vfs.CrashCloneCfg{}), ReadOnly: true})
	f.check(err)
	defer func() { f.check(db.Close()) }()
	s, err := rafthost.NewStepper(rafthost.Options{DB: db})
	f.check(err)
	before := s.Synced()
	if err := s.Remove(1); err == nil {
		t.Error("a replica is removed from a disk that takes nothing")
	}
	if s.Synced() != before {
		t.Errorf("pass %d counts as synced, after %d", s.Synced(), before)
	}
}

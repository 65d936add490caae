package rafthost_test

import (
	"fmt"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/wire"
)

// electionTicks is the steppers' own default.
const electionTicks = 10

// meet tells every node that all the others are alive.
func (f *fabric) meet() {
	for _, n := range f.nodes {
		for _, x := range f.nodes {
			if x != n {
				n.stepper.Alive(x.id, 1)
			}
		}
	}
}

// rested ticks until every node's groups are quiet.
func (f *fabric) rested(nodes ...*node) {
	f.Helper()
	if len(nodes) == 0 {
		nodes = f.nodes
	}
	for range 5 * electionTicks {
		awake := 0
		for _, n := range nodes {
			awake += n.stepper.Awake()
		}
		if awake == 0 {
			return
		}
		f.tick()
	}
	for _, n := range f.nodes {
		f.Errorf("%s has %d groups awake: %+v", n.id, n.stepper.Awake(), n.state)
	}
	f.Fatal("the groups are never quiet")
}

// count counts the messages of group 1 that leave while f runs, by kind.
func (f *fabric) count(run func()) map[string]int {
	f.Helper()
	out := map[string]int{}
	before := f.sent
	defer func() { f.sent = before }()
	f.sent = func(_ *node, batch []byte) {
		f.check(wire.DecodeRaft(batch, func(m wire.RaftMessage) {
			kind := m.GetType().String()
			switch {
			case m.Word != nil:
				kind = "word"
			case m.GetType() == wire.MsgCut:
				kind = "cut"
			case m.GetType() == pb.MsgApp && len(m.GetEntries()) == 0:
				kind = "commit"
			}
			out[kind]++
		}))
	}
	run()
	return out
}

// TestWordsReplaceHeartbeats: nothing of raft's own goes to and fro between nodes
// that keep up, and check-quorum is content.
func TestWordsReplaceHeartbeats(t *testing.T) {
	f := newFabric(t, 1) // nobody is known to be alive, so nothing is quiet
	lead := f.elect(1)
	f.tick()
	term := lead.state[1].Term
	got := f.count(func() {
		for range 5 * electionTicks {
			f.tick()
		}
	})
	delete(got, "cut")                                     // said a few times, then never again
	if len(got) != 1 || got["word"] != 4*5*electionTicks { // to two followers, and back
		t.Errorf("%v was sent in %d ticks: want words alone, four a tick", got, 5*electionTicks)
	}
	if s := lead.state[1]; !s.Owns || s.Term != term {
		t.Errorf("the leader of term %d is %+v", term, s)
	}
	f.isolate(lead.id)
	for range 2*electionTicks + 1 {
		f.tick()
	}
	if lead.state[1].Leads {
		t.Error("a leader that hears nobody leads still")
	}
}

// TestFollowersStayActive: in no phase of check-quorum does a follower that keeps up
// count as one that does not answer. One that is away does so in time.
func TestFollowersStayActive(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	active := func() (n int) {
		p, _ := lead.stepper.Progress(1)
		for _, x := range p.Peers {
			if x.Active {
				n++
			}
		}
		return n
	}
	f.tick()
	for i := range 3 * electionTicks {
		lead.stepper.Tick()
		lead.pass()
		if active() != 2 {
			t.Errorf("tick %d: %d followers are active", i, active())
		}
		f.settle()
		for _, n := range f.nodes[1:] {
			n.stepper.Tick()
		}
		f.settle()
	}
	f.isolate("n3")
	for range 2*electionTicks + 1 {
		f.tick()
	}
	if active() != 1 {
		t.Errorf("%d followers are active, and one is away", active())
	}
}

// TestCommitsTravelWithHeartbeats: an append without entries is not sent, and a
// follower knows of the commit after the next tick. A restless group's at once.
func TestCommitsTravelWithHeartbeats(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	f.tick()
	var w *reply
	got := f.count(func() {
		w = lead.propose(1, "row")
		f.settle()
	})
	f.is("the write", w, nil)
	if got["commit"] != 0 || got["MsgApp"] != 2 {
		t.Errorf("%v was sent for one write: want two appends and no word of the commit", got)
	}
	for _, n := range f.nodes[1:] {
		if at := n.gauges[1].Applied.Load(); at != 1 {
			t.Errorf("%s has applied entry %d before the tick", n.id, at)
		}
	}
	f.tick()
	for _, n := range f.nodes[1:] {
		if g := n.gauges[1]; g.Applied.Load() != 2 || g.Frontier.Load() != 2 {
			t.Errorf("%s has applied %d of %d after the tick", n.id, g.Applied.Load(), g.Frontier.Load())
		}
	}

	f = newRestless(t, 1)
	lead = f.elect(1)
	f.tick()
	lead.propose(1, "row")
	f.settle()
	for _, n := range f.nodes[1:] {
		if at := n.gauges[1].Applied.Load(); at != 2 {
			t.Errorf("%s has applied entry %d of a restless group", n.id, at)
		}
	}
	f.meet()
	for range 3 * electionTicks {
		f.tick()
	}
	if lead.stepper.Awake() != 1 {
		t.Error("a restless group is quiet")
	}
}

// TestLostAppendsAreFound: what is withheld must not hide that a follower lacks
// entries which the leader takes for sent.
func TestLostAppendsAreFound(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	f.tick()
	f.drop = func(_, to string, m wire.RaftMessage) bool { return to == "n3" && m.GetType() == pb.MsgApp }
	for i := range 3 {
		lead.propose(1, fmt.Sprint("row ", i))
		f.settle()
	}
	f.drop = nil
	for range 3 {
		f.tick()
	}
	if got := f.nodes[2].machines[1].texts(); len(got) != 3 {
		t.Errorf("after three ticks the follower has applied %q", got)
	}
}

// TestQuiet: a group that nobody uses costs nothing, for ever, and is there when
// it is wanted.
func TestQuiet(t *testing.T) {
	f := newFabric(t, 1, 2)
	lead := f.elect(1)
	f.meet()
	lead.propose(1, "before")
	f.rested()
	for range 50 {
		f.tick() // what was cut from the logs is said by then
	}
	got := f.count(func() {
		for range 10 * electionTicks {
			f.tick()
		}
	})
	if len(got) != 0 {
		t.Errorf("%v was sent while all was quiet", got)
	}
	for _, n := range f.nodes {
		if at := n.gauges[1].Applied.Load(); at != 2 {
			t.Errorf("%s rests at entry %d: the last commit was not told", n.id, at)
		}
	}
	term := lead.state[1].Term
	w, r := lead.propose(1, "after"), lead.read(1)
	f.settle()
	f.is("a write", w, nil)
	f.is("a read", r, nil)
	for range 3 {
		f.tick()
	}
	if s := lead.state[1]; !s.Owns || s.Term != term {
		t.Errorf("waking cost the lead: %+v", s)
	}
	if n := lead.stepper.Awake(); n != 1 {
		t.Errorf("%d groups are awake, and one is used", n)
	}
	f.rested()
	tr := lead.transfer(1, f.nodes[1])
	f.settle()
	f.is("a hand-over", tr, nil)
	f.rested()
	if s := f.nodes[1].state[1]; !s.Owns {
		t.Errorf("after the hand-over: %+v", s)
	}
}

// TestQuietFollowersAreActive: a quiet group can be handed over, in whatever phase
// of check-quorum it came to rest.
func TestQuietFollowersAreActive(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	f.meet()
	for phase := range electionTicks + 2 {
		for range phase {
			f.tick()
		}
		lead.propose(1, "row")
		f.settle()
		f.rested()
		p, _ := lead.stepper.Progress(1)
		for _, x := range p.Peers {
			if !x.Active {
				t.Errorf("phase %d: %s counts as dead", phase, x.Node)
			}
		}
	}
}

// TestQuietNeedsAll goes through what keeps a group awake.
func TestQuietNeedsAll(t *testing.T) {
	awake := func(f *fabric, what string) {
		t.Helper()
		for range 3 * electionTicks {
			f.tick()
		}
		if f.nodes[0].stepper.Awake() == 0 {
			t.Errorf("%s: the leader rests", what)
		}
	}
	f := newFabric(t, 1)
	f.elect(1)
	awake(f, "nobody is known to be alive")

	f = newFabric(t, 1)
	f.elect(1)
	f.meet()
	f.drop = func(_, to string, m wire.RaftMessage) bool { return to == "n3" && m.GetType() == pb.MsgApp }
	f.nodes[0].propose(1, "row")
	awake(f, "a live follower lacks an entry")

	f = newFabric(t, 1)
	f.elect(1)
	f.meet()
	f.drop = func(from, _ string, m wire.RaftMessage) bool { return from == "n3" && m.Word != nil }
	awake(f, "a live follower has not said that it rests")

	f = newFabric(t, 1)
	f.elect(1)
	f.meet()
	f.drop = func(_, to string, m wire.RaftMessage) bool { return to != "n1" && m.Word != nil && m.Word.Rest }
	for range 3 * electionTicks {
		f.tick()
	}
	for _, n := range f.nodes[1:] {
		if n.stepper.Awake() == 0 {
			t.Errorf("%s rests without its leader's word", n.id)
		}
	}
}

// TestQuietWithoutTheDead: a dead voter keeps nobody awake, but without a quorum
// nobody may rest.
func TestQuietWithoutTheDead(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	f.meet()
	f.rested()
	f.isolate("n3")
	for _, n := range f.nodes[:2] {
		n.stepper.Dead("n3")
	}
	w := lead.propose(1, "row")
	f.settle()
	f.is("a write with one dead voter", w, nil)
	f.rested(f.nodes[:2]...)
	lead.stepper.Dead("n2")
	f.drop = func(string, string, wire.RaftMessage) bool { return true }
	for range 3 * electionTicks {
		f.tick()
	}
	if lead.state[1].Leads {
		t.Error("a leader rests on a lead that it has lost")
	}
}

// TestDeathWakes: a leader that is silent for too long is missed in time.
func TestDeathWakes(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	f.meet()
	f.rested()
	f.isolate(lead.id)
	for range 5 * electionTicks {
		f.tick()
	}
	if f.nodes[1].state[1].Lead != replica(1, 1) {
		t.Fatal("a quiet group elected somebody: the test shows nothing")
	}
	for _, n := range f.nodes[1:] {
		n.stepper.Dead(lead.id)
	}
	f.another(1, lead)
}

// reborn kills the leader of a quiet group and has its node say hello again, with
// its replica not open. It reports whether the others elect somebody in time.
func reborn(t *testing.T, d rafthost.Defect) bool {
	t.Helper()
	f := newBroken(t, d, 1)
	lead := f.elect(1)
	f.meet()
	f.rested()
	f.isolate(lead.id)
	for _, n := range f.nodes[1:] {
		n.stepper.Alive(lead.id, 2)
	}
	for range 20 * electionTicks {
		f.tick()
		for _, n := range f.nodes[1:] {
			if n.state[1].Owns {
				return true
			}
		}
	}
	return false
}

// TestIncarnationIsADeath: a node that was away for less time than anybody needs
// to notice leads nothing any more.
func TestIncarnationIsADeath(t *testing.T) {
	if !reborn(t, rafthost.Sound) {
		t.Error("nobody was elected")
	}
	if reborn(t, rafthost.IncarnationNoDeath) {
		t.Error("the defect changes nothing: the test proves nothing")
	}
}

// TestReplacedDisk: the starts of a node's new disk are counted anew. A node that
// was thought dead for ever would not be waited for when a group goes to rest.
func TestReplacedDisk(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	f.meet()
	back := f.nodes[1]
	for _, n := range f.nodes {
		if n != back {
			n.stepper.Alive(back.id, 7)
		}
	}
	f.rested()
	f.isolate(back.id)
	for _, n := range f.nodes {
		if n != back {
			n.stepper.Dead(back.id)
			n.stepper.Replaced(back.id)
			n.stepper.Alive(back.id, 1)
		}
	}
	for range 5 * electionTicks {
		f.tick()
	}
	if lead.stepper.Awake() == 0 {
		t.Error("the group rests, and a node that is alive does not answer")
	}
	p, _ := lead.stepper.Progress(1)
	for _, x := range p.Peers {
		if x.Node == back.id && x.Active {
			t.Error("a node that does not answer is active")
		}
	}
}

// orphan takes a group's only leader away before the others know another.
func orphan(t *testing.T, d rafthost.Defect) bool {
	t.Helper()
	f := newBroken(t, d, 1)
	f.meet()
	f.settle()
	for range 20 * electionTicks {
		f.tick()
		for _, n := range f.nodes {
			if n.state[1].Owns {
				return true
			}
		}
	}
	return false
}

func TestNeverQuietWithoutLeader(t *testing.T) {
	if !orphan(t, rafthost.Sound) {
		t.Error("nobody was elected")
	}
	if orphan(t, rafthost.QuietWithoutLeader) {
		t.Error("the defect changes nothing: the test proves nothing")
	}
}

// returned lets a follower miss the last entry of a group that is quiet then, and
// comes back. It reports whether the follower has it after two ticks.
func returned(t *testing.T, d rafthost.Defect) bool {
	t.Helper()
	f := newBroken(t, d, 1)
	lead, away := f.elect(1), f.nodes[2]
	f.meet()
	f.rested()
	f.isolate(away.id)
	for _, n := range f.nodes[:2] {
		n.stepper.Dead(away.id)
	}
	lead.propose(1, "missed")
	f.rested(f.nodes[:2]...)
	f.drop = nil
	// The connection broke and stands again, before anybody was called dead on the
	// other side, and nobody counts hellos.
	lead.stepper.Welcome(away.id)
	for range 2 {
		f.tick()
	}
	return away.gauges[1].Applied.Load() == lead.gauges[1].Applied.Load()
}

// TestReturningFollowerIsTold: a new connection begins with a word about all
// groups, quiet or not.
func TestReturningFollowerIsTold(t *testing.T) {
	if !returned(t, rafthost.Sound) {
		t.Error("the follower lacks the entry")
	}
	if returned(t, rafthost.NoWordToReturning) {
		t.Error("the defect changes nothing: the test proves nothing")
	}
}

// diverged lets a deposed leader, with an entry of its own that nobody else has,
// hear the heartbeats of the next one and none of its appends.
func diverged(t *testing.T, d rafthost.Defect) (texts []string) {
	t.Helper()
	f := newBroken(t, d, 1)
	old := f.elect(1)
	f.tick()
	f.isolate(old.id)
	for range 5 {
		old.propose(1, "own")
	}
	f.settle()
	next := f.another(1, old)
	next.propose(1, "other")
	f.settle()
	f.drop = func(_, to string, m wire.RaftMessage) bool { return to == old.id && m.GetType() == pb.MsgApp }
	for range 3 {
		f.tick()
	}
	return old.machines[1].texts()
}

// TestCommitIsCapped: what a heartbeat calls committed, its receiver has.
func TestCommitIsCapped(t *testing.T) {
	if got := diverged(t, rafthost.Sound); len(got) != 0 {
		t.Errorf("a deposed leader applied %q", got)
	}
	if got := diverged(t, rafthost.CommitNotCapped); len(got) == 0 {
		t.Error("the defect changes nothing: the test proves nothing")
	}
}

package rafthost_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/wire"
)

func TestProposalsAreAnsweredInOrder(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	var order []string
	for i := range 20 {
		text := fmt.Sprintf("text %02d", i)
		lead.stepper.Propose(1, [16]byte{byte(i + 1)}, append([]byte{byte(i + 1), 15: 0}, text...), func(a any, err error) {
			f.check(err)
			order = append(order, fmt.Sprint(a))
		})
	}
	f.settle()
	f.tick() // followers learn the commit
	var want, texts []string
	for i := range 20 {
		texts = append(texts, fmt.Sprintf("text %02d", i))
		want = append(want, fmt.Sprintf("%s at %d", texts[i], i+2)) // the term's first entry is raft's
	}
	if !slices.Equal(order, want) {
		t.Errorf("answers %q, want %q", order, want)
	}
	for _, n := range f.nodes {
		if got := n.machines[1].texts(); !slices.Equal(got, texts) {
			t.Errorf("%s applied %q", n.id, got)
		}
		if g := n.gauges[1]; g.Applied.Load() != 21 || g.Commit.Load() != 21 {
			t.Errorf("%s shows commit %d and applied %d", n.id, g.Commit.Load(), g.Applied.Load())
		}
	}
}

func TestRefusals(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	follower := f.nodes[1]
	f.is("a proposal to no group", lead.propose(9, "x"), rafthost.ErrNoGroup)
	f.is("a read of no group", lead.read(9), rafthost.ErrNoGroup)
	f.is("a transfer of no group", lead.transfer(9, follower), rafthost.ErrNoGroup)
	p, r, tr := follower.propose(1, "x"), follower.read(1), follower.transfer(1, lead)
	f.settle()
	f.is("a proposal to a follower", p, rafthost.ErrNotLeader)
	f.is("a read of a follower", r, rafthost.ErrNotLeader)
	f.is("a transfer by a follower", tr, rafthost.ErrNotLeader)
	f.is("a transfer to itself", lead.transfer(1, lead), rafthost.ErrTransfer)
	r = &reply{}
	lead.stepper.Transfer(1, 99, r.ended)
	f.is("a transfer to nobody", r, rafthost.ErrTransfer)
	if got := lead.machines[1].texts(); got != nil {
		t.Errorf("%q was applied", got)
	}
}

func TestFullQueueIsBusy(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	big := strings.Repeat("x", 1<<20)
	var taken []*reply
	for i := range 40 {
		r := lead.propose(1, fmt.Sprintf("%02d%s", i, big))
		if r.times == 0 {
			taken = append(taken, r)
			continue
		}
		f.is("a proposal to a full queue", r, rafthost.ErrBusy)
	}
	if len(taken) < 14 || len(taken) > 16 {
		t.Errorf("%d MiB were queued: the bound is 16 MiB", len(taken))
	}
	lead.stepper.Stop()
	for i, r := range taken {
		f.is(fmt.Sprint("queued proposal ", i), r, rafthost.ErrNotLeader)
	}
	r := lead.propose(1, "after")
	f.settle()
	f.is("a proposal after the queue is empty", r, nil)
}

// TestLostLeaderDoesNotKnow cuts a leader off with a proposal under way.
func TestLostLeaderDoesNotKnow(t *testing.T) {
	for _, arrives := range []bool{false, true} {
		f := newFabric(t, 1)
		old := f.elect(1)
		f.drop = func(from, to string, m wire.RaftMessage) bool {
			return to == old.id || from == old.id && (!arrives || m.GetType() != pb.MsgApp)
		}
		appended := old.propose(1, "appended")
		reading := old.read(1)
		f.settle()
		f.open("a proposal without a quorum", appended)
		f.isolate(old.id)
		next := f.another(1, old)
		for range 20 { // check-quorum deposes the old leader
			f.tick()
		}
		f.is("a proposal that raft had accepted", appended, rafthost.ErrUnknown)
		f.is("a read that was not confirmed", reading, rafthost.ErrNotLeader)
		late := old.propose(1, "late")
		f.settle()
		f.is("a proposal to a deposed leader", late, rafthost.ErrNotLeader)
		f.drop = nil
		after := next.propose(1, "after")
		f.tick()
		f.tick()
		f.is("a proposal to the new leader", after, nil)
		want := []string{"after"}
		if arrives {
			want = []string{"appended", "after"} // unknown it was, and rightly
		}
		for _, n := range f.nodes {
			if got := n.machines[1].texts(); !slices.Equal(got, want) {
				t.Errorf("arrives %t: %s applied %q, want %q", arrives, n.id, got, want)
			}
		}
	}
}

func TestTransfer(t *testing.T) {
	f := newFabric(t, 1)
	old, next := f.elect(1), f.nodes[1]
	before := old.propose(1, "before")
	f.settle()
	f.is("a proposal before", before, nil)
	tr := old.transfer(1, next)
	second := old.transfer(1, f.nodes[2])
	queued := old.propose(1, "queued")
	old.pass()
	f.is("a second transfer", second, rafthost.ErrBusy)
	f.open("a proposal while the group is handed over", queued)
	f.settle()
	f.is("the transfer", tr, nil)
	f.is("the proposal that waited", queued, rafthost.ErrNotLeader)
	if !next.state[1].Owns || old.state[1].Leads || old.state[1].Lead != replica(1, 2) {
		t.Errorf("after the transfer: old %+v, new %+v", old.state[1], next.state[1])
	}
	after := next.propose(1, "after")
	f.settle()
	f.tick()
	f.is("a proposal to the new leader", after, nil)
	for _, n := range f.nodes {
		if got := n.machines[1].texts(); !slices.Equal(got, []string{"before", "after"}) {
			t.Errorf("%s applied %q: a proposal that ended as not-leader must not be among them", n.id, got)
		}
	}
}

func TestTransferToADeadNode(t *testing.T) {
	f := newFabric(t, 1)
	lead, dead := f.elect(1), f.nodes[2]
	f.isolate(dead.id)
	tr := lead.transfer(1, dead)
	queued, reading := lead.propose(1, "queued"), lead.read(1)
	f.settle()
	for range 5 {
		f.tick()
	}
	f.open("the transfer", tr)
	f.open("the proposal that waits for it", queued)
	for range 10 {
		f.tick()
	}
	f.is("the transfer", tr, rafthost.ErrTransfer)
	f.is("the proposal that waited", queued, nil)
	f.is("the read meanwhile", reading, nil)
	if !lead.state[1].Owns {
		t.Error("the leader has lost the group")
	}
	again := lead.transfer(1, f.nodes[1])
	f.settle()
	f.is("a transfer to a live node after that", again, nil)
}

// TestReadsWaitForTheLeadersOwnEntry elects a leader whose first entry nobody
// gets: it does not know yet what the last leader acknowledged.
func TestReadsWaitForTheLeadersOwnEntry(t *testing.T) {
	f := newFabric(t, 1)
	f.drop = func(_, _ string, m wire.RaftMessage) bool { return m.GetType() == pb.MsgApp }
	lead := f.nodes[0]
	f.settle()
	lead.stepper.Campaign(1)
	f.settle()
	if s := lead.state[1]; !s.Leads || s.Owns {
		t.Fatalf("the leader is %+v", s)
	}
	reading := lead.read(1)
	f.settle()
	f.tick()
	f.open("a read of a leader that owns nothing", reading)
	f.drop = nil
	f.tick()
	f.tick()
	f.is("the read, once the leader owns the group", reading, nil)
	if !lead.state[1].Owns {
		t.Errorf("the leader is %+v", lead.state[1])
	}
}

// TestReadsOfOneVoterWaitToo crashes a group's only voter after an answer: the
// commit index that it knows then is older than what it acknowledged.
func TestReadsOfOneVoterWaitToo(t *testing.T) {
	f := newFabric(t, 1)
	n := f.nodes[0]
	n.stepper, n.gauges[2], n.machines[2] = nil, &rafthost.Gauge{}, &machine{group: 2}
	open := func() {
		var err error
		n.stepper, err = rafthost.NewStepper(rafthost.Options{DB: n.db, Sender: n})
		f.check(err)
		o := n.options(2)
		o.Voters = o.Voters[:1]
		f.check(n.stepper.Add(o))
		n.stepper.Campaign(2)
	}
	run := func() {
		for n.stepper.Dirty() {
			n.pass()
		}
	}
	open()
	run()
	w := n.propose(2, "acknowledged")
	run()
	f.is("the write", w, nil)
	n.crash()
	n.gauges[2], n.machines[2] = &rafthost.Gauge{}, &machine{group: 2}
	open()
	if p, _ := n.stepper.Progress(2); p.Commit >= p.Last {
		t.Fatalf("the crash set nothing back: %+v", p)
	}
	saw := uint64(0)
	for i := range 5 { // at every point of the election
		n.stepper.Read(2, func(err error) {
			if at := n.gauges[2].Applied.Load(); err == nil && at < 2 {
				t.Errorf("a read in pass %d saw the state at entry %d: entry 2 was acknowledged", i, at)
			} else if err == nil {
				saw = at
			}
		})
		n.pass()
	}
	run()
	if saw < 2 {
		t.Error("no read went through")
	}
}

// TestReadsSeeWhatWasAcknowledged reads on a leader that has not applied yet.
func TestReadsSeeWhatWasAcknowledged(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	for i := range 10 {
		p := lead.propose(1, fmt.Sprint("text ", i))
		reads := []*reply{lead.read(1), lead.read(1)}
		f.settle()
		f.is("the write", p, nil)
		for _, r := range reads {
			f.is("the read", r, nil)
		}
	}
	// Without a quorum nobody is sure to lead.
	f.isolate(lead.id)
	r := lead.read(1)
	f.settle()
	f.open("a read without a quorum", r)
	f.drop = nil
	f.tick()
	f.is("the read with a quorum again", r, nil)
}

// TestElapsed holds the stamps: 0 for a term's first entry, and then the
// leader's clock, of which no fraction of a millisecond gets lost or counted twice.
func TestElapsed(t *testing.T) {
	f := newFabric(t, 1)
	f.now = time.Hour
	lead := f.elect(1)
	start := f.now
	for i := range 50 {
		f.now += time.Duration(i*i)*137*time.Microsecond + 300*time.Microsecond
		lead.propose(1, fmt.Sprint("one ", i))
		lead.propose(1, fmt.Sprint("two ", i))
		f.settle()
	}
	first := start + 300*time.Microsecond
	sum := time.Duration(0)
	for i, e := range lead.machines[1].applied {
		sum += e.Elapsed
		if i <= 1 && e.Elapsed != 0 {
			t.Errorf("entry %d, of the term's first, is stamped %v", e.Index, e.Elapsed)
		}
		if e.Elapsed < 0 || e.Elapsed%time.Millisecond != 0 {
			t.Errorf("entry %d is stamped %v", e.Index, e.Elapsed)
		}
	}
	if want := (f.now - first).Truncate(time.Millisecond); sum != want {
		t.Errorf("the stamps sum to %v, and the leader's clock moved %v", sum, want)
	}
	f.tick()
	tr := lead.transfer(1, f.nodes[1])
	f.settle()
	f.is("the transfer", tr, nil)
	f.now += time.Hour
	f.nodes[1].propose(1, "of the next term")
	f.settle()
	f.tick()
	for _, n := range f.nodes {
		total := time.Duration(0)
		for _, e := range n.machines[1].applied {
			total += e.Elapsed
		}
		if got := n.machines[1].texts(); got[len(got)-1] != "of the next term" || total != sum {
			t.Errorf("%s: after a change of leaders the clock jumped from %v to %v", n.id, sum, total)
		}
	}
}

// TestSameIDOtherData has two requests under one id: each gets its own answer.
func TestSameIDOtherData(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	id := [16]byte{7}
	one, two, again := lead.proposeAs(1, id, "one"), lead.proposeAs(1, id, "two"), lead.proposeAs(1, id, "one")
	f.settle()
	for r, want := range map[*reply]string{one: "one at 2", two: "two at 3", again: "one at 2"} {
		if r.times != 1 || r.err != nil || r.answer != want {
			t.Errorf("answered %d times, %v, %v: want %s", r.times, r.answer, r.err, want)
		}
	}
}

func TestTombstone(t *testing.T) {
	f := newFabric(t, 1, 2)
	lead := f.elect(1)
	p := lead.propose(1, "row")
	f.settle()
	f.is("the write", p, nil)
	f.tick()
	n := f.nodes[2]
	waiting := n.read(1)
	f.check(n.stepper.Remove(1))
	f.is("what waited for the replica", waiting, rafthost.ErrNotLeader)
	if err := n.stepper.Remove(1); err != rafthost.ErrNoGroup { //nolint:errorlint // the very error
		t.Errorf("removed again: %v", err)
	}
	if last := n.events[len(n.events)-1]; last.Group != 1 || last.State != (rafthost.State{}) {
		t.Errorf("the last event is %+v", last)
	}
	f.tick() // messages still come for it
	refuse := func() {
		t.Helper()
		for _, id := range []uint64{replica(1, 3), replica(1, 3) - 1, 1} {
			o := n.options(1)
			o.Replica = id
			if err := n.stepper.Add(o); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("replica %d was removed from this disk", id)) {
				t.Errorf("a removed replica %d: %v", id, err)
			}
		}
	}
	refuse()
	f.groups = []uint64{2}
	n.crash()
	n.machines[1], n.gauges[1] = &machine{group: 1}, &rafthost.Gauge{}
	refuse()
	o := n.options(1)
	o.Replica++
	o.Nodes[o.Replica] = n.id
	f.check(n.stepper.Add(o))
	if pr, ok := n.stepper.Progress(1); !ok || pr.Replica != o.Replica || pr.Applied != 0 || pr.Last != 0 || pr.Term != 0 {
		t.Errorf("a new replica begins with %+v", pr)
	}
	if pr, ok := n.stepper.Progress(2); !ok || pr.Applied == 0 {
		t.Errorf("the other group has %+v", pr)
	}
}

func TestAddRefuses(t *testing.T) {
	f := newFabric(t, 1)
	n := f.nodes[0]
	if err := n.stepper.Add(n.options(1)); err == nil || !strings.Contains(err.Error(), "group 1 is open already") {
		t.Errorf("twice: %v", err)
	}
	f.groups = nil
	n.crash()
	n.machines[1] = &machine{group: 1}
	o := n.options(1)
	o.Replica = 77
	if err := n.stepper.Add(o); err == nil || !strings.Contains(err.Error(), "the disk holds replica 11, the cluster expects 77") {
		t.Errorf("under another replica id: %v", err)
	}
}

// TestForeignMessagesAreDropped sends what no peer may send, and what was meant
// for a former life: nothing moves.
func TestForeignMessagesAreDropped(t *testing.T) {
	f := newFabric(t, 1)
	f.elect(1)
	f.tick()
	n := f.nodes[1]
	own, peer := replica(1, 2), replica(1, 1)
	before, _ := n.stepper.Progress(1)
	bad := map[string]wire.RaftMessage{
		"another node's replica":    message(pb.MsgVote, 1, peer, own, 50),
		"another group":             message(pb.MsgVote, 5, peer, own, 50),
		"a former replica here":     message(pb.MsgVote, 1, peer, own-1, 50),
		"a later replica here":      message(pb.MsgVote, 1, peer, 99, 50),
		"a replica that is unknown": message(pb.MsgVote, 1, 99, own, 50),
		"itself":                    message(pb.MsgVote, 1, own, own, 50),
		"nobody":                    message(pb.MsgVote, 1, 0, own, 50),
	}
	for kind := range pb.MessageType_name {
		switch typ := pb.MessageType(kind); typ {
		case pb.MsgApp, pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgPreVote, pb.MsgPreVoteResp,
			pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgTimeoutNow:
		default:
			bad[typ.String()] = message(typ, 1, peer, own, 50)
		}
	}
	if len(bad) < 18 {
		t.Fatalf("only %d messages: the library's list was not read", len(bad))
	}
	for name, m := range bad {
		from := "n1"
		if name == "another node's replica" {
			from = "n3"
		}
		n.stepper.Receive(from, m)
		if n.stepper.Dirty() {
			t.Errorf("%s: taken", name)
			n.pass()
		}
	}
	if after, _ := n.stepper.Progress(1); after.State != before.State || after.Commit != before.Commit {
		t.Errorf("%+v became %+v", before, after)
	}
	n.stepper.Receive("n1", message(pb.MsgHeartbeat, 1, peer, own, before.Term))
	if !n.stepper.Dirty() {
		t.Error("a message that fits was dropped: the others prove nothing")
	}
}

func TestProgress(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	f.isolate("n3")
	lead.propose(1, "x")
	f.settle()
	p, ok := lead.stepper.Progress(1)
	if !ok || !p.Owns || p.Commit != 2 || p.Applied != 2 || p.Last != 2 || len(p.Peers) != 2 {
		t.Fatalf("%+v", p)
	}
	for _, x := range p.Peers {
		want := uint64(2)
		if x.Node == "n3" {
			want = 1
		}
		if x.Match != want || !x.Voter || x.Replica != replica(1, f.node(x.Node).at) {
			t.Errorf("%+v, want match %d", x, want)
		}
	}
	if p, ok := f.nodes[1].stepper.Progress(1); !ok || p.Leads || p.Peers != nil {
		t.Errorf("a follower's progress: %+v", p)
	}
	if _, ok := lead.stepper.Progress(9); ok {
		t.Error("there is progress of a group that is not here")
	}
}

// TestStopEndsAllThatWaits, each as it must.
func TestStopEndsAllThatWaits(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	f.isolate(lead.id)
	appended, reading := lead.propose(1, "appended"), lead.read(1)
	lead.pass()
	tr := lead.transfer(1, f.nodes[1])
	queued, later := lead.propose(1, "queued"), lead.read(1)
	lead.stepper.Stop()
	f.is("an appended proposal", appended, rafthost.ErrUnknown)
	f.is("a queued proposal", queued, rafthost.ErrNotLeader)
	f.is("a read under way", reading, rafthost.ErrNotLeader)
	f.is("a read not begun", later, rafthost.ErrNotLeader)
	f.is("a transfer", tr, nil)
}

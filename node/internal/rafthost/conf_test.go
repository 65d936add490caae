package rafthost_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/wire"
)

func (n *node) change(group uint64, changes ...rafthost.Change) *reply {
	r := &reply{}
	n.stepper.ChangeConf(group, changes, r.ended)
	return r
}

// comes settles, and holds that a reply came with an error (nil too).
func (f *fabric) comes(what string, r *reply, want error) {
	f.Helper()
	f.settle()
	f.is(what, r, want)
}

// join makes another node with an empty replica of group 1 under a raft id, which
// all nodes know.
func (f *fabric) join(id uint64) *node {
	f.Helper()
	groups := f.groups
	f.groups = nil
	at := len(f.nodes) + 1
	n := &node{f: f, id: fmt.Sprint("n", at), at: at, fs: vfs.NewCrashableMem()}
	f.nodes = append(f.nodes, n)
	n.open()
	f.groups = groups
	f.know(id, n.id)
	n.machines[1], n.gauges[1] = &machine{group: 1}, &rafthost.Gauge{}
	o := f.nodes[0].options(1)
	o.Replica, o.Machine, o.Gauge = id, n.machines[1], n.gauges[1]
	o.Nodes[id] = n.id
	f.check(n.stepper.Add(o))
	return n
}

// know tells the nodes where a replica of group 1 is.
func (f *fabric) know(id uint64, where string) {
	f.Helper()
	nodes := f.nodes[0].options(1).Nodes
	nodes[id] = where
	for _, n := range f.nodes {
		n.stepper.SetNodes(1, nodes)
	}
}

func (f *fabric) conf(n *node, voters, learners []uint64) {
	f.Helper()
	p, _ := n.stepper.Progress(1)
	slices.Sort(p.Conf.Voters)
	if !slices.Equal(p.Conf.Voters, voters) || !slices.Equal(p.Conf.Learners, learners) || p.Conf.Joint {
		f.Errorf("%s has the configuration %+v: want voters %v and learners %v", n.id, p.Conf, voters, learners)
	}
}

// TestReplicaMoves puts a replica in place of another: it learns, catches up, and
// takes its place in one change; then it leads.
func TestReplicaMoves(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	for i := range 20 {
		f.comes("a write before", lead.propose(1, fmt.Sprintf("before %02d", i)), nil)
	}
	d := f.join(99)
	r := lead.change(1, rafthost.Change{Kind: rafthost.AddLearner, Replica: 99})
	f.settle()
	f.is("adding a learner", r, nil)
	f.conf(lead, []uint64{11, 12, 13}, []uint64{99})
	f.tick()
	f.tick()
	if !slices.Equal(d.machines[1].texts(), lead.machines[1].texts()) || len(d.machines[1].texts()) != 20 {
		t.Errorf("the learner applied %q", d.machines[1].texts())
	}
	f.conf(d, []uint64{11, 12, 13}, []uint64{99})
	p, _ := lead.stepper.Progress(1)
	if i := slices.IndexFunc(p.Peers, func(x rafthost.Peer) bool { return x.Replica == 99 }); i < 0 || p.Peers[i].Voter || p.Peers[i].Node != d.id ||
		p.Peers[i].Match != p.Last || !p.Peers[i].Active {
		t.Errorf("the leader sees %+v", p.Peers)
	}
	if id, err := hostless(lead, d.id); err != nil || id != 0 {
		t.Errorf("a learner is offered as a new leader: %d, %v", id, err)
	}
	r = lead.change(1, rafthost.Change{Kind: rafthost.AddVoter, Replica: 99}, rafthost.Change{Kind: rafthost.RemoveReplica, Replica: 13})
	f.open("the change", r)
	f.settle()
	f.is("taking its place", r, nil)
	for _, n := range []*node{lead, f.nodes[1], d} {
		f.tick()
		f.conf(n, []uint64{11, 12, 99}, nil)
	}
	tr := &reply{}
	lead.stepper.Transfer(1, 99, tr.ended)
	f.settle()
	f.is("handing over to it", tr, nil)
	if !d.state[1].Owns {
		t.Errorf("the new replica is %+v", d.state[1])
	}
	f.isolate("n3") // which is no part any more
	f.comes("a write after", d.propose(1, "after"), nil)
	d.again(99)
	f.conf(d, []uint64{11, 12, 99}, nil)
}

// again starts a node that joined again, with what was synced.
func (n *node) again(id uint64) {
	n.f.Helper()
	groups := n.f.groups
	n.f.groups = nil
	n.crash()
	n.f.groups = groups
	n.machines[1], n.gauges[1] = &machine{group: 1}, &rafthost.Gauge{}
	o := n.f.nodes[0].options(1)
	o.Replica, o.Machine, o.Gauge = id, n.machines[1], n.gauges[1]
	o.Nodes[id] = n.id
	n.f.check(n.stepper.Add(o))
}

// hostless is Host.Level of a stepper.
func hostless(n *node, to string) (uint64, error) {
	p, ok := n.stepper.Progress(1)
	if !ok {
		return 0, rafthost.ErrNoGroup
	}
	for _, x := range p.Peers {
		if x.Node == to && x.Voter {
			return x.Replica, nil
		}
	}
	return 0, nil
}

func TestRefusedChanges(t *testing.T) {
	f := newFabric(t, 1)
	learner := rafthost.Change{Kind: rafthost.AddLearner, Replica: 99}
	lead := f.elect(1)
	f.is("of no group", lead.change(9, learner), rafthost.ErrNoGroup)
	f.is("by a follower", f.nodes[1].change(1, learner), rafthost.ErrNotLeader)
	f.is("of nothing", lead.change(1), rafthost.ErrConfRefused)
	f.is("of the leader", lead.change(1, rafthost.Change{Kind: rafthost.RemoveReplica, Replica: 11}), rafthost.ErrConfRefused)
	f.is("of the leader to a learner", lead.change(1, rafthost.Change{Kind: rafthost.AddLearner, Replica: 11}), rafthost.ErrConfRefused)

	first := lead.change(1, learner)
	f.is("while one is on its way", lead.change(1, learner), rafthost.ErrBusy)
	f.isolate("n1")
	f.settle()
	f.open("a change without a quorum", first)
	f.another(1, lead)
	f.drop = nil
	f.tick()
	f.is("a change whose leader was lost", first, rafthost.ErrUnknown)
	lead.stepper.Stop()
}

// TestRaftRefusesAChange proposes one to a leader that does not know yet what
// earlier terms left behind. Raft makes an empty entry of it, without an error.
func TestRaftRefusesAChange(t *testing.T) {
	f := newFabric(t, 1)
	old := f.elect(1)
	f.drop = func(_, _ string, m wire.RaftMessage) bool { return m.GetType() == pb.MsgAppResp }
	f.settle()
	old.propose(1, "in the logs, and not committed")
	f.settle()
	f.drop = func(from, to string, m wire.RaftMessage) bool {
		return from == "n1" || to == "n1" || m.GetType() == pb.MsgAppResp
	}
	var lead *node
	for i := 0; lead == nil; i++ {
		f.tick()
		for _, n := range f.nodes[1:] {
			if n.state[1].Leads {
				lead = n
			}
		}
		if i > 200 {
			t.Fatal("nobody was elected")
		}
	}
	if lead.state[1].Owns {
		t.Fatal("the new leader has applied an entry of its term already")
	}
	r := lead.change(1, rafthost.Change{Kind: rafthost.AddLearner, Replica: 99})
	f.settle()
	f.open("the change", r)
	f.drop = nil
	f.tick()
	f.tick()
	f.is("the change", r, rafthost.ErrConfRefused)
	f.conf(lead, []uint64{11, 12, 13}, nil)
	f.comes("the change once more", lead.change(1, rafthost.Change{Kind: rafthost.AddLearner, Replica: 99}), nil)
	f.conf(lead, []uint64{11, 12, 13}, []uint64{99})
}

// TestRemovedReplicaIsNotHeard has a replica that was removed, and does not know,
// stand for election in a later term: nobody listens.
func TestRemovedReplicaIsNotHeard(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	r := lead.change(1, rafthost.Change{Kind: rafthost.RemoveReplica, Replica: 13})
	f.isolate("n3")
	f.settle()
	f.is("removing", r, nil)
	nodes := lead.options(1).Nodes
	delete(nodes, 13)
	for _, n := range f.nodes[:2] {
		n.stepper.SetNodes(1, nodes)
	}
	f.drop = nil
	was := lead.state[1].Term
	for range 3 {
		lead.stepper.Receive("n3", message(pb.MsgVote, 1, 13, 11, was+50))
		f.nodes[1].stepper.Receive("n3", message(pb.MsgVote, 1, 13, 12, was+50))
		f.nodes[2].stepper.Campaign(1)
		f.tick()
	}
	if s := lead.state[1]; s.Term != was || !s.Owns {
		t.Errorf("the leader became %+v", s)
	}
	if lead.out = nil; len(f.nodes[2].machines[1].texts()) != 0 {
		t.Error("the removed replica was sent entries")
	}
}

// lifeAfter has the replica on n3 lose its disk and come back empty under a raft
// id, while a late answer of its former life is still on its way. It returns
// whether the leader counts entries for it that it does not have.
func lifeAfter(t *testing.T, id uint64) bool {
	t.Helper()
	f := newFabric(t, 1)
	lead := f.elect(1)
	for i := range 5 {
		f.comes("a write", lead.propose(1, fmt.Sprint("early ", i)), nil)
	}
	p, _ := lead.stepper.Progress(1)
	late := message(pb.MsgAppResp, 1, 13, 11, p.Term)
	late.Index = &p.Last
	f.comes("removing", lead.change(1, rafthost.Change{Kind: rafthost.RemoveReplica, Replica: 13}), nil)
	f.check(f.nodes[2].stepper.Remove(1))
	f.isolate("n4") // it has nothing, and gets nothing yet
	d := f.join(id)
	nodes := lead.options(1).Nodes
	delete(nodes, 13)
	nodes[id] = d.id
	lead.stepper.SetNodes(1, nodes)
	f.comes("adding", lead.change(1, rafthost.Change{Kind: rafthost.AddLearner, Replica: id}), nil)
	lead.stepper.Receive(d.id, late)
	f.settle()
	p, _ = lead.stepper.Progress(1)
	own, _ := d.stepper.Progress(1)
	i := slices.IndexFunc(p.Peers, func(x rafthost.Peer) bool { return x.Replica == id })
	return p.Peers[i].Match > own.Last
}

// TestReplicaIDsAreUsedOnce shows what ids are handed out once for.
func TestReplicaIDsAreUsedOnce(t *testing.T) {
	if lifeAfter(t, 99) {
		t.Error("the leader believes that a new replica has what its former life had")
	}
	if !lifeAfter(t, 13) {
		t.Error("an id used twice does no harm here: this test cannot find it")
	}
}

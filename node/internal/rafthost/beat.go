package rafthost

import (
	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"tidal/node/internal/wire"
)

// beat is what a replica keeps for the heartbeats of its node.
type beat struct {
	ticked  bool            // since the last pass
	resting bool            // the leader's words of this pass let the group rest
	muted   bool            // raft's answers to words are not sent
	seen    map[uint64]int  // by a leader: when others last answered, in ticks
	unheard map[uint64]bool // by a leader: whose nodes died and who have not answered since
	probes  map[uint64]bool // whom an append without entries may find lacking some
}

// hear takes what another node's heartbeat says of a group.
func (s *Stepper) hear(g *group, m wire.RaftMessage) {
	if m.GetType() == pb.MsgHeartbeat {
		s.told(g, m)
	} else {
		s.heard(g, m)
	}
}

// told takes a leader's word: raft's heartbeat, and perhaps leave to rest.
func (s *Stepper) told(g *group, m wire.RaftMessage) {
	if f := m.Word.Frontier; f > g.gauge.Frontier.Load() {
		g.gauge.Frontier.Store(f)
	}
	if m.Word.Rest {
		g.asked = m.Message
		if last, _ := g.log.LastIndex(); !g.awake && g.follows(m.Message) && m.GetCommit() == last {
			s.visit(g) // it said so before, and was not heard
			return
		}
	}
	s.wake(g)
	g.muted = true
	_ = g.rn.Step(m.Message) // it fails for answers alone
	s.visit(g)
}

// heard takes a follower's word: it is in the term and follows this replica.
func (s *Stepper) heard(g *group, m wire.RaftMessage) {
	if !g.state.Leads || g.state.Term != m.GetTerm() {
		return
	}
	from := m.GetFrom()
	last, _ := g.log.LastIndex()
	if m.Word.Rest && m.GetCommit() == last {
		if !g.awake {
			return
		}
		if g.calm == nil {
			g.calm = map[uint64]bool{}
		}
		g.calm[from] = true
	} else {
		delete(g.calm, from)
		s.wake(g)
	}
	s.saw(g, m.Message)
	g.answered(from)
	s.visit(g)
}

// saw notes that another replica answers the leader of a term.
func (s *Stepper) saw(g *group, m *pb.Message) {
	if !g.state.Leads || m.GetTerm() != g.state.Term {
		return
	}
	if g.seen == nil {
		g.seen = map[uint64]int{}
	}
	g.seen[m.GetFrom()] = s.ticks
	if g.unheard[m.GetFrom()] && !s.dead(g.nodes[m.GetFrom()]) {
		delete(g.unheard, m.GetFrom())
		s.visit(g)
	}
}

// answered gives raft a follower's answer to a heartbeat. If the follower lacks
// entries that are on their way, raft probes for them: see withheld.
func (g *group) answered(from uint64) {
	if g.probes == nil {
		g.probes = map[uint64]bool{}
	}
	g.probes[from] = true
	_ = g.rn.Step(&pb.Message{ // it fails for replicas that are gone
		Type: pb.MsgHeartbeatResp.Enum(), From: &from, To: &g.state.Replica, Term: &g.state.Term,
	})
}

// withheld reports whether a message of raft needs no sending, because heartbeats
// between the nodes say it: a heartbeat to a follower that keeps up, the answer
// to one, and an append that carries nothing but the commit.
func (s *Stepper) withheld(g *group, m *pb.Message) bool {
	switch m.GetType() { //nolint:exhaustive // the others are always sent
	case pb.MsgHeartbeat:
		if len(m.GetContext()) > 0 || !g.ticked {
			return false
		}
		if g.progressOf(m.GetTo()).State != tracker.StateReplicate && s.o.Defect != CommitNotCapped {
			return false // it is probed at once
		}
		s.tell(g, m)
		return true
	case pb.MsgHeartbeatResp:
		return len(m.GetContext()) == 0 && g.muted
	case pb.MsgApp:
		if len(m.GetEntries()) > 0 || g.restless {
			return false
		}
		to := m.GetTo()
		pr := g.progressOf(to)
		if pr.State != tracker.StateReplicate {
			return false
		}
		// Behind the follower's match it may also find out that entries were lost.
		// Raft sends it with each answer of a follower that lacks some: once a tick
		// is enough.
		probe := m.GetIndex() > pr.Match && g.probes[to]
		if probe {
			delete(g.probes, to)
		}
		return !probe
	}
	return false
}

func (g *group) progressOf(id uint64) (p tracker.Progress) {
	g.rn.WithProgress(func(of uint64, _ raft.ProgressType, pr tracker.Progress) {
		if of == id {
			p = pr
		}
	})
	return p
}

// tell puts a heartbeat of raft into the node's, with what else there is to say.
func (s *Stepper) tell(g *group, m *pb.Message) {
	w := wire.Word{Rest: g.resting}
	if g.state.Owns {
		w.Frontier = g.rn.BasicStatus().GetCommit()
	}
	if s.o.Defect == CommitNotCapped {
		commit := g.rn.BasicStatus().GetCommit()
		m.Commit = &commit
	}
	s.word(g, m, w)
}

// answer puts into the node's heartbeat that this replica follows its leader, and
// whether it rests.
func (s *Stepper) answer(g *group, rest bool) { //nolint:revive // the flag is what it says
	m := &pb.Message{Type: pb.MsgHeartbeatResp.Enum(), From: &g.state.Replica, To: &g.state.Lead, Term: &g.state.Term}
	if rest {
		last, _ := g.log.LastIndex()
		m.Commit = &last
	}
	s.word(g, m, wire.Word{Rest: rest})
}

func (s *Stepper) word(g *group, m *pb.Message, w wire.Word) {
	s.post(g, m, func(b []byte) []byte { return wire.AppendWord(b, g.id, m, w) })
}

// beats says what a group has to say at a tick, beside the leader's words that
// raft made, and lets it rest.
func (s *Stepper) beats(g *group, rd *raft.Ready, all bool) {
	if g.asked != nil {
		s.doze(g, rd)
	}
	switch {
	case g.resting && all || s.forlorn(g, rd):
		s.lull(g)
	case g.ticked && !g.state.Leads && g.state.Lead != raft.None:
		s.answer(g, false)
	}
	g.ticked, g.muted, g.resting = false, false, false
}

package rafthost

import (
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// life is what the host was told of another node.
type life struct {
	start uint64 // counts the node's starts; 0: it never said hello
	alive bool
}

// rest is what a replica keeps for being quiet.
type rest struct {
	awake  bool // it is ticked
	listed bool // it is in Stepper.awake, which a quiet one leaves at the next tick
	idle   int  // ticks since anything but heartbeats happened
	calm   map[uint64]bool
	asked  *pb.Message // a leader's word that the group may rest, not answered yet
}

// touch notes that something happens in a group. A quiet one wakes.
func (s *Stepper) touch(g *group) {
	g.idle = 0
	s.wake(g)
	s.visit(g)
}

// visit has the next pass look at a group.
func (s *Stepper) visit(g *group) {
	if !g.touched {
		g.touched = true
		s.touched = append(s.touched, g)
	}
}

// wake has a group ticked from now on. A leader counts those as heard that were
// calm with it, or check-quorum might depose it before they can speak.
func (s *Stepper) wake(g *group) {
	if g.awake {
		return
	}
	g.awake, g.idle = true, 0
	s.waking++
	if !g.listed {
		g.listed = true
		s.awake = append(s.awake, g)
	}
	if g.state.Leads {
		for _, id := range sorted(g.calm) {
			if s.lives[g.nodes[id]].alive {
				g.answered(id)
			}
		}
	}
	clear(g.calm)
	s.visit(g)
}

func sorted(set map[uint64]bool) []uint64 {
	ids := make([]uint64, 0, len(set))
	for id := range set {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// lull stops the ticks of a group, if they go on.
func (s *Stepper) lull(g *group) {
	if g.awake {
		g.awake = false
		s.waking--
		s.lulled++
	}
}

// drop forgets a group.
func (s *Stepper) drop(g *group) {
	if g.awake {
		s.waking--
	}
	s.awake = slices.DeleteFunc(s.awake, func(o *group) bool { return o == g })
}

// Awake returns how many groups are ticked.
func (s *Stepper) Awake() int { return s.waking }

// Lulled returns how often a group became quiet.
func (s *Stepper) Lulled() int { return s.lulled }

// Tick moves the clock of every group that is awake.
func (s *Stepper) Tick() {
	s.ticks++
	s.awake = slices.DeleteFunc(s.awake, func(g *group) bool {
		g.listed = g.awake
		return !g.awake
	})
	for _, g := range slices.Clone(s.awake) {
		g.idle++
		g.ticked = true
		g.rn.Tick()
		g.checkTransfer()
		s.remind(g)
		s.lonely(g)
		s.visit(g)
	}
	s.cutLogs()
}

// active says who of a leader's followers answers: raft forgets it each election
// timeout, until their next word. Those of a quiet group answer as long as their
// nodes live.
func (s *Stepper) active(g *group, peers []Peer) {
	for i := range peers {
		p := &peers[i]
		if !g.awake {
			p.Active = g.calm[p.Replica] && s.lives[p.Node].alive
			continue
		}
		at, known := g.seen[p.Replica]
		p.Active = p.Active || known && s.ticks-at <= s.o.ElectionTicks
	}
}

// still reports whether nothing is under way in a group, and everything in its
// log is committed and applied.
func (s *Stepper) still(g *group, rd *raft.Ready) bool {
	switch {
	case g.restless || s.o.Restless || g.transfer != nil:
		return false
	case len(rd.Entries)+len(rd.CommittedEntries) > 0:
		return false
	case len(g.queued)+len(g.newReads)+len(g.reads)+len(g.appended) > 0:
		return false
	}
	a := g.log.Applied()
	if len(a.Conf.GetVotersOutgoing())+len(a.Conf.GetLearners())+len(a.Conf.GetLearnersNext()) > 0 {
		return false
	}
	last, _ := g.log.LastIndex() // never fails
	return a.Index == last && g.rn.BasicStatus().GetCommit() == last
}

// mayRest reports whether the group that this replica leads may be quiet: when
// nothing has happened for a while, every voter that is alive has all that there
// is, and those are a quorum. all is set once each of them has said that it is
// quiet itself.
func (s *Stepper) mayRest(g *group, rd *raft.Ready) (may, all bool) {
	if !g.state.Owns || g.idle < s.o.ElectionTicks || rd.SoftState != nil || !s.still(g, rd) {
		return false, false
	}
	last, _ := g.log.LastIndex()
	may, all = true, true
	voters, alive := 1, 1
	g.rn.WithProgress(func(id uint64, _ raft.ProgressType, pr tracker.Progress) {
		if id == g.state.Replica {
			return
		}
		voters++
		if s.dead(g.nodes[id]) {
			return // the dead keep nobody awake
		}
		alive++
		may = may && pr.State == tracker.StateReplicate && pr.Match == last
		all = all && g.calm[id]
	})
	return may && 2*alive > voters, all
}

// doze answers a leader's word that the group may rest: a follower whose log
// ends where the leader's does rests, and says so. Any other stays awake.
func (s *Stepper) doze(g *group, rd *raft.Ready) {
	m := g.asked
	g.asked = nil
	last, _ := g.log.LastIndex()
	switch {
	case !g.follows(m) || m.GetCommit() != last:
		return
	case !s.still(g, rd) || !s.lives[g.nodes[m.GetFrom()]].alive:
		return
	}
	s.lull(g)
	g.ticked = false
	s.answer(g, true)
}

// follows reports whether a message is of the leader that the replica follows,
// and of its term.
func (g *group) follows(m *pb.Message) bool {
	return !g.state.Leads && g.state.Lead == m.GetFrom() && g.state.Term == m.GetTerm()
}

// forlorn is the defect of a replica that rests without a leader.
func (s *Stepper) forlorn(g *group, rd *raft.Ready) bool {
	return s.o.Defect == QuietWithoutLeader && g.ticked && g.state.Lead == raft.None && s.still(g, rd)
}

// Alive says that a node was heard, and which of its starts it is in. A later
// start than the one known so far is a death, however short: who followed it
// forgets it and stands for election.
func (s *Stepper) Alive(node string, start uint64) {
	was := s.lives[node]
	if start < was.start || start == was.start && was.alive {
		return
	}
	if s.dead(node) {
		s.deaths--
	}
	s.lives[node] = life{start: start, alive: true}
	reborn := was.start != 0 && start > was.start
	if reborn && s.o.Defect == IncarnationNoDeath {
		return
	}
	s.shared(node, func(g *group, id uint64) {
		if reborn {
			delete(g.calm, id)
		}
		s.wake(g)
		s.visit(g)
		if reborn {
			s.miss(g, id)
		}
	})
}

// Dead says that a node is not heard any more, or that its loop stands still. Groups
// shared with it wake: those that it led forget it and elect another, those led here
// may have lost their quorum.
func (s *Stepper) Dead(node string) {
	l := s.lives[node]
	if l.start == 0 || !l.alive {
		return
	}
	s.deaths++
	s.lives[node] = life{start: l.start}
	s.shared(node, func(g *group, id uint64) {
		delete(g.calm, id)
		s.wake(g)
		if g.state.Leads {
			g.missed(id)
		}
		s.miss(g, id)
	})
}

// Replaced says that a node has another disk than it had: all that ran on the old
// one is dead, and its starts are counted anew.
func (s *Stepper) Replaced(node string) {
	s.Dead(node)
	if s.dead(node) {
		s.deaths--
	}
	delete(s.lives, node)
}

// Welcome says that a new connection to a node stands: what was sent on the last
// one may be lost, and nobody knows what the node has missed. It is told of every
// group that is led here and has a replica there, quiet or not.
func (s *Stepper) Welcome(node string) {
	if s.o.Defect == NoWordToReturning {
		return
	}
	s.shared(node, func(g *group, id uint64) {
		if !g.state.Leads {
			return
		}
		s.wake(g)
		g.rn.ReportUnreachable(id) // so that it is probed
		g.answered(id)             // and now
		s.visit(g)
	})
}

// shared calls f for each group with a replica on a node.
func (s *Stepper) shared(node string, f func(g *group, id uint64)) {
	for _, g := range s.list {
		for id, n := range g.nodes {
			if n == node && id != g.state.Replica {
				f(g, id)
			}
		}
	}
}

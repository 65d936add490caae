package rafthost

import (
	"cmp"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

const (
	electionRounds = 3  // how often a replica stands before it leaves the rest to raft's own timeouts
	aloneTicks     = 3  // without a leader after which a replica stands, whoever is missed
	aloneAgain     = 20 // ticks until it does so again
)

// race is what a replica keeps that misses its leader: when it stands for election.
type race struct {
	on    bool
	drawn bool          // at is set
	at    time.Duration // by the clock of Pass
	round int           // how often it stood
	but   uint64        // the replica that it misses
	alone int           // ticks without a leader

	leaderless int // ticks without a leader, whoever stood meanwhile

	asked   *pb.Message // for a pre-vote, while this replica followed a leader
	askedAt int         // in ticks
}

// keeps returns what outlives a race.
func (r race) keeps() race { return race{asked: r.asked, askedAt: r.askedAt, leaderless: r.leaderless} }

// miss has a replica stand for election if it has no leader, or if that is the one
// that is missed; the replica forgets it then. Who follows a leader is in its lease
// and lets nobody else win, so each survivor forgets, and only those that miss the
// leader themselves.
func (s *Stepper) miss(g *group, leader uint64) {
	switch lead := g.rn.BasicStatus().Lead; {
	case lead != raft.None && lead != leader:
		return
	case lead != raft.None && s.forgets():
		_ = g.rn.ForgetLeader() // it fails with lease reads alone
		s.visit(g)
	}
	if !g.race.on {
		g.race = g.race.keeps()
		g.race.on, g.race.but = true, leader
		s.races = append(s.races, g)
	}
	if m := g.race.asked; m != nil && s.ticks-g.race.askedAt <= aloneTicks && s.forgets() {
		_ = g.rn.Step(m)
	}
}

// ask notes who wants a pre-vote of a replica that follows a leader, and gets no
// answer. If the replica misses the leader a moment later it answers after all: who
// noticed the death first need not ask again.
func (s *Stepper) ask(g *group, m *pb.Message) {
	if st := g.rn.BasicStatus(); st.Lead != raft.None && st.Lead != g.state.Replica && m.GetTerm() == st.GetTerm()+1 {
		g.race.asked, g.race.askedAt = m, s.ticks
	}
}

func (s *Stepper) forgets() bool {
	return s.o.Defect != CampaignOnly && s.o.Defect != TimeoutNowFromAnyone
}

// Due returns when Stand has something to do; false if there is nothing to wait for.
func (s *Stepper) Due() (at time.Duration, waits bool) {
	for _, g := range s.races {
		if t := g.race.at; g.race.drawn && (!waits || t < at) {
			at, waits = t, true
		}
	}
	return at, waits
}

// Stand lets those replicas stand for election that miss their leader and whose turn
// it is. All voters of a group that live have their turns one after the other, so
// that they do not split the votes. now is that of Pass, which comes next.
func (s *Stepper) Stand(now time.Duration) {
	s.races = slices.DeleteFunc(s.races, func(g *group) bool {
		if s.stand(g, now) {
			g.race = g.race.keeps()
			g.race.alone = -aloneAgain
			return true
		}
		return false
	})
}

// stand reports whether a race is over for this replica.
func (s *Stepper) stand(g *group, now time.Duration) bool {
	r := &g.race
	lead := g.rn.BasicStatus().Lead
	if s.groups[g.id] != g || lead != raft.None && (lead != r.but || s.forgets()) {
		return true
	}
	rank, of := s.rank(g, r.but)
	switch {
	case of == 0:
		return true // no quorum lives, or this replica is no voter
	case !r.drawn:
		r.drawn, r.at = true, now+time.Duration(rank)*s.o.Stagger
	}
	if r.at > now {
		return false
	}
	if s.o.Defect == TimeoutNowFromAnyone {
		_ = g.rn.Step(&pb.Message{Type: pb.MsgTimeoutNow.Enum(), From: &r.but, To: &g.state.Replica, Term: &g.state.Term})
	} else {
		_ = g.rn.Campaign() // with a pre-vote; it cannot fail but by losing
	}
	s.touch(g)
	r.round++
	// Two that noticed at different times may stand at once, and must not again.
	r.at = now + time.Duration(of<<(r.round-1)+rank)*s.o.Stagger
	return r.round >= electionRounds
}

// rank returns how many voters of a group stand before this replica, and how many
// stand at all: those whose nodes live, without the one that is missed. None stand
// if those that live are no quorum.
func (s *Stepper) rank(g *group, but uint64) (rank, of int) {
	voters := g.log.Applied().Conf.GetVoters()
	alive := 0
	var standing []uint64
	for _, id := range voters {
		if id != g.state.Replica && !s.lives[g.nodes[id]].alive {
			continue
		}
		alive++
		if id != but {
			standing = append(standing, id)
		}
	}
	if 2*alive <= len(voters) {
		return 0, 0
	}
	slices.SortFunc(standing, func(a, b uint64) int {
		return cmp.Or(cmp.Compare(s.o.Prefer(g.id, g.nodes[b]), s.o.Prefer(g.id, g.nodes[a])), cmp.Compare(a, b))
	})
	if rank = slices.Index(standing, g.state.Replica); rank < 0 {
		return 0, 0
	}
	return rank, len(standing)
}

// lonely notes a tick of a replica without a leader. One whose election or
// hand-over came to nothing need not wait for raft's own timeout.
func (s *Stepper) lonely(g *group) {
	if g.race.leaderless++; g.state.Lead != raft.None {
		g.race.leaderless = 0
	}
	switch {
	case g.state.Lead != raft.None || g.race.on:
		g.race.alone = 0
		return
	case g.race.alone < aloneTicks:
		g.race.alone++
		return
	}
	if _, of := s.rank(g, raft.None); of > 0 {
		s.miss(g, raft.None)
	}
}

// parks reports whether what is proposed to a group waits, since the leader of the
// group hears no quorum: what it appended now could be lost or done, and nobody
// would know. Raft deposes it soon, and all that waited goes to another. A node that
// comes back counts when its replica has answered: another may lead it by then.
func (s *Stepper) parks(g *group) bool {
	if !g.state.Leads || len(g.queued) == 0 || s.deaths+len(g.unheard) == 0 {
		return false
	}
	voters := g.log.Applied().Conf.GetVoters()
	heard := 0
	for _, id := range voters {
		if id == g.state.Replica || !g.unheard[id] && !s.dead(g.nodes[id]) {
			heard++
		}
	}
	return 2*heard <= len(voters)
}

// missed notes that a follower's node died.
func (g *group) missed(id uint64) {
	if g.unheard == nil {
		g.unheard = map[uint64]bool{}
	}
	g.unheard[id] = true
}

// dead reports whether a node was heard once, and is not any more.
func (s *Stepper) dead(node string) bool {
	l := s.lives[node]
	return l.start != 0 && !l.alive
}

// remind repeats the order that a transfer's target has not followed: it was lost, or
// came while the target stood for election itself. Raft sends it once.
func (s *Stepper) remind(g *group) {
	if g.transfer == nil || !g.state.Leads {
		return
	}
	if last, _ := g.log.LastIndex(); g.progressOf(g.transfer.to).Match >= last {
		s.send(g, &pb.Message{Type: pb.MsgTimeoutNow.Enum(), From: &g.state.Replica, To: &g.transfer.to, Term: &g.state.Term})
	}
}

// mayOrder reports whether a replica may order this one to take a group over at
// once: only its leader may. From anybody else the word would depose a leader that
// others hear, and make terms climb.
func (s *Stepper) mayOrder(g *group, m *pb.Message) bool {
	if s.o.Defect == TimeoutNowFromAnyone {
		return true
	}
	st := g.rn.BasicStatus()
	return m.GetTerm() == st.GetTerm() && (st.Lead == m.GetFrom() || st.Lead == raft.None)
}

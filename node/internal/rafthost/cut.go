package rafthost

import (
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// How logs are cut.
const (
	cutTicks   = 10        // between two looks at the logs
	cutBytes   = 256 << 10 // a log that is written to and takes less is left alone
	tellTimes  = 3         // how often followers are told of a cut: one time may get lost
	shipFactor = 4         // a log may be so many times its bound while a snapshot is sent
)

// cutLogs looks at all logs now and then, also when nothing happens: what all
// replicas have goes, and what one lacks goes when the log is too long.
func (s *Stepper) cutLogs() {
	if s.ticks%cutTicks != 0 {
		return
	}
	var long []*group
	var sizes []int64
	s.logBytes = 0
	for _, g := range s.list {
		if g.tells > 0 {
			g.tells--
			s.tellCut(g)
		}
		if g.log.Last() > g.log.Start() {
			long = append(long, g)
			sizes = append(sizes, g.log.Size())
			s.logBytes += g.log.Size()
		}
	}
	bound := share(sizes, s.o.LogBytes, s.o.NodeLogBytes)
	for _, g := range long {
		if g.chooseCut(bound) {
			s.visit(g) // a cut is no activity: a quiet group stays quiet
			if g.state.Leads && g.told != 0 {
				g.tells = tellTimes - 1
				s.tellCut(g)
			}
		}
	}
}

// share returns the most bytes that each log may keep, at most each, so that all
// together keep no more than total.
func share(sizes []int64, each, total int64) int64 {
	slices.Sort(sizes)
	for i, size := range sizes {
		fair := total / int64(len(sizes)-i)
		if size >= fair { // and so is each that follows
			return min(each, fair)
		}
		total -= size
	}
	return each
}

// chooseCut sets where the log is to be cut, and reports whether anywhere.
func (g *group) chooseCut(bound int64) bool {
	resting := g.log.Last() == g.lastSeen
	g.lastSeen = g.log.Last()
	shipping := false
	if g.state.Leads {
		g.told, shipping = g.everywhere()
	}
	at := g.told
	if shipping {
		bound *= shipFactor
	}
	size := g.log.Size()
	if size > bound {
		// A quarter more than it must, so that the next look has nothing to do.
		at = max(at, g.log.Behind(bound-bound/4))
	} else if !resting && size < cutBytes {
		return false
	}
	g.cut = min(at, g.log.Applied().Index)
	return g.cut > g.log.Start()
}

// everywhere returns the last entry that each replica of the leader's group has,
// and whether one is being sent a snapshot.
func (g *group) everywhere() (index uint64, shipping bool) {
	index = g.log.Last()
	g.rn.WithProgress(func(_ uint64, _ raft.ProgressType, pr tracker.Progress) {
		index = min(index, pr.Match)
		shipping = shipping || pr.State == tracker.StateSnapshot
	})
	return index, shipping
}

// tellCut lets the followers know what all replicas have. It is a fact for ever, so
// it needs no term, and neither order nor certainty: without the word a follower
// keeps its log up to the bound.
func (s *Stepper) tellCut(g *group) {
	if !g.state.Leads {
		return
	}
	for _, to := range slices.Sorted(maps.Keys(g.nodes)) {
		s.send(g, &pb.Message{Type: wire.MsgCut.Enum(), From: &g.state.Replica, To: &to, Term: &g.state.Term, Index: &g.told})
	}
	s.visit(g) // a pass sends it
}

// hearCut takes a leader's word of what all replicas have.
func (g *group) hearCut(m *pb.Message) { g.told = max(g.told, m.GetIndex()) }

// writeCut cuts the log where chooseCut said. What is applied is in the database
// before this batch, so that no crash leaves a log that begins behind it.
func (g *group) writeCut(b *store.Batch, defect Defect) error {
	at := g.cut
	g.cut = 0
	switch {
	case at == 0:
		return nil
	case defect == CutAboveApplied:
		return g.log.CutUnchecked(b, max(at, g.log.Last()))
	}
	return g.log.Cut(b, at)
}

// LogBytes returns roughly what the logs took on the disk when they were last
// looked at.
func (s *Stepper) LogBytes() int64 { return s.logBytes }

package place

import "slices"

// Group is a raft group as its leader sees it, by raft ids, and as it should be.
type Group struct {
	Leader   uint64
	Voters   []uint64 // of the configuration that is applied
	Learners []uint64
	Joint    bool     // it is between two configurations
	Level    []uint64 // replicas that answer and lack little

	WantVoters   []uint64
	WantLearners []uint64
}

// Step is one change of a group's configuration. What it names is changed
// together; of the replicas added as learners there is one at a time.
type Step struct {
	AddLearner uint64   // 0: none
	AddVoters  []uint64 // learners to promote
	Remove     []uint64
	HandOver   bool // the leader must hand over first, since it is to be removed
}

// IsZero reports whether there is nothing to do now.
func (s *Step) IsZero() bool {
	return s.AddLearner == 0 && len(s.AddVoters) == 0 && len(s.Remove) == 0 && !s.HandOver
}

// Next returns the next step towards what a group should be. New replicas come as
// learners; they are promoted when all of them are level, and take the place of
// those that go in the same change, so that the group never rests with more voters
// or fewer than it should have. A leader hands over before it is removed; the only
// voter of a group does so once the new one counts.
func Next(g Group) Step {
	if g.Joint {
		return Step{}
	}
	for _, id := range slices.Concat(g.WantVoters, g.WantLearners) {
		if !slices.Contains(g.Voters, id) && !slices.Contains(g.Learners, id) {
			return Step{AddLearner: id}
		}
	}
	var rising, leaving, idle []uint64
	for _, id := range g.WantVoters {
		if slices.Contains(g.Learners, id) {
			if !slices.Contains(g.Level, id) {
				return Step{Remove: superfluous(g)} // those that go are of use until then
			}
			rising = append(rising, id)
		}
	}
	leaderGoes := false
	for _, id := range g.Voters {
		switch {
		case slices.Contains(g.WantVoters, id):
			if id != g.Leader {
				idle = append(idle, id)
			}
		case id == g.Leader:
			leaderGoes = true
		default:
			leaving = append(leaving, id)
		}
	}
	switch {
	case leaderGoes && len(idle) > 0:
		return Step{HandOver: true}
	case leaderGoes && len(rising) == 0:
		return Step{} // it is the last copy and stays
	case leaderGoes:
		// The one to hand over to comes, for one that goes if there is any.
		return Step{AddVoters: rising[:1], Remove: leaving[:min(1, len(leaving))]}
	}
	return Step{AddVoters: rising, Remove: append(leaving, superfluous(g)...)}
}

// superfluous returns the learners that should not be there.
func superfluous(g Group) []uint64 {
	var out []uint64
	for _, id := range g.Learners {
		if !slices.Contains(g.WantVoters, id) && !slices.Contains(g.WantLearners, id) {
			out = append(out, id)
		}
	}
	return out
}

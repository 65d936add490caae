package place_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tidal/node/internal/place"
)

func TestNext(t *testing.T) {
	ids := func(n ...uint64) []uint64 { return n }
	for name, c := range map[string]struct {
		g    place.Group
		want place.Step
	}{
		"as it should be": {place.Group{Leader: 1, Voters: ids(1, 2, 3), Learners: ids(4), WantVoters: ids(1, 2, 3), WantLearners: ids(4)}, place.Step{}},
		"a joiner":        {place.Group{Leader: 1, Voters: ids(1, 2, 3), WantVoters: ids(1, 2, 3), WantLearners: ids(4, 5)}, place.Step{AddLearner: 4}},
		"a new replica":   {place.Group{Leader: 1, Voters: ids(1, 2, 3), WantVoters: ids(2, 3, 4)}, place.Step{AddLearner: 4}},
		"behind":          {place.Group{Leader: 1, Voters: ids(1, 2, 3), Learners: ids(4), WantVoters: ids(2, 3, 4)}, place.Step{}},
		"the leader goes": {place.Group{Leader: 1, Voters: ids(1, 2, 3), Learners: ids(4), Level: ids(4), WantVoters: ids(2, 3, 4)}, place.Step{HandOver: true}},
		"another goes": {
			place.Group{Leader: 2, Voters: ids(1, 2, 3), Learners: ids(4), Level: ids(4), WantVoters: ids(2, 3, 4)},
			place.Step{AddVoters: ids(4), Remove: ids(1)},
		},
		"between two":          {place.Group{Leader: 2, Voters: ids(2, 3, 4), Joint: true, WantVoters: ids(1, 2, 3)}, place.Step{}},
		"the only voter":       {place.Group{Leader: 1, Voters: ids(1), Learners: ids(4), Level: ids(4), WantVoters: ids(4)}, place.Step{AddVoters: ids(4)}},
		"and the other counts": {place.Group{Leader: 1, Voters: ids(1, 4), Level: ids(4), WantVoters: ids(4)}, place.Step{HandOver: true}},
		"and the other leads":  {place.Group{Leader: 4, Voters: ids(1, 4), Level: ids(1), WantVoters: ids(4)}, place.Step{Remove: ids(1)}},
		"two, one behind": {
			place.Group{Leader: 1, Voters: ids(1), Learners: ids(2, 3), Level: ids(2), WantVoters: ids(1, 2, 3)},
			place.Step{},
		},
		"two at once": {
			place.Group{Leader: 1, Voters: ids(1), Learners: ids(2, 3), Level: ids(2, 3), WantVoters: ids(1, 2, 3)},
			place.Step{AddVoters: ids(2, 3)},
		},
		"a learner that failed": {
			place.Group{Leader: 1, Voters: ids(1, 2, 3), Learners: ids(4, 5), WantVoters: ids(1, 2, 5)},
			place.Step{Remove: ids(4)},
		},
		"taken back": {place.Group{Leader: 1, Voters: ids(1, 2, 3), Learners: ids(4), WantVoters: ids(1, 2, 3)}, place.Step{Remove: ids(4)}},
		"last copy":  {place.Group{Leader: 1, Voters: ids(1)}, place.Step{}},
	} {
		if diff := cmp.Diff(c.want, place.Next(c.g), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// From any start, the steps lead to what is wanted; a leader is never removed, and
// the number of voters never rests outside of what it was and what it is to be.
func TestNextArrives(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		draw := func(n int, from uint64) []uint64 {
			var out []uint64
			for id := from; len(out) < n; id++ {
				if rnd.IntN(2) == 0 {
					out = append(out, id)
				}
			}
			return out
		}
		g := place.Group{Voters: draw(1+rnd.IntN(5), 1)}
		g.Leader = g.Voters[rnd.IntN(len(g.Voters))]
		g.WantVoters = draw(1+rnd.IntN(5), 1)
		least, most := min(len(g.Voters), len(g.WantVoters)), max(len(g.Voters), len(g.WantVoters), 2)
		for range 200 {
			g.Level = nil
			for _, id := range slices.Concat(g.Voters, g.Learners) {
				if rnd.IntN(3) > 0 {
					g.Level = append(g.Level, id)
				}
			}
			s := place.Next(g)
			walk(t, seed, &g, s)
			if n := len(g.Voters); n < least || n > most {
				t.Fatalf("seed %d: %d voters between %d and %d, after %+v", seed, n, least, most, s)
			}
		}
		slices.Sort(g.Voters)
		if !slices.Equal(g.Voters, g.WantVoters) || len(g.Learners) > 0 {
			t.Fatalf("seed %d: it ends with %v and learners %v: want %v", seed, g.Voters, g.Learners, g.WantVoters)
		}
	}
}

// walk takes a step as a group would.
func walk(t *testing.T, seed uint64, g *place.Group, s place.Step) {
	t.Helper()
	if s.HandOver {
		i := slices.IndexFunc(g.Voters, func(id uint64) bool { return id != g.Leader && slices.Contains(g.WantVoters, id) })
		if i < 0 {
			t.Fatalf("seed %d: nobody can take %+v over", seed, *g)
		}
		g.Leader = g.Voters[i]
	}
	if s.AddLearner != 0 {
		g.Learners = append(g.Learners, s.AddLearner)
	}
	without := func(list, gone []uint64) []uint64 {
		return slices.DeleteFunc(slices.Clone(list), func(id uint64) bool { return slices.Contains(gone, id) })
	}
	if slices.Contains(s.Remove, g.Leader) {
		t.Fatalf("seed %d: the leader of %+v is removed", seed, *g)
	}
	g.Voters = append(without(g.Voters, s.Remove), s.AddVoters...)
	g.Learners = without(without(g.Learners, s.Remove), s.AddVoters)
}

package sim_test

import (
	"testing"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/sim"
)

// TestReshapingSeeds is TestSeeds with replicas that move.
func TestReshapingSeeds(t *testing.T) {
	if sum := runSeeds(t, shortReshaping, true); sum.Moves == 0 || sum.Snapshots == 0 || sum.Torn == 0 {
		t.Error("of some kind nothing happened in any run")
	}
}

// TestReshapingDefects is TestDefects with replicas that move.
func TestReshapingDefects(t *testing.T) {
	for _, d := range []struct {
		name   string
		defect rafthost.Defect
		seeds  []uint64
	}{
		{"configuration not with rows", rafthost.ConfNotWithRows, []uint64{1, 2, 3, 4, 6, 7, 8, 9}},
	} {
		t.Run(d.name, func(t *testing.T) { hunt(t, sim.Options{Defect: d.defect, Reshape: true}, d.seeds, map[uint64]bool{}) })
	}
}

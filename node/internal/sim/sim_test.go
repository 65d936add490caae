package sim_test

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/sim"
	"tidal/node/internal/table"
)

// run runs one seed in a bubble of its own.
func run(t *testing.T, o sim.Options) sim.Report {
	t.Helper()
	cryptotest.SetGlobalRandom(t, o.Seed)
	var r sim.Report
	synctest.Test(t, func(*testing.T) { r = sim.Run(o) })
	return r
}

// seeds reads a range of seeds: how many from 1 on, or FROM-TO.
func seeds(t *testing.T, text string) (from, to uint64) {
	t.Helper()
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		first, last = "1", first
	}
	from, err1 := strconv.ParseUint(first, 10, 64)
	to, err2 := strconv.ParseUint(last, 10, 64)
	if err1 != nil || err2 != nil || from > to {
		t.Fatalf("seeds %q: want a number of seeds, or FROM-TO", text)
	}
	return from, to
}

func replay(o sim.Options) string {
	how := fmt.Sprintf("TIDAL_SIM_SEED=%d", o.Seed)
	if o.Reshape {
		how += " TIDAL_SIM_RESHAPE=1"
	}
	return "to replay it with a trace: " + how + " go test ./node/internal/sim -run 'TestSeed$' -v"
}

// TestSeeds runs the short list, or the seeds that TIDAL_SIM_SEEDS gives.
func TestSeeds(t *testing.T) {
	sum := runSeeds(t, shortList, false)
	if sum.Reads == 0 || sum.Batches == 0 || sum.Scans == 0 || sum.Resent == 0 || sum.Torn == 0 || sum.Unborn == 0 || sum.Failed == 0 || sum.Late == 0 || sum.Snapshots == 0 || sum.Lulls == 0 {
		t.Error("of some kind nothing happened in any run")
	}
}

func runSeeds(t *testing.T, short string, reshape bool) (sum sim.Report) {
	t.Helper()
	text := os.Getenv("TIDAL_SIM_SEEDS")
	if text == "" {
		text = short
	}
	from, to := seeds(t, text)
	for seed := from; seed <= to; seed++ {
		o := sim.Options{Seed: seed, Reshape: reshape}
		r := run(t, o)
		if len(r.Findings) > 0 {
			t.Errorf("seed %d: %s\n%s", seed, strings.Join(r.Findings, "\n"), replay(o))
		}
		sum.Moves += r.Moves
		sum.Acked += r.Acked
		sum.Batches += r.Batches
		sum.Scans += r.Scans
		sum.Reads += r.Reads
		sum.Resent += r.Resent
		sum.Leaders += r.Leaders
		sum.Crashes += r.Crashes
		sum.Torn += r.Torn
		sum.Unborn += r.Unborn
		sum.Failed += r.Failed
		sum.Late += r.Late
		sum.Snapshots += r.Snapshots
		sum.Lulls += r.Lulls
		sum.Passes += r.Passes
		sum.End += r.End
	}
	t.Logf("seeds %d to %d: %+v", from, to, sum)
	return sum
}

// TestSeed replays the seed in TIDAL_SIM_SEED and prints what happens.
// TIDAL_SIM_DEFECT is the number of a defect to do it with, and with
// TIDAL_SIM_RESHAPE replicas move.
func TestSeed(t *testing.T) {
	text := os.Getenv("TIDAL_SIM_SEED")
	if text == "" {
		t.Skip("on demand: TIDAL_SIM_SEED=N replays it")
	}
	seed, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("TIDAL_SIM_SEED: %v", err)
	}
	defect := uint64(rafthost.Sound)
	if text := os.Getenv("TIDAL_SIM_DEFECT"); text != "" {
		if defect, err = strconv.ParseUint(text, 10, 8); err != nil {
			t.Fatalf("TIDAL_SIM_DEFECT: %v", err)
		}
	}
	r := run(t, sim.Options{Seed: seed, Defect: rafthost.Defect(defect), Reshape: os.Getenv("TIDAL_SIM_RESHAPE") != "", Trace: t.Output()})
	if len(r.Findings) > 0 {
		t.Fatal(strings.Join(r.Findings, "\n"))
	}
	t.Logf("%+v", r)
}

// TestReplay runs a seed twice: the same must happen, or no finding could be
// looked into. Another seed must give something else.
func TestReplay(t *testing.T) {
	var first, second bytes.Buffer
	a := run(t, sim.Options{Seed: 1, Trace: &first})
	b := run(t, sim.Options{Seed: 1, Trace: &second})
	if a.Hash != b.Hash || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("one seed gave two runs: %+v and %+v", a, b)
	}
	if c := run(t, sim.Options{Seed: 2}); c.Hash == a.Hash {
		t.Errorf("two seeds gave one run: %+v", c)
	}
}

// TestDefects breaks the engine on purpose: a seed that passes with it as it
// should be must not pass then. A change of the engine changes the runs; if no
// recorded seed finds a defect any more, TIDAL_SIM_SEARCH=1-200 lists those that
// do.
func TestDefects(t *testing.T) {
	sound := map[uint64]bool{}
	for _, d := range []struct {
		name   string
		broken sim.Options
		seeds  []uint64 // recorded; the first that finds it is enough
	}{
		{"ack before sync", sim.Options{Defect: rafthost.AckBeforeSync}, []uint64{8, 1, 2, 3, 4}},
		{"vote not persisted", sim.Options{Defect: rafthost.VoteNotPersisted}, []uint64{16, 22, 26, 54}},
		{"commit not with rows", sim.Options{Defect: rafthost.CommitNotWithRows}, []uint64{8, 3, 5, 17, 20}},
		{"vote overwritten by an ingest", sim.Options{Defect: rafthost.VoteNotInIngest}, []uint64{103, 78}},
		{"cut above applied", sim.Options{Defect: rafthost.CutAboveApplied}, []uint64{1, 2, 3, 4}},
		{"request ids missing from a snapshot", sim.Options{Defect: rafthost.LossySnapshot}, []uint64{1, 2, 3, 4}},
		{"commit not capped", sim.Options{Defect: rafthost.CommitNotCapped}, []uint64{8, 1, 2, 3}},
		{"quiet without leader", sim.Options{Defect: rafthost.QuietWithoutLeader}, []uint64{47, 60}},
		{"an appended write is called undone", sim.Options{Defect: rafthost.StaleAppended}, []uint64{16, 4, 17, 18}},
		{"a late write done again", sim.Options{Table: table.BornNotCompared}, []uint64{8, 2, 4, 6, 10}},
		{"answers forgotten early", sim.Options{Table: table.ForgottenEarly}, []uint64{8, 2, 4, 6, 10}},
		{"answer of a failed condition not kept", sim.Options{Table: table.AnswerNotKept}, []uint64{8, 6, 10, 12}},
		{"a batch in two parts", sim.Options{Table: table.BatchInParts}, []uint64{8, 1, 11, 21, 23}},
		{"a batch done again", sim.Options{Table: table.BatchAgain}, []uint64{8, 1, 3, 5}},
		{"a batch without its last change", sim.Options{Table: table.BatchShort}, []uint64{8, 1, 3, 5}},
		{"a condition that does not see a batch", sim.Options{Table: table.BatchUnseen}, []uint64{8, 6, 10, 14}},
		{"conditions decided before the log", sim.Options{Loose: true}, []uint64{8, 2, 4, 6, 10}},
	} {
		t.Run(d.name, func(t *testing.T) { hunt(t, d.broken, d.seeds, sound) })
	}
}

// hunt holds that one of the recorded seeds finds a defect, or looks for others. sound
// has the seeds that were run without one.
func hunt(t *testing.T, o sim.Options, recorded []uint64, sound map[uint64]bool) {
	t.Helper()
	if text := os.Getenv("TIDAL_SIM_SEARCH"); text != "" {
		search(t, o, text)
		return
	}
	for _, seed := range recorded {
		o.Seed = seed
		r := run(t, o)
		if len(r.Findings) == 0 {
			continue
		}
		t.Logf("seed %d: %s", seed, firstLine(r.Findings[0]))
		if sound[seed] {
			return
		}
		if r := run(t, sim.Options{Seed: seed, Reshape: o.Reshape}); len(r.Findings) > 0 {
			t.Errorf("seed %d fails without the defect too: %s", seed, r.Findings[0])
		}
		sound[seed] = true
		return
	}
	t.Error("no recorded seed finds it: record others from what TIDAL_SIM_SEARCH=1-200 lists")
}

func search(t *testing.T, o sim.Options, text string) {
	t.Helper()
	from, to := seeds(t, text)
	found := 0
	for seed := from; seed <= to; seed++ {
		o.Seed = seed
		if r := run(t, o); len(r.Findings) > 0 {
			found++
			t.Logf("seed %d: %s", seed, firstLine(r.Findings[0]))
		}
	}
	t.Logf("%d of %d seeds find it", found, to-from+1)
	if found == 0 {
		t.Error("no seed finds it")
	}
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

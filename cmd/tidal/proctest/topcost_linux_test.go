package proctest_test

import (
	"testing"
	"time"
)

// Bounds of tidal top over a cluster of 10,000 tables, at two looks a second.
const (
	topCPU      = 0.02     // of one core, tidal top
	topNodeCPU  = 0.02     // of one core, on the node that is asked, more than without anybody looking
	topMemory   = 40 << 20 // bytes
	topMeasure  = 20 * time.Second
	topMeasured = 3 // times; the least counts: others use this machine too
)

// TestTopCost measures what it costs to look at 10,000 tables, sorted by what changes.
func TestTopCost(t *testing.T) {
	onDemand(t, "TIDAL_TOP_COST", "topcost")
	c := newCluster(t, clusterOptions{plain: true})
	c.startAll(t)
	c.createMany(t, idleTables)
	c.awaitAwake(t, idlePatience, 1)
	alone := c.nodesFor(t, topMeasure)
	x := openTerminal(t, nil, c.topArgs(t, "--sort=-lag")...)
	x.sees(0, 30*time.Second, "10.0k")
	x.keys("2")
	x.sees(0, 30*time.Second, "REPLICAS")
	screen := x.screen().Pid // who waits for it takes nothing
	least, nodes := 1.0, []float64{1, 1, 1}
	for range topMeasured {
		before, begun := processorTimeOf(t, screen), time.Now()
		watched := c.nodesFor(t, topMeasure)
		one := (processorTimeOf(t, screen) - before).Seconds() / time.Since(begun).Seconds()
		t.Logf("tidal top: %.2f %% of a core, %d MB", 100*one, residentBytes(t, screen)>>20)
		least = min(least, one)
		for i := range nodes {
			nodes[i] = min(nodes[i], watched[i]-alone[i])
		}
	}
	memory := residentBytes(t, screen)
	t.Logf("tidal top: %.2f %% of a core, %d MB; the nodes %.2f, %.2f and %.2f %% more than without it",
		100*least, memory>>20, 100*nodes[0], 100*nodes[1], 100*nodes[2])
	if least > topCPU || memory > topMemory {
		t.Errorf("want at most %.0f %% and %d MB", 100*topCPU, topMemory>>20)
	}
	for i, n := range nodes {
		if n > topNodeCPU {
			t.Errorf("%s: want at most %.0f %% more", c.nodes[i].id, 100*topNodeCPU)
		}
	}
	x.keys("q")
	x.ends(0)
}

// nodesFor returns which share of a core each node takes over some time.
func (c *cluster) nodesFor(t *testing.T, d time.Duration) []float64 {
	t.Helper()
	before, begun := c.processorTime(t), time.Now()
	pause(d)
	took := time.Since(begun).Seconds()
	var out []float64
	for i, after := range c.processorTime(t) {
		out = append(out, (after-before[i]).Seconds()/took)
	}
	return out
}

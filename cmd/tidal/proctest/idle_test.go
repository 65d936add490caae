package proctest_test

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// Bounds of an idle cluster of three nodes and 10,000 tables.
const (
	idleTables   = 10_000
	idleCPU      = 0.05      // of one core, for the three nodes together
	naiveCPU     = 0.30      // what ticking every group costs at least, or the measurement sees nothing
	idleMemory   = 120 << 20 // bytes of each node
	idleMeasure  = time.Minute
	idlePatience = 5 * time.Minute // for all groups to be quiet
)

// TestIdle makes tables that nobody uses, and measures what they cost. With
// TIDAL_IDLE it is the whole measurement, as `make idle` runs it, and then the
// same with every group ticked: what is found must not come from not looking.
// Without, it is a small one that shows that all groups are quiet.
func TestIdle(t *testing.T) {
	whole := os.Getenv("TIDAL_IDLE") != ""
	c := newCluster(t, clusterOptions{plain: true})
	c.startAll(t)
	if !whole {
		c.createMany(t, 200)
		c.awaitAwake(t, time.Minute, 1) // the meta group
		return
	}
	c.createMany(t, idleTables)
	c.awaitAwake(t, idlePatience, 1)
	cpu, memory := c.measure(t, idleMeasure)
	if cpu > idleCPU {
		t.Errorf("%.1f %% of a core: want at most %.1f %%", 100*cpu, 100*idleCPU)
	}
	for i, n := range c.nodes {
		if memory[i] > idleMemory {
			t.Errorf("%s uses %d MB: want at most %d MB", n.id, memory[i]>>20, idleMemory>>20)
		}
	}
	for _, n := range c.nodes {
		n.kill()
		n.start(t, "never-quiet")
	}
	c.healthy(t, idlePatience)
	if cpu, _ := c.measure(t, idleMeasure/4); cpu < naiveCPU {
		t.Errorf("%.1f %% of a core with every group ticked: want more than %.1f %%", 100*cpu, 100*naiveCPU)
	}
}

// createMany makes n tables from many clients at once.
func (c *cluster) createMany(t *testing.T, n int) {
	t.Helper()
	begun := time.Now()
	var g errgroup.Group
	g.SetLimit(96)
	for k := range n {
		g.Go(func() error {
			a, err := c.call(k%len(c.nodes), http.MethodPut, fmt.Sprintf("/v1/tables/t%d", k), `{"replicas":3}`, nil)
			if err != nil || a.status/100 != 2 {
				return fmt.Errorf("create t%d: %s, %w", k, a, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d tables made in %v", n, time.Since(begun).Round(time.Millisecond))
}

// awaitAwake waits until so many groups are awake on each node.
func (c *cluster) awaitAwake(t *testing.T, patience time.Duration, want int) {
	t.Helper()
	begun := time.Now()
	for i, n := range c.nodes {
		eventually(t, patience, func() error {
			awake, err := c.metric(i, "tidal_raft_groups_awake")
			if err == nil && int(awake) != want {
				err = fmt.Errorf("%s: %v groups are awake, want %d", n.id, awake, want)
			}
			return err
		})
	}
	t.Logf("all quiet after %v", time.Since(begun).Round(time.Millisecond))
}

// metric reads a node's metric without labels.
func (c *cluster) metric(i int, name string) (float64, error) {
	a, err := c.call(i, http.MethodGet, "/metrics", "", nil)
	if err != nil {
		return 0, err
	}
	s := bufio.NewScanner(bytes.NewReader(a.body))
	for s.Scan() {
		if v, found := strings.CutPrefix(s.Text(), name+" "); found {
			return strconv.ParseFloat(v, 64)
		}
	}
	return 0, fmt.Errorf("%s has no metric %s", c.nodes[i].id, name)
}

// measure leaves the nodes alone, and returns which share of a core they took
// together and the bytes of each.
func (c *cluster) measure(t *testing.T, d time.Duration) (cpu float64, memory []int) {
	t.Helper()
	before := c.processorTime(t)
	begun := time.Now()
	<-time.After(d)
	took := time.Since(begun)
	after := c.processorTime(t)
	for i, n := range c.nodes {
		memory = append(memory, residentBytes(t, n.cmd.Process.Pid))
		one := (after[i] - before[i]).Seconds() / took.Seconds()
		cpu += one
		t.Logf("%s: %.2f %% of a core, %d MB", n.id, 100*one, memory[i]>>20)
	}
	t.Logf("together %.2f %% of a core", 100*cpu)
	return cpu, memory
}

// processorTime is what each node has had of the processors so far.
func (c *cluster) processorTime(t *testing.T) []time.Duration {
	t.Helper()
	var out []time.Duration
	for _, n := range c.nodes {
		out = append(out, processorTimeOf(t, n.cmd.Process.Pid))
	}
	return out
}

func processorTimeOf(t *testing.T, pid int) (sum time.Duration) {
	t.Helper()
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skipf("needs a kernel that counts what processes take of the processors: %v", err)
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("process %d is gone: %v", pid, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			continue // a thread that ended
		}
		ns, _, _ := strings.Cut(string(b), " ")
		one, err := strconv.ParseInt(ns, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		sum += time.Duration(one)
	}
	return sum
}

// residentBytes is the memory of a process that is not swapped out.
func residentBytes(t *testing.T, pid int) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(b))
	pages, err := strconv.Atoi(fields[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

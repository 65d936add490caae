package proctest_test

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
)

// The shape of a graceful run.
const (
	gracefulTables  = 6
	gracefulWriters = 8 // on each table
	gracefulPace    = 250
	gracefulFloor   = 200         // writes a second, on every table
	plannedWait     = time.Second // what the median of many runs may wait at most
	linkDelay       = 2 * time.Millisecond
	slowOpening     = "listen-delay=1.5s" // as of a node with much to recover
)

// TestGraceful restarts nodes in turn by SIGTERM under load. Nobody may notice.
// GRACEFUL_RUNS repeats it, each time with a new cluster; GRACEFUL_NODES sets how
// many nodes there are. The one run of every day restarts its first node twice.
func TestGraceful(t *testing.T) {
	gracefulRuns(t, gracefulOptions{readBack: true, again: os.Getenv("GRACEFUL_RUNS") == ""})
}

// TestGracefulTwice is TestGraceful with its first node restarted twice: what is
// left of its former life must not be taken for the present one.
func TestGracefulTwice(t *testing.T) {
	runs(t, "GRACEFUL_RUNS", 0)
	gracefulRuns(t, gracefulOptions{readBack: true, again: true})
}

func gracefulRuns(t *testing.T, o gracefulOptions) {
	t.Helper()
	n := runs(t, "GRACEFUL_RUNS", 1)
	o.nodes = runs(t, "GRACEFUL_NODES", 3)
	var longest []time.Duration
	for i := range n {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			g := gracefulRun(t, o)
			demandGraceful(t, g)
			longest = append(longest, g.report.longest.took.Round(time.Millisecond))
		})
	}
	demandWaits(t, longest)
}

// demandWaits prints the longest wait of each run, and holds the median of many to
// what is promised.
func demandWaits(t *testing.T, longest []time.Duration) {
	t.Helper()
	t.Logf("longest wait of each run: %v", longest)
	sorted := slices.Sorted(slices.Values(longest))
	if n := len(sorted); n >= 5 && sorted[n/2] > plannedWait {
		t.Errorf("the median of the longest waits is %v: at most %v is promised", sorted[n/2], plannedWait)
	}
}

// TestControlAdvertise is what the other controls are measured against: peers'
// entries in the member list are dead after the first start, and nobody notices,
// since each lease names the address that its node advertises.
func TestControlAdvertise(t *testing.T) {
	for i := range runs(t, "TIDAL_CONTROLS", 0) {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			demandGraceful(t, gracefulRun(t, gracefulOptions{deadMembers: true, readBack: true}))
		})
	}
}

// TestControlLeaseBeforeListen has a starting node ask for its lease before
// anything listens. It does not come back then: who leads the meta group, and
// all that leading a table takes, comes over the port that is not open yet. So
// nothing is sent to it either, and what the run must see is its absence.
func TestControlLeaseBeforeListen(t *testing.T) {
	control(t, gracefulOptions{faults: "lease-before-listen,no-address-proof"})
}

// TestControlNoPatience answers the first routing error, while each hand-over
// leaves a table without an owner for 300 ms.
func TestControlNoPatience(t *testing.T) {
	control(t, gracefulOptions{faults: "no-patience,handover-hold=300ms,no-address-proof"})
}

// TestControlAdvertiseMember puts the member list's entry into the lease, and
// those entries are dead after the first start.
func TestControlAdvertiseMember(t *testing.T) {
	control(t, gracefulOptions{faults: "advertise-member,no-address-proof", deadMembers: true})
}

// control breaks the nodes on purpose: the graceful run must see it, each time,
// by refusals or by a node that does not come back.
func control(t *testing.T, o gracefulOptions) {
	t.Helper()
	for i := range runs(t, "TIDAL_CONTROLS", 0) {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			g := gracefulRun(t, o)
			t.Logf("%s%s", g.report, strings.Join(g.problems, "\n"))
			if g.report.refused == 0 && len(g.problems) == 0 {
				t.Errorf("with %s nothing was noticed: the graceful test cannot fail", o.faults)
			}
		})
	}
}

// demandGraceful fails the test for whatever a client could have noticed.
func demandGraceful(t *testing.T, g gracefulResult) {
	t.Helper()
	t.Logf("%s", g.report)
	for _, p := range g.problems {
		t.Error(p)
	}
	if g.report.refused > 0 {
		t.Errorf("%d of %d writes were not answered 2xx", g.report.refused, g.report.total)
	}
	if g.report.longest.took > api.Patience {
		t.Errorf("a write waited %v: the patience is %v", g.report.longest.took, api.Patience)
	}
	for k := range gracefulTables {
		name := fmt.Sprintf("t%d", k)
		if rate := g.report.perSecond(name); rate < gracefulFloor {
			t.Errorf("%s: %.0f writes/s, want at least %d: the machine is too busy or a table stood still", name, rate, gracefulFloor)
		}
	}
	showList(t, "read back", g.wrong)
}

// showList fails the test with the first few of a list.
func showList(t *testing.T, what string, list []string) {
	t.Helper()
	if len(list) > 0 {
		t.Errorf("%s: %d wrong, of which\n%s", what, len(list), strings.Join(list[:min(10, len(list))], "\n"))
	}
}

// gracefulOptions vary a graceful run.
type gracefulOptions struct {
	nodes       int    // 0: three
	faults      string // beside the slow opening
	again       bool   // the first node is restarted twice in a row
	deadMembers bool   // the member list's addresses become black holes after the first start
	readBack    bool
}

// gracefulResult is what a graceful run found.
type gracefulResult struct {
	report   *report
	problems []string // the restarts themselves went wrong
	wrong    []string // rows
}

// gracefulRun starts a cluster, loads it, restarts each node and reads back.
func gracefulRun(t *testing.T, o gracefulOptions) gracefulResult {
	t.Helper()
	faults := slowOpening
	if o.faults != "" {
		faults += "," + o.faults
	}
	c := newCluster(t, clusterOptions{nodes: o.nodes, delay: linkDelay, faults: faults, splitMembers: o.deadMembers})
	c.startAll(t)
	tables := c.createTables(t, gracefulTables)
	f := launch(t, c.targets(), fleetOptions{tables: tables, perTable: gracefulWriters, rate: gracefulPace})
	if o.deadMembers { // only now: the writers wait for nodes that are ready
		for _, n := range c.nodes {
			n.member.set(proxyBlack)
		}
	}
	pause(time.Second)
	var g gracefulResult
	var order []int
	if o.again {
		order = append(order, 0)
	}
	for i := range c.nodes {
		order = append(order, i)
	}
	for _, i := range order {
		if err := c.restart(t, f, i); err != nil {
			g.problems = append(g.problems, err.Error())
			break // the rest would only say the same
		}
		pause(time.Second)
	}
	lasted := time.Since(f.began)
	f.stop()
	g.report = summarise(f.writes(), lasted)
	if o.readBack {
		began := time.Now()
		g.wrong, _ = readBack(c.targets(), append(f.writes(), f.unsent(tables)...), followerLag)
		t.Logf("read back in %v", time.Since(began).Round(time.Millisecond))
	}
	return g
}

// restart restarts one node by SIGTERM and waits until clients are sent to it again.
func (c *cluster) restart(t *testing.T, f *fleet, i int) error {
	t.Helper()
	n := c.nodes[i]
	if err := n.stop(30 * time.Second); err != nil {
		return err
	}
	if err := poll(5*time.Second, func() error { return f.outOfRotation(i) }); err != nil {
		return err
	}
	began := time.Now()
	n.start(t, c.o.faults)
	if err := poll(30*time.Second, func() error { return f.inRotation(i) }); err != nil {
		return fmt.Errorf("after its restart: %w", err)
	}
	t.Logf("%s: exit 0 in %v, back in rotation in %v", n.id, n.took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	return nil
}

// pause lets the load run on for so long.
func pause(d time.Duration) { <-time.After(d) }

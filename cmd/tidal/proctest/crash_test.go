package proctest_test

import (
	"syscall"
	"testing"
	"time"
)

// TestCrash kills all three nodes at once under load, twice, and starts them
// again. What was acknowledged is there, once; what was refused is not; of what
// nobody knows, all replicas say the same. Batches are there whole, whoever looks.
func TestCrash(t *testing.T) {
	const rounds = 2
	c := newCluster(t, clusterOptions{delay: linkDelay})
	c.startAll(t)
	tables := c.createTables(t, gracefulTables)
	f := launch(t, c.targets(), fleetOptions{tables: tables, perTable: gracefulWriters, rate: gracefulPace})
	b := launchBatcher(t, c.targets(), tables[0])
	pause(2 * time.Second)
	for range rounds {
		for _, n := range c.nodes {
			if err := n.signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		for i, n := range c.nodes {
			<-n.gone
			eventually(t, 5*time.Second, func() error { return f.outOfRotation(i) })
		}
		began := time.Now()
		for _, n := range c.nodes {
			n.start(t, c.o.faults)
		}
		for i := range c.nodes {
			eventually(t, 30*time.Second, func() error { return f.inRotation(i) })
		}
		t.Logf("all back in rotation %v after the crash", time.Since(began).Round(time.Millisecond))
		pause(2 * time.Second)
	}
	lasted := time.Since(f.began)
	b.report(t, rounds*50)
	f.stop()
	writes := f.writes()
	r := summarise(writes, lasted)
	count := map[outcome]int{}
	for _, w := range writes {
		count[w.outcome]++
	}
	t.Logf("%s", r)
	if count[acked] < rounds*1000 {
		t.Errorf("%d writes acknowledged: too few to prove anything", count[acked])
	}
	if count[unknown] == 0 {
		t.Error("no write was in flight at a kill: the load proves nothing")
	}
	wrong, applied := readBack(c.targets(), append(writes, f.unsent(tables)...), followerLag)
	t.Logf("%d acknowledged; of %d unknown %d were applied; %d refused", count[acked], count[unknown], applied, count[refused])
	showList(t, "read back", wrong)
}

package proctest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestTwoStops tells two of three nodes to stop in the same instant, each of which
// is started again as soon as it has ended. A quorum stays: nobody is refused.
func TestTwoStops(t *testing.T) {
	c := newCluster(t, clusterOptions{delay: linkDelay})
	c.startAll(t)
	tables := c.createTables(t, gracefulTables)
	f := launch(t, c.targets(), fleetOptions{tables: tables, perTable: gracefulWriters, rate: gracefulPace})
	pause(time.Second)
	began := time.Now()
	for _, n := range c.nodes[:2] {
		if err := n.signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}
	first := 0
	select {
	case <-c.nodes[0].gone:
	case <-c.nodes[1].gone:
		first = 1
	case <-time.After(30 * time.Second):
		t.Fatal("neither of the two has stopped in 30 s")
	}
	second := 1 - first
	one := time.Since(began)
	if !c.nodes[second].running() {
		t.Error("both were gone at once")
	}
	pause(500 * time.Millisecond)
	if !c.nodes[second].running() {
		t.Error("the second did not wait for the first to come back")
	}
	c.nodes[first].start(t, "")
	<-c.nodes[second].gone
	two := time.Since(began)
	if code := c.nodes[second].cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("%s: exit status %d", c.nodes[second].id, code)
	}
	c.nodes[second].start(t, "")
	for i := range c.nodes {
		eventually(t, 30*time.Second, func() error { return f.inRotation(i) })
	}
	t.Logf("%s ended after %v, %s after %v", c.nodes[first].id, one.Round(time.Millisecond), c.nodes[second].id, two.Round(time.Millisecond))
	pause(time.Second)
	lasted := time.Since(f.began)
	f.stop()
	g := gracefulResult{report: summarise(f.writes(), lasted)}
	g.wrong, _ = readBack(c.targets(), append(f.writes(), f.unsent(tables)...), followerLag)
	demandGraceful(t, g)
}

// TestDrainEndsWithItsOperator kills the command that holds a drain: the node takes
// its tables again by itself, and not before the claim is over.
func TestDrainEndsWithItsOperator(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	c := newCluster(t, clusterOptions{})
	c.startAll(t)
	c.createTables(t, gracefulTables)
	eventually(t, 20*time.Second, func() error { return c.owns(t, 0, 2) })
	log, err := os.Create(filepath.Join(c.dir, "drain.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := c.command(t, c.asAdminAt(c.nodes[1:2], "node", "drain", "n1", "--hold", "--ttl", ttl.String())...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 20*time.Second, func() error { return c.owns(t, 0, 0) })
	until := time.Now().Add(2 * ttl)
	for time.Now().Before(until) {
		if n := c.owned(t, 0); n > 0 {
			t.Fatalf("n1 owns %d tables while its drain is held", n)
		}
		pause(50 * time.Millisecond)
	}
	if code, out := c.tidal(t, c.asAdminAt(c.nodes[2:], "node", "restart", "n1")...); code == 0 || !strings.Contains(out, "claimed by") {
		t.Errorf("a restart by somebody else: exit %d\n%s", code, out)
	}
	began := time.Now()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	eventually(t, ttl+20*time.Second, func() error { return c.owns(t, 0, 2) })
	t.Logf("n1 owns its tables again %v after its operator was killed; the claim was of %v", time.Since(began).Round(time.Millisecond), ttl)
	eventually(t, 5*time.Second, func() error { return c.health(0) })
}

// owns is an error unless a node owns so many tables.
func (c *cluster) owns(t *testing.T, i, want int) error {
	t.Helper()
	if n := c.owned(t, i); n != want {
		return fmt.Errorf("%s owns %d tables, not %d", c.nodes[i].id, n, want)
	}
	return nil
}

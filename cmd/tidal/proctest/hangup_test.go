package proctest_test

import (
	"syscall"
	"testing"
	"time"
)

// TestHangup: a terminal that closes, or a reload out of habit, does not end a
// node, least of all without a drain.
func TestHangup(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{})
	c.startAll(t)
	if err := c.nodes[0].signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(time.Second); time.Now().Before(end); pause(100 * time.Millisecond) {
		if !c.nodes[0].running() {
			t.Fatal("the node has ended")
		}
	}
	if err := c.health(0); err != nil {
		t.Error(err)
	}
}

package proctest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
)

// TestForming starts two of three listed members. They must wait for the third,
// and say so: a cluster formed without it could form twice. An operator may have
// them go on.
func TestForming(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{})
	for _, n := range c.nodes[:2] {
		n.start(t, c.o.faults)
	}
	for i := range c.nodes[:2] {
		eventually(t, 20*time.Second, func() error { return c.waitsFor(i, "n3") })
	}
	// Nothing may change while the third is away.
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); pause(200 * time.Millisecond) {
		for i := range c.nodes[:2] {
			if err := c.waitsFor(i, "n3"); err != nil {
				t.Fatal(err)
			}
		}
	}
	// An operator has it form without the third, which is a founder all the same when it
	// comes. One alone is no majority.
	if code, out := c.tidal(t, c.asAdmin("cluster", "init", "--members", "n1", "--yes")...); code != 7 || !strings.Contains(out, "1 of the 3 listed members are named") {
		t.Fatalf("exit %d\n%s", code, out)
	}
	if code, out := c.tidal(t, c.asAdmin("cluster", "init", "--members", "n2,n1", "--yes")...); code != 0 || !strings.Contains(out, "is formed with n1, n2\n") || !strings.Contains(out, "start n3 with an empty") {
		t.Fatalf("exit %d\n%s", code, out)
	}
	c.nodes[2].start(t, c.o.faults)
	c.healthy(t, 30*time.Second)
	c.createTables(t, 1)

	// All three are founding voters of one cluster.
	var first api.Status
	for i, n := range c.nodes {
		a := c.must(t, i, http.MethodGet, "/cluster/status", "", nil)
		var s api.Status
		if err := json.Unmarshal(a.body, &s); err != nil {
			t.Fatalf("%s: %v: %s", n.id, err, a.body)
		}
		if i == 0 {
			first = s
		}
		if s.ClusterID.IsZero() || s.ClusterID != first.ClusterID {
			t.Errorf("%s: cluster id %s, n1 says %s", n.id, s.ClusterID, first.ClusterID)
		}
		voters := 0
		for _, m := range s.Members {
			if m.Voter {
				voters++
			}
		}
		if voters != 3 {
			t.Errorf("%s: %d meta voters, want 3: %s", n.id, voters, a.body)
		}
	}
}

// waitsFor is an error unless node i is unready because a member is missing.
func (c *cluster) waitsFor(i int, member string) error {
	a, err := c.call(i, http.MethodGet, "/health", "", nil)
	if err != nil {
		return err
	}
	var h api.Health
	if err := json.Unmarshal(a.body, &h); err != nil || a.status != http.StatusServiceUnavailable {
		return fmt.Errorf("%s: /health %s: want 503 and reasons", c.nodes[i].id, a)
	}
	for _, r := range h.Reasons {
		if r.Code == "forming" && strings.Contains(r.Detail, member) {
			return nil
		}
	}
	return fmt.Errorf("%s: /health %s: want a reason forming that names %s", c.nodes[i].id, a, member)
}

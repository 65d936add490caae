package node_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"tidal/node"
	"tidal/node/api"
)

// metric returns the value of a series that a node shows.
func (c *trio) metric(id, name string) float64 {
	c.t.Helper()
	_, body, _ := c.do(http.MethodGet, id, "/metrics", nil)
	m := regexp.MustCompile(`(?m)^` + name + ` (\S+)$`).FindSubmatch(body)
	if m == nil {
		c.t.Fatalf("node %s shows no %s", id, name)
	}
	v, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		c.t.Fatal(err)
	}
	return v
}

// TestFollowerGetsSnapshots stops a node, writes more than the logs keep, of a
// table and of the meta group, and starts it again on a cluster that nobody
// writes to any more. It becomes level from snapshots alone, and says meanwhile
// how far they are.
func TestFollowerGetsSnapshots(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	// Slow enough that its health is seen while a snapshot is on its way.
	c.limits = node.Limits{LogBytes: 1, SnapshotRate: 2 << 20}
	for id := range c.ports {
		c.start(id)
	}
	for id := range c.ports {
		c.ready(id)
	}
	put := func(id, path string, body []byte) {
		t.Helper()
		if code, answer, _ := c.do(http.MethodPut, id, path, body); code/100 != 2 {
			t.Fatalf("PUT %s on %s: %d %s", path, id, code, answer)
		}
	}
	put("a", "/v1/tables/t0", nil)
	put("a", "/v1/tables/t0/rows/early", []byte("early"))
	c.leave("c")
	if err := os.MkdirAll(filepath.Join(c.dir, "c", "staging", "7"), 0o700); err != nil {
		t.Fatal(err) // of a former life
	}
	value := []byte(strings.Repeat("x", 256<<10))
	key := func(i int) string { return fmt.Sprintf("/v1/tables/t0/rows/k%03d", i) }
	const rows = 16
	for i := range rows {
		put("a", key(i), value)
	}
	put("b", "/v1/tables/t1", []byte(`{"replicas":1}`)) // of the meta group too
	most := map[string]float64{}
	c.await("the logs are cut", func() (bool, string) {
		cut := true
		for _, id := range []string{"a", "b"} {
			now := c.metric(id, "tidal_raft_log_bytes")
			most[id] = max(most[id], now)
			cut = cut && most[id] >= 1<<20 && now < 1<<10
		}
		return cut, fmt.Sprint("at most ", most)
	})
	c.start("c")
	seen := 0.0
	c.await("node c ready", func() (bool, string) {
		code, body, _ := c.do(http.MethodGet, "c", "/health", nil)
		var h api.Health
		if json.Unmarshal(body, &h) == nil {
			for _, r := range h.Reasons {
				if r.Snapshot != nil && r.Table == "t0" {
					seen = max(seen, *r.Snapshot)
				}
			}
		}
		return code == http.StatusOK, string(body)
	})
	if seen <= 0 || seen > 1 {
		t.Errorf("the furthest that /health said of the snapshot is %v", seen)
	}
	if n := c.metric("c", "tidal_snapshots_received_total"); n < 2 {
		t.Errorf("node c took %v snapshots, and lacks the table and the meta group", n)
	}
	if n := c.metric("a", "tidal_snapshots_sent_total") + c.metric("b", "tidal_snapshots_sent_total"); n < 2 {
		t.Errorf("a and b sent %v snapshots", n)
	}
	check := func(path, want string) {
		t.Helper()
		code, body, header := c.do(http.MethodGet, "c", path+"?consistency=local", nil)
		if code != http.StatusOK || string(body) != want || header.Get(api.HeaderLag) != "0" {
			t.Errorf("local read of %s on c: %d, %d bytes, lag %q", path, code, len(body), header.Get(api.HeaderLag))
		}
	}
	check("/v1/tables/t0/rows/early", "early")
	for i := range rows {
		check(key(i), string(value))
	}
	if left, err := os.ReadDir(filepath.Join(c.dir, "c", "staging")); err == nil && len(left) > 0 {
		t.Errorf("still staged: %v", left)
	}
	// What it has now it can own: alone with one of the others it makes a quorum.
	put("c", "/v1/tables/t0/rows/late", []byte("late"))
	c.leave("a")
	if code, body, _ := c.do(http.MethodGet, "c", "/v1/tables/t0/rows/early", nil); code != http.StatusOK {
		t.Errorf("without a: %d %s", code, body)
	}
}

package node_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"tidal/node"
	"tidal/node/api"
)

// TestReplicaThatDiffersIsFenced has one node store other values than those that were
// written. The comparison finds it by itself, that replica serves nothing any more, on
// that node alone, also after a start, and no client reads what it has.
func TestReplicaThatDiffersIsFenced(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	c.limits.CompareEvery = time.Second
	c.faults = map[string]node.Faults{"c": {FlipValues: true}}
	ids := []string{"a", "b", "c"}
	for _, id := range ids {
		c.start(id)
	}
	for _, id := range ids {
		c.ready(id)
	}
	if code, body, _ := c.do(http.MethodPut, "a", "/v1/tables/t", []byte(`{"replicas":3}`)); code/100 != 2 {
		t.Fatalf("create the table: %d %s", code, body)
	}
	if code, body, _ := c.do(http.MethodPut, "a", "/v1/tables/t/rows/k", []byte("value")); code/100 != 2 {
		t.Fatalf("put: %d %s", code, body)
	}
	fenced := func(id string) (bool, string) {
		code, body, _ := c.do(http.MethodGet, id, "/health", nil)
		var h api.Health
		if err := json.Unmarshal(body, &h); err != nil {
			return false, err.Error()
		}
		for _, r := range h.Reasons {
			if r.Code == "replica-differs" && r.Table == "t" {
				return code == http.StatusServiceUnavailable, string(body)
			}
		}
		return false, string(body)
	}
	c.await("c says that its replica is fenced", func() (bool, string) { return fenced("c") })
	c.await("c does not own the table", func() (bool, string) {
		var table api.Table
		_, body, _ := c.do(http.MethodGet, "a", "/v1/tables/t", nil)
		err := json.Unmarshal(body, &table)
		return err == nil && table.Owner != "" && table.Owner != "c", string(body)
	})
	check := func() {
		t.Helper()
		for _, id := range ids {
			if code, body, _ := c.do(http.MethodGet, id, "/v1/tables/t/rows/k", nil); code != http.StatusOK || string(body) != "value" {
				t.Errorf("get on %s: %d %q", id, code, body)
			}
			code, body, _ := c.do(http.MethodGet, id, "/v1/tables/t/rows/k?consistency=local", nil)
			if id != "c" && (code != http.StatusOK || string(body) != "value") || id == "c" && code != http.StatusServiceUnavailable {
				t.Errorf("local get on %s: %d %q", id, code, body)
			}
			if bad, body := fenced(id); bad != (id == "c") {
				t.Errorf("%s is fenced: %t: %s", id, bad, body)
			}
		}
	}
	check()
	if _, body, _ := c.do(http.MethodGet, "c", "/metrics", nil); !strings.Contains(string(body), "\ntidal_replicas_fenced 1\n") ||
		!strings.Contains(string(body), fmt.Sprintf("tidal_events_total{kind=%q} 1\n", api.EventFenced)) {
		t.Error("the metrics of c do not say so")
	}
	c.kill("c")
	c.faults = nil
	c.start("c")
	c.await("c says so again", func() (bool, string) { return fenced("c") })
	c.await("c has its lease", func() (bool, string) {
		_, body, _ := c.do(http.MethodGet, "c", "/health", nil)
		return !strings.Contains(string(body), "no-lease"), string(body)
	})
	check()
	c.kill("a") // b alone can own it now
	c.await("b owns the table", func() (bool, string) {
		code, body, _ := c.do(http.MethodGet, "c", "/v1/tables/t/rows/k", nil)
		return code == http.StatusOK && string(body) == "value", fmt.Sprint(code, string(body))
	})
}

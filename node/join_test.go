package node_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/config"
)

// table describes a table, as a node sees it.
func (c *trio) table(id, name string) (t api.Table) {
	c.t.Helper()
	_, body, _ := c.do(http.MethodGet, id, "/v1/tables/"+name, nil)
	if err := json.Unmarshal(body, &t); err != nil {
		c.t.Fatalf("%v: %s", err, body)
	}
	return t
}

// settled reports whether a table's replicas are on these nodes and no others, all
// of them voters that lack nothing.
func settled(t api.Table, nodes ...string) bool {
	for _, r := range t.Replicas {
		if !r.Voter || r.Leaving || r.Lag == nil || *r.Lag > 0 || !strings.Contains(strings.Join(nodes, " "), r.Node) {
			return false
		}
	}
	return len(t.Replicas) == len(nodes)
}

// up starts three founders with tables t0 to t2.
func (c *trio) up() {
	c.t.Helper()
	for _, id := range []string{"a", "b", "c"} {
		c.start(id)
	}
	for _, id := range []string{"a", "b", "c"} {
		c.ready(id)
	}
	for i := range 3 {
		if code, body, _ := c.do(http.MethodPut, "a", fmt.Sprintf("/v1/tables/t%d", i), nil); code/100 != 2 {
			c.t.Fatalf("create table t%d: %d %s", i, code, body)
		}
	}
}

// writers write rows to t0 on each of some nodes until stopped. All must be taken.
type writers struct {
	stop    chan struct{}
	wg      sync.WaitGroup
	written atomic.Int64
	longest atomic.Int64 // in nanoseconds
}

func (c *trio) write(ids ...string) *writers {
	w := &writers{stop: make(chan struct{})}
	for _, id := range ids {
		w.wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-w.stop:
					return
				default:
				}
				key := fmt.Sprintf("/v1/tables/t0/rows/%s-%d", id, i)
				begun := time.Now()
				code, body, _ := c.do(http.MethodPut, id, key, []byte(key))
				if code/100 != 2 {
					c.t.Errorf("put %s on %s: %d %s", key, id, code, body)
					return
				}
				w.written.Add(1)
				if took := int64(time.Since(begun)); took > w.longest.Load() {
					w.longest.Store(took)
				}
			}
		})
	}
	return w
}

func (w *writers) end() {
	close(w.stop)
	w.wg.Wait()
}

// same holds that the named nodes' own replicas have every row that was written.
func (c *trio) same(w *writers, from []string, on ...string) {
	c.t.Helper()
	total := int64(0)
	for _, id := range from {
		for i := 0; ; i++ {
			key := fmt.Sprintf("/v1/tables/t0/rows/%s-%d", id, i)
			if code, _, _ := c.do(http.MethodGet, on[0], key, nil); code == http.StatusNotFound {
				break
			}
			total++
			for _, other := range on {
				c.has(other, key)
			}
		}
	}
	if total != w.written.Load() {
		c.t.Fatalf("%d rows were acknowledged, and %d are there", w.written.Load(), total)
	}
	c.t.Logf("%d rows on %v; the longest write took %v", total, on, time.Duration(w.longest.Load()))
}

// has holds that a node's own replica has a row. It may have its entry and not know
// that it counts: followers hear of the last commits with the next heartbeat, and a
// local read shows what is applied.
func (c *trio) has(id, key string) {
	c.t.Helper()
	c.await(key+" on "+id, func() (bool, string) {
		code, body, _ := c.do(http.MethodGet, id, key+"?consistency=local", nil)
		return code == http.StatusOK && string(body) == key, fmt.Sprintf("%d %s", code, body)
	})
}

// TestJoinAndMove: a node joins three that are written to, and is given a replica:
// nothing is refused, nothing is lost, and it is ready all the while.
func TestJoinAndMove(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	c.up()
	c.port("d")
	w := c.write("a", "b", "c")
	joins := func(cfg *config.Config) {
		cfg.Cluster.Members, cfg.Cluster.Join = nil, []string{"http://" + c.ports["b"]}
	}
	c.startWith("d", joins)
	c.ready("d")
	if code, body, _ := c.do(http.MethodPost, "d", "/v1/tables/t0/replicas", []byte(`{"from":"a","to":"d"}`)); code != http.StatusAccepted {
		t.Fatalf("move: %d %s", code, body)
	}
	c.await("the replica is on d", func() (bool, string) {
		if code, body, _ := c.do(http.MethodGet, "d", "/health", nil); code != http.StatusOK {
			t.Fatalf("d was ready, and is not while it is given a replica: %s", body)
		}
		now := c.table("b", "t0")
		voters := map[string]bool{}
		for _, r := range now.Replicas {
			voters[r.Node] = r.Voter
		}
		return len(voters) == 3 && voters["b"] && voters["c"] && voters["d"], fmt.Sprintf("%+v", now)
	})
	w.end()
	c.await("all have all", func() (bool, string) {
		now := c.table("c", "t0")
		return settled(now, "b", "c", "d"), fmt.Sprintf("%+v", now)
	})
	c.same(w, []string{"a", "b", "c"}, "d", "b", "c")
	c.await("a has dropped its replica", func() (bool, string) {
		_, body, _ := c.do(http.MethodGet, "a", "/cluster/status/local", nil)
		return !strings.Contains(string(body), `"name":"t0"`), string(body)
	})

	// It stays what it is when it starts again.
	c.leave("d")
	c.startWith("d", joins)
	c.ready("d")
}

// TestReplaceDisk: a node whose disk is gone is refused with a sentence that says
// how it can come back, and then comes back with all that it had.
func TestReplaceDisk(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	c.up()
	w := c.write("a", "c")
	if code, body, _ := c.do(http.MethodPost, "a", "/v1/nodes/b/replace", nil); code != http.StatusConflict || !strings.Contains(string(body), "is alive") {
		t.Errorf("the disk of a node that lives: %d %s", code, body)
	}
	before := c.table("a", "t0")
	c.leave("b")
	if err := os.RemoveAll(filepath.Join(c.dir, "b")); err != nil {
		t.Fatal(err)
	}
	c.start("b")
	c.await("b says why it is not let in", func() (bool, string) {
		code, body, _ := c.do(http.MethodGet, "b", "/health", nil)
		return code == http.StatusServiceUnavailable && strings.Contains(string(body), "`tidal node replace b` lets it back in"), string(body)
	})
	if code, body, _ := c.do(http.MethodPost, "c", "/v1/nodes/b/replace", nil); code != http.StatusNoContent {
		t.Fatalf("replace: %d %s", code, body)
	}
	c.ready("b")
	for i := range 3 {
		name := fmt.Sprint("t", i)
		c.await(name+" is on three nodes again", func() (bool, string) {
			now := c.table("a", name)
			voters := 0
			for _, r := range now.Replicas {
				if r.Voter && !r.Leaving {
					voters++
				}
			}
			return len(now.Replicas) == 3 && voters == 3, fmt.Sprintf("%+v", now)
		})
	}
	w.end()
	c.await("all have all", func() (bool, string) {
		now := c.table("a", "t0")
		return settled(now, "a", "b", "c"), fmt.Sprintf("%+v", now)
	})
	c.same(w, []string{"a", "c"}, "b", "a", "c")
	for _, was := range before.Replicas {
		for _, is := range c.table("a", "t0").Replicas {
			if was.Node == "b" && is.ID == was.ID {
				t.Errorf("b has its old replica id %s", is.ID)
			}
		}
	}
	c.await("b votes on the metadata again", func() (bool, string) {
		_, body, _ := c.do(http.MethodGet, "a", "/cluster/status", nil)
		var s api.Status
		if err := json.Unmarshal(body, &s); err != nil {
			return false, err.Error()
		}
		return s.Members[1].Voter, string(body)
	})
	c.leave("a") // and c is nothing without it
	c.ready("b")
	if code, body, _ := c.do(http.MethodPut, "b", "/v1/tables/t0/rows/after", []byte("x")); code/100 != 2 {
		t.Errorf("a write that rests on b and c: %d %s", code, body)
	}
}

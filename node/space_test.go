package node_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/api"
)

// gauge is the real disk, except that it has as much space left for each node as a
// test says.
type gauge struct {
	vfs.FS

	mu   sync.Mutex
	free map[string]uint64 // node to bytes; absent: plenty
}

func (g *gauge) GetDiskUsage(path string) (vfs.DiskUsage, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	u := vfs.DiskUsage{TotalBytes: 1 << 40, AvailBytes: 1 << 39}
	if free, set := g.free[filepath.Base(path)]; set {
		u.AvailBytes = free
	}
	return u, nil
}

func (g *gauge) set(node string, free uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free[node] = free
}

// owned returns how many tables a node says that it owns.
func (c *trio) owned(id string) int {
	c.t.Helper()
	var s api.LocalStatus
	_, body, _ := c.do(http.MethodGet, id, "/cluster/status/local", nil)
	if err := json.Unmarshal(body, &s); err != nil {
		return -1
	}
	n := 0
	for _, l := range s.Tables {
		if l.Owns {
			n++
		}
	}
	return n
}

// TestFullDisk takes the space from one node, from two, and from all, and gives it
// back: a node that is full owns nothing if another can, and forwards; without a
// quorum that has space writes are refused with 507 and reads go on; with space
// back everything works again by itself.
func TestFullDisk(t *testing.T) {
	const plenty, little = 1 << 39, 32 << 20 // the reserve is 64 MiB
	c := newTrio(t, "a", "b", "c")
	g := &gauge{FS: vfs.Default, free: map[string]uint64{}}
	c.disk = g
	ids := []string{"a", "b", "c"}
	for _, id := range ids {
		c.start(id)
	}
	for _, id := range ids {
		c.ready(id)
	}
	for i := range 6 {
		if code, body, _ := c.do(http.MethodPut, "a", fmt.Sprintf("/v1/tables/t%d", i), []byte(`{"replicas":3}`)); code/100 != 2 {
			t.Fatalf("create table t%d: %d %s", i, code, body)
		}
	}
	round := 0
	write := func(want int, what string) {
		t.Helper()
		round++
		for i := range 6 {
			for _, id := range ids {
				path := fmt.Sprintf("/v1/tables/t%d/rows/%d-%s", i, round, id)
				if code, body, h := c.do(http.MethodPut, id, path, []byte("v")); code != want && code/100 != want/100 || code == 507 && h.Get("Retry-After") == "" {
					t.Fatalf("%s: put %s on %s: %d %s", what, path, id, code, body)
				}
			}
		}
	}
	read := func(what string) {
		t.Helper()
		for i := range 6 {
			for _, id := range ids {
				for _, how := range []string{"", "?consistency=local"} {
					path := fmt.Sprintf("/v1/tables/t%d/rows/1-a%s", i, how)
					if code, body, _ := c.do(http.MethodGet, id, path, nil); code != http.StatusOK || string(body) != "v" {
						t.Fatalf("%s: get %s on %s: %d %q", what, path, id, code, body)
					}
				}
			}
		}
	}
	full := func(id string) {
		t.Helper()
		c.await("node "+id+" says that its disk is full", func() (bool, string) {
			code, body, _ := c.do(http.MethodGet, id, "/health", nil)
			return code == http.StatusServiceUnavailable && strings.Contains(string(body), `"disk-full"`), string(body)
		})
	}
	write(200, "before")
	g.set("a", little)
	full("a")
	write(200, "while a is full")
	c.await("a owns nothing", func() (bool, string) { n := c.owned("a"); return n == 0, fmt.Sprint(n) })
	read("while a is full")

	g.set("b", little)
	g.set("c", little)
	full("b")
	full("c")
	c.await("writes are refused", func() (bool, string) {
		code, body, _ := c.do(http.MethodPut, "a", "/v1/tables/t0/rows/x", []byte("v"))
		return code == http.StatusInsufficientStorage, fmt.Sprint(code, string(body))
	})
	write(507, "while all are full")
	read("while all are full")
	c.await("b sees that three disks are full", func() (bool, string) {
		_, body, _ := c.do(http.MethodGet, "b", "/cluster/status", nil)
		return strings.Count(string(body), `"disk_full":true`) == 3, string(body)
	})

	for _, id := range ids {
		g.set(id, plenty)
	}
	for _, id := range ids {
		c.ready(id)
	}
	c.await("writes are taken", func() (bool, string) {
		code, body, _ := c.do(http.MethodPut, "a", "/v1/tables/t0/rows/x", []byte("v"))
		return code/100 == 2, fmt.Sprint(code, string(body))
	})
	write(200, "afterwards")
	read("afterwards")
	c.await("a owns tables again", func() (bool, string) { n := c.owned("a"); return n > 0, fmt.Sprint(n) })
}

package node_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tidal/node"
	"tidal/node/api"
)

// onSync is the real disk, on which f is called before every sync of the
// database's log.
func onSync(f func() error) vfs.FS {
	return errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if strings.HasSuffix(op.Path, ".log") {
				return f()
			}
		default:
		}
		return nil
	}))
}

// ends waits for a node to end by itself and returns why.
func (c *trio) ends(id string) error {
	c.t.Helper()
	r := c.ctl[id]
	delete(c.ctl, id)
	select {
	case err := <-r.done:
		r.stop()
		return err
	case <-time.After(20 * time.Second):
		c.t.Fatalf("node %s still runs", id)
		return nil
	}
}

// tableOfOne makes a table of one replica with a row in it.
func (c *trio) tableOfOne(id string) {
	c.t.Helper()
	if code, body, _ := c.do(http.MethodPut, id, "/v1/tables/t", []byte(`{"replicas":1}`)); code/100 != 2 {
		c.t.Fatalf("create a table: %d %s", code, body)
	}
	if code, body, _ := c.do(http.MethodPut, id, "/v1/tables/t/rows/before", []byte("v")); code/100 != 2 {
		c.t.Fatalf("put a row: %d %s", code, body)
	}
}

// put sends a write in the background, whose answer nobody waits for.
func (c *trio) put(id, key string) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), http.MethodPut, "http://"+c.ports[id]+"/v1/tables/t/rows/"+key, strings.NewReader("v"))
	if err != nil {
		c.t.Fatal(err)
	}
	go func() { // ends with the node
		if res, err := http.DefaultClient.Do(req); err == nil {
			_ = res.Body.Close()
		}
	}()
}

// TestFailedSyncEndsTheNode fails one fsync under a write. The raft loop hangs in
// the database then, for ever: the node ends around it, and says which file it was.
func TestFailedSyncEndsTheNode(t *testing.T) {
	var broken atomic.Bool
	c := newTrio(t, "a")
	c.disk = onSync(func() error {
		if broken.CompareAndSwap(true, false) { // once is enough
			return syscall.EIO
		}
		return nil
	})
	c.start("a")
	c.ready("a")
	c.tableOfOne("a")
	broken.Store(true)
	c.put("a", "after")
	err := c.ends("a")
	disk, ok := errors.AsType[*node.DiskError](err)
	if !ok || !errors.Is(err, node.ErrSetup) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("the node ended with %v", err)
	}
	if text := err.Error(); !strings.Contains(text, ".log at byte ") || !strings.Contains(text, "sync ") {
		t.Errorf("no file or no place is named: %s", text)
	}
	if !strings.Contains(disk.Hint, "tidal node replace a") {
		t.Errorf("no way out is named: %s", disk.Hint)
	}
}

// TestBallastGoesForAWrite has a write of the database's log find no space between
// two looks at the disk: the ballast goes for it, and the write is acknowledged. With
// no ballast left the node ends, and says which file it was.
func TestBallastGoesForAWrite(t *testing.T) {
	var brim, met atomic.Bool
	var ballast atomic.Pointer[string]
	c := newTrio(t, "a")
	g := &gauge{FS: vfs.Default, free: map[string]uint64{}}
	c.disk = errorfs.Wrap(g, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind != errorfs.OpFileWrite || !strings.HasSuffix(op.Path, ".log") || !brim.Load() {
			return nil
		}
		if b := ballast.Load(); b != nil {
			if _, err := os.Stat(*b); err != nil {
				return nil //nolint:nilerr // there is space now
			}
		}
		met.Store(true)
		return syscall.ENOSPC
	}))
	c.start("a")
	c.ready("a")
	c.tableOfOne("a")
	there := filepath.Join(c.dir, "a", "BALLAST")
	if _, err := os.Stat(there); err != nil {
		t.Fatal(err)
	}
	g.set("a", 70<<20) // not full, and too little for another ballast
	ballast.Store(&there)
	brim.Store(true)
	if code, body, _ := c.do(http.MethodPut, "a", "/v1/tables/t/rows/during", []byte("v")); code/100 != 2 {
		t.Errorf("a write at the brim: %d %s", code, body)
	}
	if _, err := os.Stat(there); !met.Load() || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no space was met: %t; the ballast: %v", met.Load(), err)
	}
	ballast.Store(nil)
	c.put("a", "after")
	err := c.ends("a")
	if disk, ok := errors.AsType[*node.DiskError](err); !ok || !strings.Contains(disk.Hint, "make room") || !strings.Contains(err.Error(), ".log at byte ") {
		t.Errorf("the node ended with %v", err)
	}
}

// TestStall keeps an fsync from returning: the node says so while it lasts, and
// goes on when it is over. When it lasts too long, the node ends.
func TestStall(t *testing.T) {
	var gate atomic.Pointer[chan struct{}]
	c := newTrio(t, "a")
	c.limits.StallAfter, c.limits.StallEnd = 300*time.Millisecond, 3*time.Second
	c.disk = onSync(func() error {
		if g := gate.Load(); g != nil {
			<-*g
		}
		return nil
	})
	c.start("a")
	c.ready("a")
	c.tableOfOne("a")
	for range 2 {
		shut := make(chan struct{})
		gate.Store(&shut)
		begun := time.Now()
		c.put("a", "during")
		c.await("node a says that it is stalled", func() (bool, string) {
			code, body, _ := c.do(http.MethodGet, "a", "/health", nil)
			return code == http.StatusServiceUnavailable && strings.Contains(string(body), `"stalled"`), string(body)
		})
		if took := time.Since(begun); took < 300*time.Millisecond {
			t.Errorf("the node was stalled after %v", took)
		}
		gate.Store(nil)
		close(shut)
		c.ready("a")
		c.await("the row is there", func() (bool, string) {
			code, body, _ := c.do(http.MethodGet, "a", "/v1/tables/t/rows/during", nil)
			return code == http.StatusOK, string(body)
		})
	}
	if _, body, _ := c.do(http.MethodGet, "a", "/metrics", nil); !strings.Contains(string(body), "\ntidal_raft_stalls_total 2\n") {
		t.Error("two stalls are not counted as two")
	}
	endless := make(chan struct{})
	t.Cleanup(func() { close(endless) })
	gate.Store(&endless)
	c.put("a", "never")
	if err := c.ends("a"); !errors.Is(err, node.ErrStalled) {
		t.Errorf("the node ended with %v", err)
	}
}

// TestSlowDisk keeps the database from writing its tables: before it would make
// anybody wait the node refuses writes with 429, while its loop turns and reads go
// on. With the disk well again it takes writes by itself.
func TestSlowDisk(t *testing.T) {
	shut := make(chan struct{})
	var slow atomic.Bool
	c := newTrio(t, "a")
	c.disk = errorfs.Wrap(vfs.Default, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if slow.Load() && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			<-shut
		}
		return nil
	}))
	open := sync.OnceFunc(func() { close(shut) })
	t.Cleanup(open)
	c.start("a")
	c.ready("a")
	c.tableOfOne("a")
	slow.Store(true)
	row := make([]byte, api.MaxValue)
	written := 0
	for code := 0; code != http.StatusTooManyRequests; written++ {
		var body []byte
		var h http.Header
		code, body, h = c.do(http.MethodPut, "a", fmt.Sprintf("/v1/tables/t/rows/%d", written), row)
		switch {
		case written > 200:
			t.Fatalf("%d MiB were taken", written)
		case code == http.StatusTooManyRequests && (h.Get("Retry-After") == "" || !strings.Contains(string(body), "does not keep up")):
			t.Errorf("refused with %v: %s", h, body)
		case code/100 != 2 && code != http.StatusTooManyRequests:
			t.Fatalf("row %d: %d %s", written, code, body)
		}
	}
	t.Logf("%d MiB were taken", written-1)
	if code, body, _ := c.do(http.MethodGet, "a", "/v1/tables/t/rows/before", nil); code != http.StatusOK {
		t.Errorf("a read: %d %s", code, body)
	}
	if code, body, _ := c.do(http.MethodGet, "a", "/health", nil); code != http.StatusOK {
		t.Errorf("a node that pushes back is not ready: %d %s", code, body)
	}
	open()
	c.await("writes are taken again", func() (bool, string) {
		code, body, _ := c.do(http.MethodPut, "a", "/v1/tables/t/rows/after", row)
		return code/100 == 2, string(body)
	})
}

// TestEmptiedDatabase: a directory whose database is gone is no new one.
func TestEmptiedDatabase(t *testing.T) {
	c := newTrio(t, "a")
	c.start("a")
	c.ready("a")
	c.leave("a")
	if err := os.RemoveAll(filepath.Join(c.dir, "a", "db")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first try must not leave what the second takes for a database
		c.start("a")
		err := c.ends("a")
		if disk, ok := errors.AsType[*node.DiskError](err); !ok || !strings.Contains(err.Error(), "FORMAT is there") || !strings.Contains(disk.Hint, "replace") {
			t.Errorf("the node ended with %v", err)
		}
	}
}

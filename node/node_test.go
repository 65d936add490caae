package node_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node"
	"tidal/node/api"
	"tidal/node/config"
	"tidal/pki"
)

// trio is a cluster of whole nodes in this process, on loopback: a plaintext one
// unless secure is called.
type trio struct {
	t     *testing.T
	ports map[string]string // node to HOST:PORT
	ctl   map[string]*running
	dir   string
	log   *slog.Logger

	limits node.Limits
	faults map[string]node.Faults // of each node
	disk   vfs.FS                 // of every node; nil: the real one
	runs   node.Program           // after a restart of any; nil: none can be restarted
	listen func(ctx context.Context, network, address string) (net.Listener, error)
	dial   func(c *trio, from string) func(ctx context.Context, network, address string) (net.Conn, error)
	certs  string // directory of certificates; "": plaintext
	web    *http.Client
	reload map[string]chan os.Signal
}

type running struct {
	stop context.CancelFunc
	kill chan struct{}
	done chan error
}

func newTrio(t *testing.T, ids ...string) *trio {
	t.Helper()
	c := &trio{t: t, ports: map[string]string{}, ctl: map[string]*running{}, dir: t.TempDir(), web: http.DefaultClient, reload: map[string]chan os.Signal{}}
	t.Cleanup(func() { c.clear() })
	log := &untilEnd{to: t.Output()}
	t.Cleanup(log.end)
	c.log = slog.New(slog.NewTextHandler(log, nil))
	for _, id := range ids {
		c.port(id)
	}
	t.Cleanup(func() {
		for id := range c.ctl {
			c.kill(id)
		}
	})
	return c
}

// untilEnd is a test's log. What a node says after the end of the test is dropped: see clear.
type untilEnd struct {
	mu sync.Mutex
	to io.Writer // nil: the test is over
}

// Write implements io.Writer.
func (u *untilEnd) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.to == nil {
		return len(p), nil
	}
	return u.to.Write(p)
}

func (u *untilEnd) end() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.to = nil
}

// clear removes the directory. A node that ended around a loop that hangs is not the
// end of its process here: what it still writes must not be in the way.
func (c *trio) clear() {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Second)
	for {
		err := os.RemoveAll(c.dir)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Errorf("the directory stays: %v", err)
			return
		}
	}
}

// port finds a node a port.
func (c *trio) port(id string) {
	c.t.Helper()
	l, err := (&net.ListenConfig{}).Listen(c.t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	c.ports[id] = l.Addr().String()
	if err := l.Close(); err != nil {
		c.t.Fatal(err)
	}
}

func (c *trio) start(id string) { c.startWith(id, func(*config.Config) {}) }

func (c *trio) startWith(id string, change func(*config.Config)) {
	cfg := config.Default()
	cfg.Node.ID, cfg.Node.Data = id, filepath.Join(c.dir, id)
	cfg.Node.Listen, cfg.Node.Advertise = c.ports[id], c.url(id)
	cfg.Disk = config.Disk{Ballast: "16MiB", Reserve: "64MiB"}
	cfg.Cluster.Name, cfg.Cluster.Members = "test", map[string]string{}
	for id := range c.ports {
		cfg.Cluster.Members[id] = c.url(id)
	}
	if c.certs != "" {
		f := pki.NodeFiles(c.certs, id)
		cfg.TLS.CA, cfg.TLS.Cert, cfg.TLS.Key = f.CA, f.Cert, f.Key
	}
	c.reload[id] = make(chan os.Signal, 1)
	change(&cfg)
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{stop: cancel, kill: make(chan struct{}), done: make(chan error, 1)}
	c.ctl[id] = r
	reload := c.reload[id]
	dial, listen := (&net.Dialer{}).DialContext, (&net.ListenConfig{}).Listen
	if c.listen != nil {
		listen = c.listen
	}
	if c.dial != nil {
		dial = c.dial(c, id)
	}
	go func() {
		r.done <- node.Run(ctx, r.kill, node.Options{
			Config: cfg, Version: "test", Log: c.log, Limits: c.limits, Faults: c.faults[id], Disk: c.disk,
			Listen: listen, Dial: dial, Reload: reload, Program: c.runs,
		})
	}()
}

func (c *trio) kill(id string) {
	if r := c.ctl[id]; r != nil {
		close(r.kill)
		<-r.done
		r.stop()
		delete(c.ctl, id)
	}
}

func (c *trio) leave(id string) {
	c.t.Helper()
	r := c.ctl[id]
	r.stop()
	if err := <-r.done; err != nil {
		c.t.Fatalf("node %s: graceful stop: %v", id, err)
	}
	delete(c.ctl, id)
}

func (c *trio) url(id string) string {
	if c.certs == "" {
		return "http://" + c.ports[id]
	}
	return "https://" + c.ports[id]
}

func (c *trio) do(method, id, path string, body []byte) (int, []byte, http.Header) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.t.Context(), method, c.url(id)+path, bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	res, err := c.web.Do(req)
	if err != nil {
		return 0, []byte(err.Error()), nil
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, []byte(err.Error()), nil
	}
	return res.StatusCode, b, res.Header
}

// await polls until f says true.
func (c *trio) await(what string, f func() (bool, string)) {
	c.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for {
		ok, now := f()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			c.t.Fatalf("%s: not within 30 s: %s", what, now)
		}
	}
}

func (c *trio) ready(id string) {
	c.t.Helper()
	c.await("node "+id+" ready", func() (bool, string) {
		code, body, _ := c.do(http.MethodGet, id, "/health", nil)
		return code == http.StatusOK, string(body)
	})
}

func TestThreeNodesAnswer(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	for id := range c.ports {
		c.start(id)
	}
	for id := range c.ports {
		c.ready(id)
	}
	for i := range 6 {
		code, body, _ := c.do(http.MethodPut, "a", fmt.Sprintf("/v1/tables/t%d", i), []byte(`{"replicas":3}`))
		if code/100 != 2 {
			t.Fatalf("create table t%d: %d %s", i, code, body)
		}
	}
	for i := range 60 {
		for id := range c.ports {
			key := fmt.Sprintf("/v1/tables/t%d/rows/k%d-%s", i%6, i, id)
			if code, body, _ := c.do(http.MethodPut, id, key, []byte(key)); code/100 != 2 {
				t.Fatalf("put %s on %s: %d %s", key, id, code, body)
			}
		}
	}
	owners := map[string]int{}
	for i := range 6 {
		var table api.Table
		_, body, _ := c.do(http.MethodGet, "b", fmt.Sprintf("/v1/tables/t%d", i), nil)
		if err := json.Unmarshal(body, &table); err != nil {
			t.Fatalf("%v: %s", err, body)
		}
		owners[table.Owner]++
	}
	if len(owners) != 3 {
		t.Errorf("six tables are owned by %v: want two each", owners)
	}
	c.leave("a")
	check := func(id string) {
		t.Helper()
		for i := range 60 {
			for from := range c.ports {
				key := fmt.Sprintf("/v1/tables/t%d/rows/k%d-%s", i%6, i, from)
				if code, body, _ := c.do(http.MethodGet, id, key, nil); code != http.StatusOK || string(body) != key {
					t.Fatalf("get %s on %s: %d %q", key, id, code, body)
				}
			}
		}
	}
	check("b")
	c.start("a")
	c.ready("a")
	check("a")
}

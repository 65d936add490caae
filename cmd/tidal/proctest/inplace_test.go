package proctest_test

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
)

const (
	loyalWriters = 5                     // on each node
	loyalThink   = 10 * time.Millisecond // at most, between an answer and the next write
)

// TestInPlace restarts nodes in place under writers that never leave their node:
// each has a connection that it keeps, and bodies that cannot be sent again.
// Every node is restarted, and the first once more. INPLACE_RUNS repeats it, each
// time with a new cluster; INPLACE_NODES sets how many nodes there are.
func TestInPlace(t *testing.T) {
	var longest []time.Duration
	for i := range runs(t, "INPLACE_RUNS", 1) {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) { longest = append(longest, inPlaceRun(t)) })
	}
	demandWaits(t, longest)
}

func inPlaceRun(t *testing.T) time.Duration {
	t.Helper()
	c := newCluster(t, clusterOptions{nodes: runs(t, "INPLACE_NODES", 3), delay: linkDelay})
	c.startAll(t)
	tables := c.createTables(t, gracefulTables)
	f := launchLoyal(t, c.targets(), tables, loyalWriters)
	pause(time.Second)
	order := make([]int, 0, len(c.nodes)+1)
	for i := range c.nodes {
		order = append(order, i)
	}
	for _, i := range append(order, 0) {
		pid := c.nodes[i].cmd.Process.Pid
		took := c.inPlace(t, i)
		if !c.nodes[i].running() || c.nodes[i].cmd.Process.Pid != pid {
			t.Fatalf("%s: the process is another one, or none", c.nodes[i].id)
		}
		t.Logf("%s: another incarnation in %v, ready in %v", c.nodes[i].id, took[0].Round(time.Millisecond), took[1].Round(time.Millisecond))
		pause(500 * time.Millisecond)
	}
	lasted := time.Since(f.began)
	f.stop()
	r := summarise(f.writes(), lasted)
	t.Logf("%s", r)
	if r.refused > 0 {
		t.Errorf("%d of %d writes were not answered 2xx", r.refused, r.total)
	}
	if r.total < 1000 {
		t.Errorf("only %d writes: too few to prove anything", r.total)
	}
	if r.longest.took > api.Patience {
		t.Errorf("a write waited %v", r.longest.took)
	}
	wrong, _ := readBack(c.targets(), append(f.writes(), f.unsent(tables)...), followerLag)
	showList(t, "read back", wrong)
	return r.longest.took.Round(time.Millisecond)
}

// local is what a node says of itself.
func (c *cluster) local(t *testing.T, i int) api.LocalStatus {
	t.Helper()
	a := c.must(t, i, http.MethodGet, "/cluster/status/local", "", nil)
	var s api.LocalStatus
	if err := json.Unmarshal(a.body, &s); err != nil || a.status != http.StatusOK {
		t.Fatalf("%s: %v: %s", c.nodes[i].id, err, a)
	}
	return s
}

// owned is how many tables a node owns.
func (c *cluster) owned(t *testing.T, i int) int {
	t.Helper()
	n := 0
	for _, x := range c.local(t, i).Tables {
		if x.Owns {
			n++
		}
	}
	return n
}

// inPlace restarts a node in place and returns when its next incarnation answered
// and when it was ready.
func (c *cluster) inPlace(t *testing.T, i int) (took [2]time.Duration) {
	t.Helper()
	was := c.local(t, i).Incarnation
	began := time.Now()
	if a := c.must(t, i, http.MethodPost, "/v1/node/restart", "", nil); a.status != http.StatusAccepted {
		t.Fatalf("%s: restart in place: %s", c.nodes[i].id, a)
	}
	eventually(t, 30*time.Second, func() error {
		if now := c.local(t, i).Incarnation; now == was {
			return fmt.Errorf("%s is still %s", c.nodes[i].id, was)
		}
		return nil
	})
	took[0] = time.Since(began)
	eventually(t, 30*time.Second, func() error { return c.health(i) })
	took[1] = time.Since(began)
	return took
}

// launchLoyal starts writers that stay with one node whatever it says.
func launchLoyal(t *testing.T, targets []target, tables []string, perNode int) *fleet {
	t.Helper()
	f := &fleet{targets: targets, stopped: make(chan struct{}), began: time.Now()}
	for _, tg := range targets {
		f.rows = append(f.rows, transport(tg.tls))
	}
	t.Cleanup(f.stop)
	for i := range perNode * len(targets) {
		w := &writer{f: f, id: i, table: tables[i%len(tables)]}
		f.writers = append(f.writers, w)
		f.wg.Go(func() { w.stay(i/perNode, func() time.Duration { return rand.N(loyalThink) }) })
	}
	return f
}

// stay writes to one node until the fleet stops, with a pause after each answer.
func (w *writer) stay(i int, think func() time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-w.f.stopped:
			return
		}
		r := write{table: w.table, key: w.key(len(w.writes)), at: time.Since(w.f.began), node: w.f.targets[i].name}
		w.send(i, &r)
		r.took = time.Since(w.f.began) - r.at
		w.writes = append(w.writes, r)
		timer.Reset(think())
	}
}

// TestInPlaceSlowClient: one request that takes for ever does not keep a node from its next
// run, nor those who come anew from their answers.
func TestInPlaceSlowClient(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{})
	c.startAll(t)
	c.createTables(t, 1)
	n := c.nodes[0]
	pid, was := n.cmd.Process.Pid, c.local(t, 0).Incarnation
	slow, err := tls.Dial("tcp", n.listen, c.tls)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = slow.Close() }()
	_, err = io.WriteString(slow, "PUT /v1/tables/t0/rows/slow HTTP/1.1\r\nHost: a\r\nContent-Length: 1048576\r\n\r\n")
	go drip(slow, "v", time.Minute, err) // until it is cut
	if a := c.must(t, 0, http.MethodPost, "/v1/node/restart", "", nil); a.status != http.StatusAccepted {
		t.Fatalf("restart in place: %s", a)
	}
	longest, now := time.Duration(0), was
	for i, began := 0, time.Now(); now == was; i++ {
		if time.Since(began) > 40*time.Second {
			t.Fatalf("still %s", was)
		}
		asked := time.Now()
		a := c.must(t, 0, http.MethodPut, fmt.Sprintf("/v1/tables/t0/rows/n%d", i), "v", nil)
		now = c.local(t, 0).Incarnation
		if longest = max(longest, time.Since(asked)); a.status/100 != 2 {
			t.Errorf("after %v: %s", time.Since(began), a)
		}
	}
	t.Logf("the longest wait was %v", longest)
	if longest > api.Patience {
		t.Errorf("a newcomer waited %v", longest)
	}
	if !n.running() || n.cmd.Process.Pid != pid {
		t.Error("the process is another one, or none")
	}
}

// TestInPlaceRefused: with a configuration that would not start, a restart is
// refused with what is wrong, and nothing happens.
func TestInPlaceRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{})
	c.startAll(t)
	n := c.nodes[0]
	good, err := os.ReadFile(n.config)
	if err != nil {
		t.Fatal(err)
	}
	was := c.local(t, 0)
	refuse := func(what, change, want string) {
		t.Helper()
		if err = os.WriteFile(n.config, []byte(change), 0o600); err != nil {
			t.Fatal(err)
		}
		a := c.must(t, 0, http.MethodPost, "/v1/node/restart", "", nil)
		var p api.Problem
		if err = json.Unmarshal(a.body, &p); err != nil || a.status != http.StatusConflict || p.Code != api.CodeCheckFailed || !strings.Contains(p.Detail, want) {
			t.Errorf("%s: %s; want 409 check-failed with %q", what, a, want)
		}
		if err = c.health(0); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	refuse("an unknown key", string(good)+"\n[nonsense]\nx = 1\n", "nonsense")
	refuse("a certificate that is gone", strings.Replace(string(good), "tls.crt", "none.crt", 1), "none.crt")
	if err = os.WriteFile(n.config, good, 0o600); err != nil {
		t.Fatal(err)
	}
	format := c.dir + "/" + n.id + "/FORMAT"
	old, err := os.ReadFile(format)
	if err != nil {
		t.Fatal(err)
	}
	if err = os.WriteFile(format, []byte("4711\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	refuse("data of a later release", string(good), "format 4711")
	if err = os.WriteFile(format, old, 0o600); err != nil {
		t.Fatal(err)
	}
	if now := c.local(t, 0); now.Incarnation != was.Incarnation || now.Draining {
		t.Errorf("after refusals: %+v, was %+v", now, was)
	}
	// Through another node, and with all in order, it works.
	a := c.must(t, 1, http.MethodPost, "/v1/nodes/"+n.id+"/restart", "", nil)
	if a.status != http.StatusAccepted {
		t.Fatalf("through %s: %s", c.nodes[1].id, a)
	}
	eventually(t, 30*time.Second, func() error {
		if now := c.local(t, 0).Incarnation; now == was.Incarnation {
			return fmt.Errorf("still %s", now)
		}
		return c.health(0)
	})
	if a := c.must(t, 1, http.MethodPost, "/v1/nodes/nobody/restart", "", nil); a.status != http.StatusNotFound {
		t.Errorf("of no member: %s", a)
	}
}

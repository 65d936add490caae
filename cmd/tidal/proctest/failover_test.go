package proctest_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"
)

// What a failover run demands.
const (
	failoverRate  = 1000                   // requests a second
	failoverGap   = 250 * time.Millisecond // longest time in which a table acknowledges nothing
	failoverQuiet = 100 * time.Millisecond // longest such time before, or the machine is too busy to tell
	stallGap      = time.Second            // by when others serve what a frozen node owned
	freezeGap     = 2 * time.Second        // and what one owned whose disk hangs
)

// TestKillOwner ends the node that owns most by SIGKILL, under load through the other
// two: they refuse nothing, and no table stands still for long. FAILOVER_RUNS repeats
// it and demands the gap of the median.
func TestKillOwner(t *testing.T) {
	n := runs(t, "FAILOVER_RUNS", 1)
	var gaps []time.Duration
	most := 1
	if n > 1 {
		most = 3 * n
	}
	for tries := 0; len(gaps) < n && tries < most; tries++ {
		t.Run(strconv.Itoa(tries+1), func(t *testing.T) {
			if gap, quiet := killOwner(t); quiet {
				gaps = append(gaps, gap)
			}
		})
	}
	slices.Sort(gaps)
	t.Logf("gaps: %v", gaps)
	switch {
	case len(gaps) == 0:
		t.Skipf("tables stood still for more than %v before anything was killed: this machine is too busy", failoverQuiet)
	case n > 1 && gaps[len(gaps)/2] > failoverGap:
		t.Errorf("the median of the gaps is %v, want at most %v", gaps[len(gaps)/2], failoverGap)
	}
}

// killOwner is one run. quiet is whether the machine let the load be even before.
func killOwner(t *testing.T) (gap time.Duration, quiet bool) {
	t.Helper()
	c, tables := newFailover(t, nil)
	victim := c.ownsMost(t, tables)
	l := openLoad(t, c, &load{tables: tables, via: others(victim), rate: failoverRate})
	pause(1200 * time.Millisecond)
	at := l.now()
	c.nodes[victim].kill()
	pause(time.Second)
	end := l.now()
	l.stop()
	r := summarise(l.mu.writes, end)
	before, _ := l.gap(500*time.Millisecond, at)
	gap, table := l.gap(at, end)
	t.Logf("%s", r)
	t.Logf("longest without an acknowledgement: %v before, %v of %s after the kill", before.Round(time.Millisecond), gap.Round(time.Millisecond), table)
	wrong, _ := readBack(pickTargets(c, others(victim)), l.mu.writes, followerLag)
	showList(t, "read back", wrong)
	if before > failoverQuiet {
		t.Logf("the machine is too busy: this run does not count")
		return gap, false
	}
	if r.refused > 0 {
		t.Errorf("%d of %d writes were refused", r.refused, r.total)
	}
	return gap, true
}

// TestFreezeOwner stops the node that owns most by SIGSTOP, for 2 s or, with
// FAILOVER_RUNS, for 20 s. The others serve what it owned. Requests that reached it
// before it goes on, and are answered after, get no old answer.
func TestFreezeOwner(t *testing.T) {
	long := 2 * time.Second
	if runs(t, "FAILOVER_RUNS", 1) > 1 {
		long = 20 * time.Second
	}
	c, tables := newFailover(t, nil)
	victim := c.ownsMost(t, tables)
	standstill{victim: victim, long: long, limit: stallGap, set: func(stop bool) error {
		if stop {
			return c.nodes[victim].signal(syscall.SIGSTOP)
		}
		return c.nodes[victim].signal(syscall.SIGCONT)
	}}.run(t, c, tables)
}

// standstill is a node that stands still for a while.
type standstill struct {
	victim int
	long   time.Duration
	limit  time.Duration // by when the others must serve
	set    func(stop bool) error
}

// run runs load through the other nodes meanwhile.
func (s standstill) run(t *testing.T, c *cluster, tables []string) {
	t.Helper()
	victim := s.victim
	other := others(victim)
	l := openLoad(t, c, &load{tables: tables, via: other, rate: failoverRate / 2, reads: true})
	pause(time.Second)
	held := c.holdOpen(t, victim, tables)
	at := l.now()
	if err := s.set(true); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, name := range tables {
		c.must(t, other[0], http.MethodPut, "/v1/tables/"+name+"/rows/epoch", "new", nil)
	}
	t.Logf("all %d tables written %v after the freeze", len(tables), time.Since(began).Round(time.Millisecond))
	answers := held.ask()
	pause(s.long - time.Since(began))
	if err := s.set(false); err != nil {
		t.Fatal(err)
	}
	answers.demand(t)
	eventually(t, 30*time.Second, func() error { return c.health(victim) })
	pause(time.Second)
	end := l.now()
	l.stop()
	all := summarise(slices.Concat(l.mu.writes, l.mu.reads), end)
	gap, table := l.gap(at, end)
	t.Logf("%s", all)
	t.Logf("longest without an acknowledgement: %v of %s", gap.Round(time.Millisecond), table)
	if all.refused > 0 {
		t.Errorf("%d of %d requests were refused", all.refused, all.total)
	}
	if before, _ := l.gap(500*time.Millisecond, at); before > failoverQuiet {
		t.Logf("longest without one before the freeze: %v: this machine is too busy to hold anybody to a time", before.Round(time.Millisecond))
	} else if all.longest.took > s.limit {
		t.Errorf("a request took %v, want at most %v", all.longest.took, s.limit)
	}
	wrong, _ := readBack(c.targets(), l.mu.writes, followerLag)
	showList(t, "read back", wrong)
}

// newFailover starts three nodes that reach each other without a proxy, so that a
// dead one's port refuses. data gives each node's directory; nil: the default.
func newFailover(t *testing.T, prepare func(c *cluster)) (*cluster, []string) {
	t.Helper()
	c := newCluster(t, clusterOptions{direct: true})
	if prepare != nil {
		prepare(c)
	}
	c.startAll(t)
	tables := c.createTables(t, gracefulTables)
	for _, name := range tables {
		for _, key := range []string{seedKey, "epoch"} {
			a := c.must(t, 0, http.MethodPut, "/v1/tables/"+name+"/rows/"+key, string(rowValue(name, key)), nil)
			if a.status/100 != 2 {
				t.Fatalf("%s/%s: %s", name, key, a)
			}
		}
	}
	return c, tables
}

// ownsMost returns the node that owns the most tables.
func (c *cluster) ownsMost(t *testing.T, tables []string) int {
	t.Helper()
	count := make([]int, len(c.nodes))
	for _, name := range tables {
		owner := c.table(t, 0, name).Owner
		if i := slices.IndexFunc(c.nodes, func(n *node) bool { return n.id == owner }); i >= 0 {
			count[i]++
		}
	}
	return slices.Index(count, slices.Max(count))
}

// others are the nodes but one.
func others(than int) (out []int) {
	for i := range 3 {
		if i != than {
			out = append(out, i)
		}
	}
	return out
}

func pickTargets(c *cluster, which []int) (out []target) {
	for i, tg := range c.targets() {
		if slices.Contains(which, i) {
			out = append(out, tg)
		}
	}
	return out
}

// held is clients that have connections to one node.
type held struct {
	c       *cluster
	at      int
	tables  []string
	clients []*http.Client // one a table, and request
}

// holdOpen opens two connections a table to a node, by a read of its row epoch on each.
func (c *cluster) holdOpen(t *testing.T, at int, tables []string) *held {
	t.Helper()
	h := &held{c: c, at: at, tables: tables}
	for _, name := range tables {
		for range 2 {
			tr := transport(c.tls)
			tr.ResponseHeaderTimeout = time.Minute
			t.Cleanup(tr.CloseIdleConnections)
			client := &http.Client{Transport: tr, Timeout: time.Minute}
			if s, err := get(client, h.url(name)); err != nil || !s.found {
				t.Fatalf("%s: %v", name, err)
			}
			h.clients = append(h.clients, client)
		}
	}
	return h
}

func (h *held) url(table string) string {
	return h.c.targets()[h.at].base + "/v1/tables/" + table + "/rows/epoch"
}

// answers is what came of the requests that were written to a node that stands still.
type answers struct {
	wg     sync.WaitGroup
	mu     sync.Mutex
	served int
	stale  []string
	why    []string
}

// ask writes a read and a conditional write of each table's row epoch, which is
// "new" by now, and returns without waiting for their answers.
func (h *held) ask() *answers {
	a := &answers{}
	for i, client := range h.clients {
		name := h.tables[i/2]
		if i%2 == 0 {
			a.wg.Go(func() { a.read(client, name, h.url(name)) })
		} else {
			a.wg.Go(func() { a.write(client, name, h.url(name)) })
		}
	}
	return a
}

func (a *answers) read(client *http.Client, name, url string) {
	s, err := get(client, url)
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err != nil:
		a.why = append(a.why, name+": "+plainText(err.Error()))
	case string(s.value) != "new":
		a.stale = append(a.stale, fmt.Sprintf("%s: read %q, and new was acknowledged before it was asked for", name, s.value))
	default:
		a.served++
	}
}

// write creates the row if it is not there. It is: 412 is the answer of one who knows.
func (a *answers) write(client *http.Client, name, url string) {
	req, err := http.NewRequest(http.MethodPut, url, nil)
	if err == nil {
		req.Header.Set("If-None-Match", "*")
	}
	res, err := client.Do(req)
	if err == nil {
		err = res.Body.Close()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err != nil:
		a.why = append(a.why, name+": "+plainText(err.Error()))
	case res.StatusCode == http.StatusPreconditionFailed:
		a.served++
	case res.StatusCode/100 == 2:
		a.stale = append(a.stale, name+": a row that is there was created")
	default:
		a.why = append(a.why, fmt.Sprintf("%s: %d", name, res.StatusCode))
	}
}

// demand waits for the answers and fails the test for old ones. Not to be served is
// a client's risk who asks a node that is frozen; not to be served ever would show
// that nothing was tested.
func (a *answers) demand(t *testing.T) {
	t.Helper()
	a.wg.Wait()
	t.Logf("of the requests that the node was sent while it stood still, %d were served after, %d failed: %v", a.served, len(a.why), a.why)
	showList(t, "old answers", a.stale)
	if a.served == 0 {
		t.Error(errors.New("none was served: the test proves nothing"))
	}
}

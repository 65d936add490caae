package proctest_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
)

// A node that comes back to, or joins, a cluster on which nothing happens.
const (
	readyWithin  = 200 * time.Millisecond // two heartbeats: from level to 200
	readyTables  = 6                      // of which the last is never written
	readyRows    = 12                     // written to each of the others while the node is away
	readyNever   = 30 * time.Second       // how long the control must stay unready
	readyGlimpse = 3 * time.Second        // likewise in the short form
	shortLogs    = "log-bytes=4096"       // less than what is written: who was away needs snapshots
	noLogs       = "log-bytes=1"          // likewise of a log of nothing but elections
)

// TestReady has nodes come back that need snapshots, their logs' successors being
// cut, while nobody writes or asks anything: /health, polled on nothing else, must
// be 503 until the node is level and 200 within two heartbeats after that. With
// READY_RUNS each kind of comeback is made so often, as `make ready` does; else the
// first is made once. At the end the same node comes back with the frontiers of its
// leaders unheard: it must stay unready, or the rest proves nothing.
func TestReady(t *testing.T) {
	whole := os.Getenv("READY_RUNS") != ""
	n := runs(t, "READY_RUNS", 1)
	t.Run("behind the logs", func(t *testing.T) { readyBehind(t, n, whole) })
	if !whole {
		return
	}
	t.Run("nothing ever written", func(t *testing.T) { readyUnwritten(t, n) })
	t.Run("a membership change last", func(t *testing.T) { readyReshaped(t, n) })
	for i := range n {
		t.Run("joiner/"+strconv.Itoa(i+1), readyJoiner)
	}
}

// readyBehind kills each node in turn, writes rows, and waits until the logs are
// cut and all is quiet.
func readyBehind(t *testing.T, n int, whole bool) { //nolint:revive // the short form is the same test
	t.Helper()
	c := newCluster(t, clusterOptions{faults: shortLogs})
	c.startAll(t)
	tables := c.createTables(t, readyTables)
	for run := range n {
		i := run % len(c.nodes)
		c.nodes[i].kill()
		rows := c.fill(t, (i+1)%len(c.nodes), tables[:readyTables-1], run)
		before := c.idle(t, i, readyTables, 4096, 0)
		b := c.comeBack(t, i)
		b.demand(t, before, readyTables-1)
		c.demandRows(t, i, rows)
	}
	c.nodes[0].kill()
	patience := readyGlimpse
	if whole {
		patience = readyNever
		c.idle(t, 0, readyTables, 4096, 0)
	}
	c.nodes[0].start(t, shortLogs+",no-frontier")
	err := poll(patience, func() error { return c.health(0) })
	if err == nil {
		t.Error("a node that hears no frontier became ready: the test cannot fail")
	}
	t.Logf("without frontiers: %v", err)
}

// readyUnwritten kills nodes of a cluster in whose tables nobody ever wrote: what
// they lack is who was elected meanwhile.
func readyUnwritten(t *testing.T, n int) {
	t.Helper()
	c := newCluster(t, clusterOptions{faults: noLogs})
	c.startAll(t)
	c.createTables(t, readyTables)
	for run := range n {
		i := run % len(c.nodes)
		led := c.owned(t, i)
		c.nodes[i].kill()
		before := c.idle(t, i, readyTables, 1, 0)
		b := c.comeBack(t, i)
		b.demand(t, before, max(led, 1))
	}
}

// readyReshaped has a replica move while a holder of another is away: the change of
// the configuration is the last thing that happens to the table.
func readyReshaped(t *testing.T, n int) {
	t.Helper()
	c := newCluster(t, clusterOptions{nodes: 4, faults: noLogs})
	c.startAll(t)
	c.createTablesOf(t, readyTables, 3)
	for run := range n {
		name := fmt.Sprintf("t%d", run%readyTables)
		other := c.table(t, 0, name)
		held := map[string]bool{}
		for _, r := range other.Replicas {
			held[r.Node] = true
		}
		away, from, to, ask := -1, "", "", 0
		for k := range c.nodes {
			node := c.nodes[(run+k)%len(c.nodes)].id
			switch {
			case !held[node]:
				to = node
			case away < 0:
				away = (run + k) % len(c.nodes)
			default:
				from, ask = node, (run+k)%len(c.nodes)
			}
		}
		c.nodes[away].kill()
		c.move(t, ask, name, from, to)
		eventually(t, 30*time.Second, func() error { return moved(c.table(t, ask, name), from, to) })
		before := c.idle(t, away, readyTables, 1, 0)
		b := c.comeBack(t, away)
		b.demand(t, before, 1)
	}
}

// readyJoiner has a fourth node join, and come back to a replica that it was given
// while it was away.
func readyJoiner(t *testing.T) {
	c := newCluster(t, clusterOptions{nodes: 4, joiners: 1, faults: shortLogs})
	c.startAll(t)
	tables := c.createTables(t, readyTables)
	c.fill(t, 0, tables[:readyTables-1], 0)
	before := c.idle(t, 3, readyTables, 4096, 0)
	b := c.comeBack(t, 3)
	b.demand(t, before, 1)
	if len(b.local.Tables) > 0 {
		t.Errorf("the joiner holds %+v", b.local.Tables)
	}
	c.nodes[3].kill()
	from := c.nodes[0].id
	c.move(t, 1, tables[0], from, c.nodes[3].id)
	rows := c.fill(t, 1, tables[:1], 1)
	before = c.idle(t, 3, readyTables, 4096, 1)
	b = c.comeBack(t, 3)
	if len(b.local.Tables) != 1 || len(before) != 1 {
		t.Errorf("the joiner holds %+v, not the one table that it was given", b.local.Tables)
	}
	b.demand(t, before, 1)
	c.demandRows(t, 3, rows)
	eventually(t, 10*time.Second, func() error { return moved(c.table(t, 1, tables[0]), from, c.nodes[3].id) })
}

func (c *cluster) move(t *testing.T, ask int, table, from, to string) {
	t.Helper()
	a := c.must(t, ask, http.MethodPost, "/v1/tables/"+table+"/replicas", fmt.Sprintf(`{"from":%q,"to":%q}`, from, to), nil)
	if a.status/100 != 2 {
		t.Fatalf("move a replica of %s from %s to %s: %s", table, from, to, a)
	}
}

// moved is an error until a move is carried out.
func moved(t api.Table, from, to string) error {
	there := false
	for _, r := range t.Replicas {
		if r.Node == from || r.Leaving || !r.Voter {
			return fmt.Errorf("on its way from %s to %s: %+v", from, to, t.Replicas)
		}
		there = there || r.Node == to
	}
	if !there {
		return fmt.Errorf("not on %s: %+v", to, t.Replicas)
	}
	return nil
}

// fill writes rows through one node and returns the first and the last of each table.
func (c *cluster) fill(t *testing.T, i int, tables []string, run int) (ends []write) {
	t.Helper()
	for _, table := range tables {
		for k := range readyRows {
			w := write{table: table, key: fmt.Sprintf("%03d-%03d", run, k)}
			body := string(rowValue(table, w.key)) + strings.Repeat(" ", 900)
			a := c.must(t, i, http.MethodPut, "/v1/tables/"+table+"/rows/"+w.key, body, nil)
			if a.status/100 != 2 {
				t.Fatalf("write %s/%s: %s", table, w.key, a)
			}
			if k == 0 || k == readyRows-1 {
				ends = append(ends, w)
			}
		}
	}
	return ends
}

// idle waits until nothing happens on the nodes other than one that is away, its
// lease is over, and their logs are cut, but for so many groups that have a learner
// on it and stay awake. It returns how far each table of the one that is away had
// been committed then.
func (c *cluster) idle(t *testing.T, away, tables, logBytes, awake int) map[string]uint64 {
	t.Helper()
	committed := map[string]uint64{}
	for i, n := range c.nodes {
		if i == away {
			continue
		}
		eventually(t, time.Minute, func() error {
			for _, want := range []struct {
				metric string
				most   int
			}{
				{"tidal_leases", len(c.nodes) - 1},
				{"tidal_raft_groups_awake", 1 + awake},
				{"tidal_raft_log_bytes", (tables + 1) * logBytes},
			} {
				v, err := c.metric(i, want.metric)
				if err == nil && int(v) > want.most {
					err = fmt.Errorf("%s: %s is %v, not at most %d", n.id, want.metric, v, want.most)
				}
				if err != nil {
					return err
				}
			}
			return nil
		})
		for _, x := range c.local(t, i).Tables {
			committed[x.Name] = max(committed[x.Name], x.Commit)
		}
	}
	for name := range committed {
		holds := func(r api.Replica) bool { return r.Node == c.nodes[away].id }
		if !slices.ContainsFunc(c.table(t, (away+1)%len(c.nodes), name).Replicas, holds) {
			delete(committed, name)
		}
	}
	return committed
}

// comeback is what a node's /health said from its start until it was ready, and when
// it was level by its log.
type comeback struct {
	node      string
	started   time.Time
	ready     time.Time // the answer 200
	level     time.Time // it had its lease, and had applied the last of what it lacked
	unready   int       // answers of 503
	last      string    // of their bodies
	snapshots float64   // that became the state of replicas
	local     api.LocalStatus
}

// comeBack starts a node and asks it for nothing but its health until that is good.
func (c *cluster) comeBack(t *testing.T, i int) *comeback {
	t.Helper()
	n := c.nodes[i]
	var logged int64
	if s, err := os.Stat(n.logFile); err == nil {
		logged = s.Size()
	}
	b := &comeback{node: n.id, started: time.Now()}
	n.start(t, c.o.faults)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for b.ready.IsZero() {
		a, err := c.call(i, http.MethodGet, "/health", "", nil)
		switch {
		case err == nil && a.status == http.StatusOK:
			b.ready = time.Now()
		case err == nil:
			b.unready, b.last = b.unready+1, string(a.body)
		}
		if time.Since(b.started) > readyNever {
			t.Fatalf("%s is not ready after %v: %s", n.id, readyNever, b.last)
		}
		<-tick.C
	}
	b.local = c.local(t, i)
	var err error
	if b.snapshots, err = c.metric(i, "tidal_snapshots_received_total"); err != nil {
		t.Fatal(err)
	}
	const last = `msg="all replicas are level"` // soon after the latches, of which /health knows at once
	var text []byte
	eventually(t, time.Second, func() error {
		if text, err = os.ReadFile(n.logFile); err == nil && !strings.Contains(string(text[logged:]), last) {
			err = fmt.Errorf("%s is ready, and its log has no %s", n.id, last)
		}
		return err
	})
	leased, _ := findLogged(t, string(text[logged:]), `msg="lease granted"`)
	said, rest := findLogged(t, string(text[logged:]), last)
	_, since, _ := strings.Cut(rest, "since_last_applied=")
	ago, err := time.ParseDuration(since)
	if err != nil {
		t.Fatalf("%s: how long it has been level: %v", n.id, err)
	}
	if b.level = said.Add(-ago); b.level.Before(leased) {
		b.level = leased
	}
	return b
}

// findLogged finds a message in a log, and returns when it was logged and its line.
func findLogged(t *testing.T, log, message string) (time.Time, string) {
	t.Helper()
	for line := range strings.Lines(log) {
		if !strings.Contains(line, message) {
			continue
		}
		stamp, _, _ := strings.Cut(strings.TrimPrefix(line, "time="), " ")
		at, err := time.Parse(time.RFC3339, stamp)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return at, strings.TrimSpace(line)
	}
	t.Fatalf("the log has no %q", message)
	return time.Time{}, ""
}

// demand fails the test unless the node was level when it said that it is ready,
// and said so in time, after at least so many snapshots.
func (b *comeback) demand(t *testing.T, committed map[string]uint64, snapshots int) {
	t.Helper()
	took := b.ready.Sub(b.level).Round(time.Millisecond)
	t.Logf("%s: level %v after its start, ready %v later; %d answers of 503 before, %v snapshots",
		b.node, b.level.Sub(b.started).Round(time.Millisecond), took, b.unready, b.snapshots)
	if took > readyWithin {
		t.Errorf("%s: ready %v after it was level, want at most %v; last it said %s", b.node, took, readyWithin, b.last)
	}
	if b.unready == 0 {
		t.Errorf("%s: ready before it was asked: nothing was seen", b.node)
	}
	if int(b.snapshots) < snapshots {
		t.Errorf("%s: %v snapshots, want at least %d: it lacked too little", b.node, b.snapshots, snapshots)
	}
	applied := map[string]uint64{}
	for _, x := range b.local.Tables {
		applied[x.Name] = x.Applied
	}
	for name, index := range committed {
		if applied[name] < index {
			t.Errorf("%s: ready with %s applied to %d of %d", b.node, name, applied[name], index)
		}
	}
}

// demandRows fails the test unless a node's own replicas have the rows.
func (c *cluster) demandRows(t *testing.T, i int, rows []write) {
	t.Helper()
	for _, w := range rows {
		a := c.must(t, i, http.MethodGet, "/v1/tables/"+w.table+"/rows/"+w.key+"?consistency=local", "", nil)
		if a.status != http.StatusOK || !strings.HasPrefix(string(a.body), string(rowValue(w.table, w.key))) {
			t.Errorf("%s: %s/%s here: %s", c.nodes[i].id, w.table, w.key, a)
		}
	}
}

package proctest_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"tidal/node/api"
)

const (
	gapPace = 2 * time.Millisecond   // between an answer and the writer's next write
	gapMost = 100 * time.Millisecond // of the median of many runs
)

// TestHandOverGap drains each node in turn, while one writer a table writes as fast
// as answers come, through a node that is not drained: the time from a table's last
// write under its old owner to the first under its new one, less what two writes
// are apart anyway, is the gap in which nobody owned it. Nobody is refused.
// GAP_RUNS repeats it, each time with a new cluster.
func TestHandOverGap(t *testing.T) {
	n := runs(t, "GAP_RUNS", 1)
	var longest []time.Duration
	for i := range n {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) { longest = append(longest, gapRun(t)) })
	}
	t.Logf("longest gap of each run: %v", longest)
	slices.Sort(longest)
	if m := longest[len(longest)/2]; n >= 5 && m > gapMost {
		t.Errorf("the median of the longest gaps is %v: at most %v is promised", m, gapMost)
	}
}

// drained is one node's drain, in the fleet's time.
type drained struct {
	node     int
	from, to time.Duration
	tables   []string // that it owned
}

func gapRun(t *testing.T) time.Duration {
	t.Helper()
	c := newCluster(t, clusterOptions{delay: linkDelay})
	c.startAll(t)
	tables := c.createTables(t, gracefulTables)
	// Each node has a writer of each table: those of the others see the gap.
	f := launchSteady(t, c.targets(), tables)
	pause(time.Second)
	var drains []drained
	for i := range c.nodes {
		eventually(t, 20*time.Second, func() error { return c.owns(t, i, gracefulTables/len(c.nodes)) })
		d := drained{node: i, from: time.Since(f.began)}
		for _, x := range c.local(t, i).Tables {
			if x.Owns {
				d.tables = append(d.tables, x.Name)
			}
		}
		if a := c.must(t, i, http.MethodPost, "/v1/node/drain", `{"ttl":"1m","by":"the test"}`, nil); a.status != http.StatusOK {
			t.Fatalf("drain: %s", a)
		}
		eventually(t, 20*time.Second, func() error { return c.owns(t, i, 0) })
		pause(200 * time.Millisecond)
		d.to = time.Since(f.began)
		drains = append(drains, d)
		a := c.must(t, (i+1)%len(c.nodes), http.MethodPost, "/v1/nodes/"+c.nodes[i].id+"/undrain", "", nil)
		var r api.NodeReport
		if err := json.Unmarshal(a.body, &r); err != nil || r.Node != c.nodes[i].id || r.Draining || r.Claim != nil {
			t.Fatalf("undrain: %v: %s", err, a)
		}
	}
	lasted := time.Since(f.began)
	f.stop()
	r := summarise(f.writes(), lasted)
	if r.refused > 0 {
		t.Errorf("%s", r)
	}
	var longest time.Duration
	for _, d := range drains {
		for _, table := range d.tables {
			gap, spacing := f.gap(table, c.nodes[d.node].id, d.from, d.to)
			t.Logf("%s gave %s away: nobody owned it for %v (its writes are %v apart)", c.nodes[d.node].id, table,
				gap.Round(10*time.Microsecond), spacing.Round(10*time.Microsecond))
			longest = max(longest, gap)
		}
	}
	return longest.Round(10 * time.Microsecond)
}

// launchSteady starts, on each node, a writer of each table.
func launchSteady(t *testing.T, targets []target, tables []string) *fleet {
	t.Helper()
	f := &fleet{targets: targets, stopped: make(chan struct{}), began: time.Now()}
	for _, tg := range targets {
		f.rows = append(f.rows, transport(tg.tls))
	}
	t.Cleanup(f.stop)
	for i := range targets {
		for _, table := range tables {
			w := &writer{f: f, id: len(f.writers), table: table}
			f.writers = append(f.writers, w)
			f.wg.Go(func() { w.stay(i, func() time.Duration { return gapPace }) })
		}
	}
	return f
}

// gap is the longest time, within a span, in which none of a table's writers on
// other nodes than one was answered, less the usual time between two answers; and
// that.
func (f *fleet) gap(table, but string, from, to time.Duration) (gap, spacing time.Duration) {
	var answered []time.Duration
	for _, w := range f.writes() {
		if end := w.at + w.took; w.table == table && w.node != but && w.outcome == acked && end >= from && end <= to {
			answered = append(answered, end)
		}
	}
	slices.Sort(answered)
	var apart []time.Duration
	for i, at := range answered[min(1, len(answered)):] {
		apart = append(apart, at-answered[i])
	}
	if len(apart) == 0 {
		return to - from, 0
	}
	slices.Sort(apart)
	spacing = apart[len(apart)/2]
	return apart[len(apart)-1] - spacing, spacing
}

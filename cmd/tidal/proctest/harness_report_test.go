package proctest_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// report is what a fleet lived through.
type report struct {
	lasted  time.Duration
	total   int
	refused int // not 2xx, for whatever reason
	groups  map[string]*group
	tables  map[string]*tableRate
	longest write
	p50     time.Duration
	p99     time.Duration
}

// group is the refusals of one kind.
type group struct {
	count       int
	first, last time.Duration
	nodes       map[string]int
}

// tableRate counts one table's acknowledged writes.
type tableRate struct {
	acked  int
	second map[int]int // by whole second of the run
}

// perSecond is the rate over the whole run.
func (r *report) perSecond(table string) float64 {
	if tr := r.tables[table]; tr != nil {
		return float64(tr.acked) / r.lasted.Seconds()
	}
	return 0
}

// summarise counts the writes of a fleet that has run for so long.
func summarise(writes []write, lasted time.Duration) *report {
	r := &report{lasted: lasted, total: len(writes), groups: map[string]*group{}, tables: map[string]*tableRate{}}
	var took []time.Duration
	for _, w := range writes {
		if w.took > r.longest.took {
			r.longest = w
		}
		if w.outcome != acked {
			r.refuse(w)
			continue
		}
		took = append(took, w.took)
		tr := r.tables[w.table]
		if tr == nil {
			tr = &tableRate{second: map[int]int{}}
			r.tables[w.table] = tr
		}
		tr.acked++
		tr.second[int((w.at+w.took)/time.Second)]++
	}
	if slices.Sort(took); len(took) > 0 {
		r.p50, r.p99 = took[len(took)/2], took[len(took)*99/100]
	}
	return r
}

func (r *report) refuse(w write) {
	r.refused++
	g := r.groups[w.why]
	if g == nil {
		g = &group{first: w.at, nodes: map[string]int{}}
		r.groups[w.why] = g
	}
	g.count++
	g.first, g.last = min(g.first, w.at), max(g.last, w.at)
	g.nodes[w.node]++
}

// String is the report as tests print it.
func (r *report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d writes in %v, %d refused, p50 %v, p99 %v, longest %v (%s/%s by %q at %v)\n", r.total,
		r.lasted.Round(time.Millisecond), r.refused, r.p50.Round(10*time.Microsecond), r.p99.Round(10*time.Microsecond),
		r.longest.took.Round(time.Millisecond), r.longest.table, r.longest.key, r.longest.node, r.longest.at.Round(time.Millisecond))
	for _, name := range slices.Sorted(maps.Keys(r.tables)) {
		at, n := r.slowest(name)
		fmt.Fprintf(&b, "  %s: %.0f writes/s; the slowest second was from %d s on, with %d\n", name, r.perSecond(name), at, n)
	}
	for _, why := range slices.Sorted(maps.Keys(r.groups)) {
		g := r.groups[why]
		fmt.Fprintf(&b, "  refused %d between %v and %v by %v: %s\n", g.count, g.first.Round(time.Millisecond), g.last.Round(time.Millisecond), g.nodes, why)
	}
	return b.String()
}

// slowest is the whole second of the run with the fewest writes of a table.
func (r *report) slowest(table string) (at, writes int) {
	writes = -1
	for s := range int(r.lasted / time.Second) {
		if n := r.tables[table].second[s]; writes < 0 || n < writes {
			at, writes = s, n
		}
	}
	return at, writes
}

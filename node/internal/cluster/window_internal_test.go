package cluster

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/wire"
)

// loud is a network on which all others are heard.
type loud struct{ Net }

func (loud) Heard(string) (api.Incarnation, time.Time) { return api.Incarnation{}, time.Now() }

func (loud) Refusal(string) *api.Error { return nil }

// manyTables is a cluster with so many tables on three nodes, and what they last said
// of their replicas.
func manyTables(n int) *Cluster {
	v := &meta.View{}
	for _, node := range []string{"a", "b", "c"} {
		v.Members = append(v.Members, wire.Member{Node: node, Voter: true})
		v.Leases = append(v.Leases, wire.Lease{Incarnation: inc(node, 5)})
	}
	for i := range n {
		t := &wire.Table{ID: api.TableID(i + 2), Name: fmt.Sprintf("t%05d", i)}
		for k, node := range []string{"a", "b", "c"} {
			t.Replicas = append(t.Replicas, wire.Replica{Node: node, ID: uint64(3*i + k), Voter: true})
		}
		v.Tables = append(v.Tables, t)
	}
	c := still(v)
	c.o.Net = loud{}
	for i, t := range v.Tables {
		by := inc([]string{"a", "b", "c"}[i%3], 5)
		c.directory.heard(by, &wire.Heartbeat{Owned: []wire.Owned{{Table: t.ID, Term: 4}}})
	}
	for k := range gatherKept {
		c.gathered.add(standingOf(v, uint64(k)))
	}
	return c
}

// standingOf is a gathering in which each table is so far.
func standingOf(v *meta.View, index uint64) *gathering {
	at := time.Now().Add(time.Hour + time.Duration(index)*gatherEvery) // it stays fresh
	g := &gathering{at: at, nodes: map[string]standing{}}
	for _, node := range []string{"a", "b", "c"} {
		s := standing{}
		for _, t := range v.Tables {
			s.all = append(s.all, position{table: t.ID, commit: index, applied: index})
		}
		g.nodes[node] = s
	}
	g.highest = highest(g.nodes)
	return g
}

// TestLooksAllocateNothingPerTable: whoever looks at 10,000 tables twice a second must
// not make work for the collector.
func TestLooksAllocateNothingPerTable(t *testing.T) {
	few, many := manyTables(10), manyTables(5000)
	measure := func(c *Cluster) float64 {
		return testing.AllocsPerRun(5, func() {
			c.pictures.last = nil
			if _, err := c.Window(t.Context(), api.TableQuery{Sort: "-lag", Limit: 5}); err != nil {
				t.Fatal(err)
			}
		})
	}
	if a, b := measure(few), measure(many); b > a+10 {
		t.Errorf("a look at 10 tables allocates %.0f times, one at 5,000 %.0f times", a, b)
	}
}

// TestLineupFollows: what a lineup holds is as new as what it is made of.
func TestLineupFollows(t *testing.T) {
	c := manyTables(3)
	look := func() []string {
		t.Helper()
		c.pictures.last = nil
		s, err := c.Window(t.Context(), api.TableQuery{Limit: 9})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, x := range s.Tables {
			out = append(out, fmt.Sprintf("%s by %s in %d on %d", x.Name, x.Owner, x.Term, len(x.Replicas)))
		}
		return out
	}
	is := func(what string, want ...string) {
		t.Helper()
		if got := look(); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	is("at first", "t00000 by a in 4 on 3", "t00001 by b in 4 on 3", "t00002 by c in 4 on 3")
	c.directory.heard(inc("c", 5), &wire.Heartbeat{Owned: []wire.Owned{{Table: 2, Term: 5}}})
	is("c owns another", "t00000 by c in 5 on 3", "t00001 by b in 4 on 3", "t00002 by c in 4 on 3")
	c.directory.heard(inc("b", 5), &wire.Heartbeat{Gone: []api.TableID{3}})
	is("b owns none", "t00000 by c in 5 on 3", "t00001 by  in 0 on 3", "t00002 by c in 4 on 3")
	v := *c.View()
	v.Tables = v.Tables[:2:2]
	v.Leases = v.Leases[:2]
	c.view.Store(&v)
	is("c is dead, and a table is dropped", "t00000 by  in 0 on 3", "t00001 by  in 0 on 3")
	c.directory.dead("c", inc("c", 6))
	v.Leases = append(v.Leases[:2:2], wire.Lease{Incarnation: inc("c", 6)})
	c.view.Store(&v)
	is("c is back, and owns nothing", "t00000 by  in 0 on 3", "t00001 by  in 0 on 3")
}

// TestStandings: what a node says of its replicas is read as it was written.
func TestStandings(t *testing.T) {
	s := standing{
		all:  []position{{table: 2, commit: 7, applied: 5}, {table: 1 << 60, commit: 1 << 50, applied: 1}},
		late: map[api.TableID]time.Duration{2: 1500 * time.Microsecond, 1 << 60: time.Hour},
	}
	b := appendStanding(nil, s)
	got, err := readStanding(append(b, "later"...))
	if err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("%v: %+v", err, got)
	}
	for n := range b {
		if _, err := readStanding(b[:n]); err == nil {
			t.Errorf("cut at %d of %d bytes it was read", n, len(b))
		}
	}
}

func BenchmarkWindow(b *testing.B) {
	c := manyTables(10_000)
	b.ReportAllocs()
	for b.Loop() {
		c.pictures.last = nil
		if _, err := c.Window(b.Context(), api.TableQuery{Sort: "-lag", Limit: 80}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStandings(b *testing.B) {
	c := manyTables(10_000)
	newest, _ := c.gathered.pair(time.Now())
	s := newest.nodes["b"]
	b.ReportAllocs()
	for b.Loop() {
		got, err := readStanding(appendStanding(nil, s))
		if err != nil || len(got.all) != len(s.all) {
			b.Fatal(err)
		}
		highest(newest.nodes)
	}
}

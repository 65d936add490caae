package cluster

import (
	"testing"
	"time"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/ready"
	"tidal/node/internal/wire"
)

// TestReadyWithAllItsTables: a node whose metadata have just come, and whose tables
// are not open yet, is not ready, nor was it ever level.
func TestReadyWithAllItsTables(t *testing.T) {
	w := newWorld(t)
	w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "t", Nodes: []string{"a", "b", "c"}})
	c := still(w.state.View())
	here := &holder{}
	c.o.Tables, c.o.Host, c.o.Node = here, &rafthost.Host{}, "a"
	c.mu.lease.granted = true
	c.mu.meta.Lead()
	if c.updateLevel() || c.mu.wasLevel {
		t.Error("level without having opened its tables")
	}
	want := []ready.Replica{{Table: "t", HasLeader: true}}
	if in := readiness(c); len(in.Tables) != 1 || in.Tables[0] != want[0] {
		t.Errorf("held up by %+v, want %+v", in.Tables, want)
	}
	table, _ := c.TableID(t.Context(), "t")
	c.expect(table)
	c.reconciled = c.View()
	here.open, here.Replica = true, Replica{Name: "t", ID: table, Applied: 3}
	c.directory.heard(inc("b", 1), &wire.Heartbeat{Full: true, Owned: []wire.Owned{{Table: table, Term: 2, Frontier: 3}}})
	if !c.updateLevel() || !c.mu.wasLevel {
		t.Error("not level with all that there is")
	}
	c.expect(table + 1) // a table that is made now
	here.Replica = Replica{Name: "new", ID: table + 1}
	if in := readiness(c); c.updateLevel() || len(in.Tables) > 0 {
		t.Errorf("a node that was level is held up by a new table: %+v", in.Tables)
	}
}

func readiness(c *Cluster) (in ready.Input) {
	c.o.Receiving = func(uint64) (float64, bool) { return 0, false }
	c.o.Net = &peers{}
	c.Ready(&in)
	return in
}

// TestFrontierOfTheLease: what was said before the lease may be old by the time that
// it is granted. The newest word counts then, and none counts before.
func TestFrontierOfTheLease(t *testing.T) {
	w := newWorld(t)
	w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "t", Nodes: []string{"a", "b", "c"}})
	c := still(w.state.View())
	table, _ := c.TableID(t.Context(), "t")
	here := &holder{open: true, Replica: Replica{Name: "t", ID: table, Applied: 5, Moved: time.Second}}
	c.o.Tables, c.o.Host, c.reconciled = here, &rafthost.Host{}, c.View()
	c.mu.meta.Lead()
	c.expect(table)
	c.directory.heard(inc("b", 1), &wire.Heartbeat{Full: true, Owned: []wire.Owned{{Table: table, Term: 2, Frontier: 5}}})
	if c.updateLevel() {
		t.Error("level before it has its lease")
	}
	here.Frontier = 9 // by a heartbeat of the group, meanwhile
	c.mu.lease.granted = true
	if c.updateLevel() {
		t.Error("level with entry 5 of 9")
	}
	here.Applied = 9
	if !c.updateLevel() {
		t.Error("not level with entry 9 of 9")
	}
}

// TestSilenceIsNoLeaderless: a table that nobody leads holds no node up, but a node
// that has not said yet what it owns may lead it.
func TestSilenceIsNoLeaderless(t *testing.T) {
	w := newWorld(t)
	for _, n := range []string{"a", "b", "c"} {
		w.lease(n, 1)
	}
	w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "t", Nodes: []string{"a", "b"}})
	c := still(w.state.View())
	table, _ := c.TableID(t.Context(), "t")
	c.o.Tables, c.o.Node = &holder{open: true, Replica: Replica{Name: "t", ID: table}}, "a"
	held := func() bool {
		in := readiness(c)
		return len(in.Tables) == 1 && in.Tables[0].HasLeader
	}
	if !held() {
		t.Error("not held up before b has said anything")
	}
	c.directory.heard(inc("b", 2), &wire.Heartbeat{Full: true}) // not of the lease
	if !held() {
		t.Error("not held up before the b of the lease has said anything")
	}
	c.directory.heard(inc("b", 1), &wire.Heartbeat{Full: true})
	if held() {
		t.Error("held up by a table that nobody leads")
	}
}

// TestUnsetFrontier: a replica that nobody has told how far the others are is not
// level, however much it has applied.
func TestUnsetFrontier(t *testing.T) {
	level := func(unset bool) bool {
		w := newWorld(t)
		w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "t", Nodes: []string{"a", "b", "c"}})
		c := still(w.state.View())
		table, _ := c.TableID(t.Context(), "t")
		c.o.Tables = &holder{open: true, Replica: Replica{Name: "t", ID: table, Applied: 5, Commit: 5}}
		c.o.Host, c.reconciled, c.o.UnsetFrontier = &rafthost.Host{}, c.View(), unset
		c.mu.meta.Lead()
		c.mu.lease.granted = true
		c.expect(table)
		c.directory.heard(inc("b", 1), &wire.Heartbeat{Full: true}) // which owns nothing yet
		return c.updateLevel()
	}
	if level(false) {
		t.Error("level, and nobody said how far the others are")
	}
	if !level(true) {
		t.Error("not level with the fault: this test cannot find it")
	}
}

package cluster

import (
	"strings"
	"testing"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/wire"
)

// TestNeeded: a node goes unasked only if no group could have a quorum with it, but
// for groups that cannot do without it whoever else is there.
func TestNeeded(t *testing.T) {
	members := func(voters ...string) (out []wire.Member) {
		for _, n := range voters {
			out = append(out, wire.Member{Node: n, Voter: true})
		}
		return append(out, wire.Member{Node: "x"}, wire.Member{Node: "y"}) // learners
	}
	table := func(nodes ...string) *wire.Table {
		t := &wire.Table{Name: "t"}
		for _, n := range nodes {
			t.Replicas = append(t.Replicas, wire.Replica{Node: n, Voter: true})
		}
		return t
	}
	for _, tt := range []struct {
		name  string
		view  meta.View
		heard map[string]bool
		want  bool
	}{
		{"the last of three", meta.View{Members: members("a", "b", "c")}, nil, false},
		{"one of two of three", meta.View{Members: members("a", "b", "c")}, map[string]bool{"b": true}, true},
		{"cut off with a learner", meta.View{Members: members("a", "b", "c")}, map[string]bool{"x": true}, false},
		{"two of five", meta.View{Members: members("a", "b", "c", "d", "e")}, map[string]bool{"b": true}, false},
		{"two of five, and of a table's three", meta.View{
			Members: members("a", "b", "c", "d", "e"), Tables: []*wire.Table{table("a", "b", "c")},
		}, map[string]bool{"b": true}, true},
		{"a table of others", meta.View{
			Members: members("a", "b", "c", "d", "e"), Tables: []*wire.Table{table("b", "c", "d")},
		}, map[string]bool{"b": true}, false},
		{"a table of its own", meta.View{Members: members("a", "b", "c"), Tables: []*wire.Table{table("a")}}, nil, false},
		{"two of two", meta.View{Members: members("a", "b")}, map[string]bool{"b": true}, false},
	} {
		if got := needed(&tt.view, "a", tt.heard); got != tt.want {
			t.Errorf("%s: needed is %t", tt.name, got)
		}
	}
}

// TestLostWithoutSpace: who has no space is no voter for writes.
func TestLostWithoutSpace(t *testing.T) {
	v := &meta.View{Tables: []*wire.Table{{Name: "t"}}}
	for _, n := range []string{"a", "b", "c"} {
		v.Members = append(v.Members, wire.Member{Node: n, Voter: true})
		v.Tables[0].Replicas = append(v.Tables[0].Replicas, wire.Replica{Node: n, Voter: true})
	}
	for _, tt := range []struct {
		full string
		lost bool // if c goes
	}{{"", false}, {"a", true}, {"c", false}, {"ab", false}, {"abc", false}} {
		crowded := func(n string) bool { return strings.Contains(tt.full, n) }
		if why := lostWithout(v, "c", map[string]bool{"a": true, "b": true}, crowded); (why != "") != tt.lost {
			t.Errorf("full: %q: c loses %q", tt.full, why)
		}
	}
}

// TestWritesWaitForWhoIsAway: only a lack of space that lasts is an answer. No node
// of the table lives but this one.
func TestWritesWaitForWhoIsAway(t *testing.T) {
	w := newWorld(t)
	w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "t", Nodes: []string{"a", "b", "c"}})
	c := still(w.state.View())
	id := c.View().Tables[0].ID
	for _, tt := range []struct {
		a, b bool // full
		want api.Code
	}{{false, true, ""}, {true, false, api.CodeNoOwner}, {true, true, api.CodeDiskFull}} {
		c.room.set(tt.a)
		c.room.heard("b", tt.b)
		switch err := c.MayWrite(id); {
		case err == nil && tt.want == "":
		case err == nil || api.CodeOf(err) != tt.want:
			t.Errorf("full are %+v: %v", tt, err)
		}
	}
}

package cluster

import (
	"testing"

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

package cluster

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/wire"
)

// TestEachChange compares views as they follow each other.
func TestEachChange(t *testing.T) {
	w := newWorld(t)
	before := &meta.View{}
	is := func(what string, want ...string) {
		t.Helper()
		var got []string
		after := w.state.View()
		if err := eachChange(before, after, func(was, is *wire.Table) error {
			switch {
			case was == nil:
				got = append(got, "+"+is.Name)
			case is == nil:
				got = append(got, "-"+was.Name)
			default:
				got = append(got, "~"+is.Name)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
		before = after
	}
	create := func(names ...string) {
		for _, name := range names {
			w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: name, Nodes: []string{"a", "b"}})
		}
	}
	drop := func(name string) {
		table, _ := w.state.View().TableNamed(name)
		w.do(wire.MetaCommand{Kind: wire.MetaDropTable, Name: name, Table: table.ID})
	}
	is("no table")
	create("x", "y", "z")
	is("three came", "+x", "+y", "+z")
	w.lease("b", 1)
	is("something else changed")
	drop("y")
	create("y", "v")
	is("one went and came again", "-y", "+y", "+v")
	drop("x")
	drop("v")
	is("the first and the last went", "-x", "-v")

	stop := fmt.Errorf("stop")
	if err := eachChange(&meta.View{}, w.state.View(), func(_, _ *wire.Table) error { return stop }); err != stop { //nolint:errorlint // the very error
		t.Errorf("an error came back as %v", err)
	}
}

func TestLoads(t *testing.T) {
	w := newWorld(t)
	var l loads
	is := func(want map[string]int) {
		t.Helper()
		got := l.get(w.state.View())
		maps.DeleteFunc(got, func(_ string, n int) bool { return n == 0 })
		if !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
		got["a"] += 99 // it is a copy
	}
	is(map[string]int{})
	w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "x", Nodes: []string{"a", "b"}})
	w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "y", Nodes: []string{"b", "c"}})
	is(map[string]int{"a": 1, "b": 2, "c": 1})
	w.do(wire.MetaCommand{Kind: wire.MetaDropTable, Name: "x", Table: 2})
	is(map[string]int{"b": 1, "c": 1})
}

// TestPlacesAreShared: they are computed once for a view, and once in a while for
// views in which only tables change; leases and a drain count at once.
func TestPlacesAreShared(t *testing.T) {
	w := newWorld(t)
	w.lease("b", 1)
	var p placements
	computed := 0
	get := func(v *meta.View, draining bool) {
		p.get(v, draining, func() map[api.TableID]string {
			computed++
			return nil
		})
	}
	is := func(what string, want int) {
		t.Helper()
		if computed != want {
			t.Errorf("%s: computed %d times, want %d", what, computed, want)
		}
	}
	get(w.state.View(), false)
	get(w.state.View(), false)
	is("one view", 1)
	p.took = time.Hour // as if that had been hard
	w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "x", Nodes: []string{"a", "b"}})
	get(w.state.View(), false)
	is("another table", 1)
	get(w.state.View(), true)
	is("this node drains", 2)
	p.took = time.Hour
	w.lease("c", 1)
	get(w.state.View(), true)
	is("another lease", 3)
	p.took = 0
	w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "y", Nodes: []string{"a", "b"}})
	get(w.state.View(), true)
	is("another table, when it was easy", 4)
}

package cluster

import (
	"slices"
	"testing"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// TestEarlierOwnerIsNoNews: once a table's owner has given up, what is known of the one
// before it does not make that one its owner again.
func TestEarlierOwnerIsNoNews(t *testing.T) {
	w := newWorld(t)
	w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "t", Nodes: []string{"a", "b", "c"}})
	c := still(w.state.View())
	c.o.Node, c.o.Net = "b", &peers{}
	var told []string
	c.o.Events = func(e api.Event) { told = append(told, e.From+">"+e.To) }
	id, err := c.TableID(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	was := &watched{view: c.View(), owners: map[api.TableID]owning{}}
	for _, o := range []owning{{"c", 1}, {"a", 2}, {"c", 1}, {"", 0}, {"a", 3}, {"c", 4}} {
		now := &watched{view: c.View(), owners: map[api.TableID]owning{id: o}}
		c.tellOwners(was, now, false)
		was = now
	}
	if want := []string{">c", "c>a", "a>c"}; !slices.Equal(told, want) {
		t.Errorf("it told %q, want %q", told, want)
	}
}

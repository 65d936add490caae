package cluster

import (
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// heardAt is a network that heard each node when it says.
type heardAt struct {
	Net

	nodes map[string]time.Time
}

// Heard implements Net.
func (h heardAt) Heard(node string) (api.Incarnation, time.Time) { return inc(node, 1), h.nodes[node] }

// TestSpentNodes: a node that says that it remembers as many answers as it may holds up
// the writes to its tables and no others, of that kind, and while it is heard.
func TestSpentNodes(t *testing.T) {
	w := newWorld(t)
	w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "t", Nodes: []string{"a", "b"}})
	w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "u", Nodes: []string{"a", "c"}})
	t1, t2 := w.state.View().Tables[0].ID, w.state.View().Tables[1].ID
	c := still(w.state.View())
	net := heardAt{nodes: map[string]time.Time{"b": time.Now(), "c": time.Now()}}
	c.o.Net = net
	expect := func(what string, made, keyed, other string) {
		t.Helper()
		if m, k, o := c.Spent(t1, false), c.Spent(t1, true), c.Spent(t2, false); m != made || k != keyed || o != other {
			t.Errorf("%s: %q, %q and %q hold writes up", what, m, k, o)
		}
	}
	expect("nobody says anything", "", "", "")
	c.burdens.heard("b", burden{made: true}, false)
	expect("b", "b", "", "")
	c.burdens.heard("b", burden{keyed: true}, false)
	expect("b of keys", "", "b", "")
	c.burdens.heard("c", burden{made: true}, false)
	expect("c too", "", "b", "c")
	net.nodes["b"] = time.Now().Add(-time.Second)
	expect("b is away", "", "", "c")
	net.nodes["b"] = time.Now()
	c.burdens.heard("b", burden{}, true)
	expect("b has room", "", "", "c")
	c.burdens.heard("c", burden{}, true)
	if c.burdens.any.Load() {
		t.Error("all have room, and somebody has not")
	}
}

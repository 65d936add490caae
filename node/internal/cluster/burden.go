package cluster

import (
	"sync"
	"sync/atomic"

	"tidal/node/api"
)

// burden is of which lifetimes a node remembers as many answers to writes as it may.
type burden struct{ made, keyed bool }

func (b burden) of(keyed bool) bool { //nolint:revive // keyed is data, not a mode
	if keyed {
		return b.keyed
	}
	return b.made
}

// burdens are those of the other nodes, as they say. An owner lets nothing in for a
// replica that has no room to remember it.
type burdens struct {
	any atomic.Bool // some node has one
	mu  struct {
		sync.Mutex
		nodes map[string]burden // that have one
	}
}

// heard takes what a node says of itself.
func (b *burdens) heard(node string, x burden) {
	if x == (burden{}) && !b.any.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.nodes == nil {
		b.mu.nodes = map[string]burden{}
	}
	if b.mu.nodes[node] = x; x == (burden{}) {
		delete(b.mu.nodes, node)
	}
	b.any.Store(len(b.mu.nodes) > 0)
}

func (b *burdens) of(node string) burden {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.nodes[node]
}

// Spent returns another node with a replica of a table that remembers as many answers
// of a lifetime as it may, or "". One that is not heard holds nobody up.
func (c *Cluster) Spent(id api.TableID, keyed bool) string { //nolint:revive // keyed is data, not a mode
	if !c.burdens.any.Load() {
		return ""
	}
	t, ok := c.View().Table(id)
	if !ok {
		return ""
	}
	for _, r := range t.Replicas {
		if r.Node != c.o.Node && c.burdens.of(r.Node).of(keyed) && c.silence(r.Node) <= heardNow {
			return r.Node
		}
	}
	return ""
}

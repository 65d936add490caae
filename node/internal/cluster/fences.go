package cluster

import (
	"slices"
	"sync"
	"sync/atomic"

	"tidal/node/api"
)

// fences are the tables whose replicas on other nodes are fenced, as those nodes say:
// they are given none of these.
type fences struct {
	any atomic.Bool // there is one
	mu  struct {
		sync.Mutex
		nodes map[string][]api.TableID // not to be changed
	}
}

// heard takes what a node says of itself.
func (f *fences) heard(node string, tables []api.TableID) {
	if len(tables) == 0 && !f.any.Load() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.nodes == nil {
		f.mu.nodes = map[string][]api.TableID{}
	}
	if f.mu.nodes[node] = tables; len(tables) == 0 {
		delete(f.mu.nodes, node)
	}
	f.any.Store(len(f.mu.nodes) > 0)
}

// Sound reports whether a node has said nothing of its replica of a table being fenced.
func (c *Cluster) Sound(id api.TableID, node string) bool {
	f := &c.fences
	switch {
	case node == c.o.Node:
		return !slices.Contains(c.o.Unsound(), id)
	case !f.any.Load():
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return !slices.Contains(f.mu.nodes[node], id)
}

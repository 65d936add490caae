package cluster

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/api"
)

// room is which nodes have hardly any space left on their disks: crowded ones.
// They take no rows, so a quorum of others must be there for a write.
type room struct {
	own atomic.Bool // this node is crowded
	any atomic.Bool // some node is
	mu  struct {
		sync.Mutex
		others map[string]bool // those among the others
	}
}

// heard takes what a node says of itself, and returns the crowded ones if that
// changed anything.
func (r *room) heard(node string, crowded bool) (others map[string]bool, changed bool) { //nolint:revive // the flag is the news
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.others[node] == crowded {
		return nil, false
	}
	others = maps.Clone(r.mu.others)
	if others == nil {
		others = map[string]bool{}
	}
	if delete(others, node); crowded {
		others[node] = true
	}
	r.mu.others = others
	r.any.Store(r.own.Load() || len(others) > 0)
	return others, true
}

// set takes whether this node is crowded.
func (r *room) set(crowded bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.own.Store(crowded)
	r.any.Store(crowded || len(r.mu.others) > 0)
}

// crowded reports whether another node is.
func (r *room) crowded(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.others[node]
}

// SetCrowded says whether this node's disk has hardly any space left. While it has
// not, the node owns nothing that another can own, and takes no rows.
func (c *Cluster) SetCrowded(crowded bool) {
	c.room.set(crowded)
	c.claims.crowd(crowded)
	c.o.Host.Crowded(crowded)
	c.Claim()
	c.changed.fire()
}

// crowded reports whether a node is, this one or another.
func (c *Cluster) crowded(node string) bool {
	if node == c.o.Node {
		return c.room.own.Load()
	}
	return c.room.crowded(node)
}

// MayWrite returns an error if nobody can write to a table that this node owns: no
// quorum of its voters has space, or, until it is handed over, this node has not. A
// voter that is away comes back: the write waits for it.
func (c *Cluster) MayWrite(id api.TableID) error {
	if !c.room.any.Load() {
		return nil
	}
	t, ok := c.View().Table(id)
	if !ok {
		return nil
	}
	voters, full := 0, 0
	for _, r := range t.Replicas {
		if !r.Voter {
			continue
		}
		voters++
		if c.crowded(r.Node) {
			full++
		}
	}
	switch quorum := voters/2 + 1; {
	case full > 0 && voters-full < quorum:
		return &api.Error{
			Code: api.CodeDiskFull, RetryAfter: 5 * time.Second,
			Message: fmt.Sprintf("table %s takes no writes: the disks of %d of its %d voters are full, and a write needs %d with space", t.Name, full, voters, quorum),
			Hint:    "make room on the nodes that /cluster/status shows as disk_full; reads go on",
		}
	case c.room.own.Load():
		return &api.Error{Code: api.CodeNoOwner, Message: "the disk of node " + c.o.Node + " is full, and table " + t.Name + " is being handed over"}
	}
	return nil
}

package cluster

import (
	"context"
	"time"

	"tidal/node/api"
)

// Times of the look at who is alive. A node that is silent for longer is dead to
// its quiet groups: they are ticked then, and find a leader by raft's timeouts.
const (
	aliveLook  = 200 * time.Millisecond
	aliveUntil = time.Second
)

// pulse is what was last told the host of another node.
type pulse struct {
	start uint64
	alive bool
}

// watchPeers tells the host which nodes are heard, until ctx ends.
func (c *Cluster) watchPeers(ctx context.Context) error {
	t := time.NewTicker(aliveLook)
	defer t.Stop()
	told := map[string]pulse{}
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		now := time.Now()
		// When this process itself stood still, silence proves nothing: what came
		// meanwhile is read first.
		late := now.Sub(last) > aliveUntil/2
		last = now
		if !late {
			c.lookAround(now, told)
		}
	}
}

func (c *Cluster) lookAround(now time.Time, told map[string]pulse) {
	for _, m := range c.View().Members {
		if m.Node == c.o.Node {
			continue
		}
		inc, at := c.o.Net.Heard(m.Node)
		p := pulse{start: inc.Start, alive: now.Sub(at) < aliveUntil}
		switch {
		case at.IsZero() || told[m.Node] == p:
			continue
		case p.alive:
			c.o.Host.Alive(m.Node, p.start)
		default:
			c.o.Host.Dead(m.Node)
		}
		told[m.Node] = p
	}
}

// met tells the host of an incarnation that said hello. A later one is the death
// of those before, even if nobody missed them.
func (c *Cluster) met(inc api.Incarnation) { c.o.Host.Alive(inc.Node, inc.Start) }

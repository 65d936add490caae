package cluster

import "tidal/node/api"

// burden is of which lifetimes a node remembers as many answers to writes as it may.
type burden struct{ made, keyed bool }

func (b burden) of(keyed bool) bool { //nolint:revive // keyed is data, not a mode
	if keyed {
		return b.keyed
	}
	return b.made
}

// Spent returns another node with a replica of a table that remembers as many answers
// of a lifetime as it may, or "": an owner lets nothing in for a replica that has no
// room to remember it. One that is not heard holds nobody up.
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

package cluster

import (
	"slices"

	"tidal/node/api"
)

// Sound reports whether a node has said nothing of its replica of a table being fenced:
// it may be given the table.
func (c *Cluster) Sound(id api.TableID, node string) bool {
	switch {
	case node == c.o.Node:
		return !slices.Contains(c.o.Unsound(), id)
	case !c.unsound.any.Load():
		return true
	}
	return !slices.Contains(c.unsound.of(node), id)
}

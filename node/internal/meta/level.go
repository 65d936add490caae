package meta

import (
	"fmt"
	"strings"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// raise has the cluster write what a higher feature level brings. Every member must
// speak it, alive or not: one that does not could never come back.
func (d *draft) raise(level uint64) wire.MetaAnswer {
	if level <= d.Level {
		return wire.MetaAnswer{}
	}
	if r := d.LastRoll(); r != nil && r.Status.Open() {
		return conflict("roll %d is %s: the level is raised when it is over", r.ID, r.Status)
	}
	var cannot []string
	for _, m := range d.Members {
		switch {
		case m.Levels == api.Levels{}:
			cannot = append(cannot, "node "+m.Node+" never had a lease")
		case !m.Levels.Speaks(level):
			cannot = append(cannot, fmt.Sprintf("node %s speaks %s", m.Node, m.Levels))
		}
	}
	if len(cannot) > 0 {
		return conflict("not every member speaks level %d: %s", level, strings.Join(cannot, ", "))
	}
	d.Level = level
	d.record(Change{Key: []byte(keyLevel), Value: appendCounter(level)})
	return wire.MetaAnswer{Changed: true}
}

// Possible returns the highest feature level that every member speaks, or the
// cluster's own while one has not said what it speaks.
func (v *View) Possible() uint64 {
	level := uint64(0)
	for i, m := range v.Members {
		if i == 0 || m.Levels.Max < level {
			level = m.Levels.Max
		}
	}
	return max(level, v.Level)
}

// LevelError says that a node cannot be in a cluster of that feature level, and the
// way out.
func LevelError(node, version string, speaks api.Levels, level uint64) *api.Error {
	e := &api.Error{
		Code:    api.CodeForbidden,
		Message: fmt.Sprintf("node %s runs release %s, which speaks %s, and the cluster is at level %d", node, version, speaks, level),
		Hint:    "run the release that it ran before, or a newer one: older releases cannot read what the cluster writes since `tidal cluster finalize`",
	}
	if speaks.Min > level {
		e.Hint = "upgrade all nodes to a release in between and `tidal cluster finalize`, then go on to this one"
	}
	return e
}

package cluster

import (
	"context"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/wire"
)

// tellLevel says which feature level the cluster has, if that is news. It is Open's,
// and then keep's own.
func (c *Cluster) tellLevel(ctx context.Context) {
	level := c.View().Level
	if level == c.leveled {
		return
	}
	if err := c.o.Leveled(level); err != nil {
		c.o.Log.ErrorContext(ctx, "the feature level could not be noted", "feature_level", level, "error", err)
		return
	}
	if c.leveled != 0 {
		c.o.Log.InfoContext(ctx, "feature level raised", "feature_level", level)
	}
	c.leveled = level
}

// shared returns the highest feature level that this node and all listed members speak
// that answered: a cluster begins with it.
func (c *Cluster) shared(found map[string]probed) uint64 {
	level := c.o.Levels.Max
	for id, p := range found {
		if p.err == nil && id != c.o.Node {
			level = min(level, p.hello.Max)
		}
	}
	return level
}

// apart is an error if a remote does not speak what the cluster writes. The level only
// rises, so who is too old for what is known here is so for good; who is too new may
// not be, while this node has changes to catch up with.
func (c *Cluster) apart(remote *wire.Hello) error {
	level, speaks := c.View().Level, remote.Levels()
	if level == 0 || speaks.Speaks(level) || speaks.Min > level && !c.metaLevel() {
		return nil
	}
	return meta.LevelError(remote.Incarnation.Node, remote.Version, speaks, level)
}

// Level says which feature level the cluster has, and which its members speak, as a
// quorum knows.
func (c *Cluster) Level(ctx context.Context) (api.ClusterLevel, error) {
	if err := c.Fresh(ctx); err != nil {
		return api.ClusterLevel{}, err
	}
	v := c.View()
	out := api.ClusterLevel{Level: v.Level, Possible: v.Possible(), Members: []api.MemberLevels{}}
	for _, m := range v.Members {
		x := api.MemberLevels{Node: m.Node}
		if m.Levels != (api.Levels{}) {
			x.Levels = &m.Levels
		}
		if l, live := v.Lease(m.Node); live {
			x.Version = l.Version
		}
		out.Members = append(out.Members, x)
	}
	return out, nil
}

// RaiseLevel raises the cluster's feature level, 0 being the highest that every member
// speaks. There is no way back. It returns what is so then.
func (c *Cluster) RaiseLevel(ctx context.Context, level uint64) (api.ClusterLevel, error) {
	if level == 0 {
		now, err := c.Level(ctx)
		if err != nil {
			return now, err
		}
		level = now.Possible
	}
	if _, err := c.propose(ctx, &wire.MetaCommand{Kind: wire.MetaRaiseLevel, ID: newID(), Level: level}); err != nil {
		return api.ClusterLevel{}, err
	}
	return c.Level(ctx)
}

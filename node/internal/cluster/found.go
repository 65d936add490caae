package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// A cluster may form without some of its listed members when an operator says so.
// There is still one cluster or none: what is proposed and accepted is always the
// whole list, all of it voters, those that are away too. Each node accepts once, and
// nobody leads without a majority of the list, so of two lists that are proposed at
// once one at most is ever led. A member that was away has no disk in the list: the
// cluster admits it with the first that it brings, under its founder's raft id, which
// nobody has used.

func conflict(format string, args ...any) *api.Error {
	return &api.Error{Code: api.CodeConflict, Message: fmt.Sprintf(format, args...)}
}

// Found forms the cluster with these of the listed members and without the others. The
// one of them with the lowest id proposes it; if that is another node, it is asked to.
// It returns once the proposer has written its acceptance to its disk. Errors are
// *api.Error; after a conflict nothing was done.
func (c *Cluster) Found(ctx context.Context, named []string) (api.Founded, error) {
	named = slices.Sorted(slices.Values(named))
	if err := c.mayFound(named); err != nil {
		return api.Founded{}, err
	}
	if named[0] == c.o.Node {
		f, err := c.proposeCluster(ctx, named)
		if err != nil {
			return api.Founded{}, err
		}
		return founded(f), nil
	}
	url := c.o.Members[named[0]]
	ask := wire.Founding{List: c.list(), Members: named}
	_, b, err := c.o.Net.CallAddress(ctx, url, wire.MethodFound, wire.AppendFounding(nil, &ask))
	if err != nil {
		return api.Founded{}, conflict("node %s has the lowest id of those named and is to propose the cluster: at %s: %s", named[0], url, publicCause(err))
	}
	f, err := wire.DecodeFormation(b)
	if err != nil {
		return api.Founded{}, err
	}
	return founded(&f), nil
}

func founded(f *wire.Formation) api.Founded {
	out := api.Founded{Cluster: f.Cluster, ClusterID: f.ClusterID, Proposer: f.Proposer().Node, Members: []string{}, Without: []string{}}
	for _, m := range f.Members {
		if m.Disk.IsZero() {
			out.Without = append(out.Without, m.Node)
		} else {
			out.Members = append(out.Members, m.Node)
		}
	}
	return out
}

// answerFound proposes a cluster because an operator asked another member for it.
func (c *Cluster) answerFound(ctx context.Context, payload []byte) ([]byte, error) {
	ask, err := wire.DecodeFounding(payload)
	if err != nil {
		return nil, err
	}
	if ask.List != c.list() {
		return nil, conflict("node %s has another member list: %snot %s", c.o.Node, c.list(), ask.List)
	}
	if err = c.mayFound(ask.Members); err != nil {
		return nil, err
	}
	if ask.Members[0] != c.o.Node {
		return nil, conflict("node %s is not the one of %s with the lowest id", c.o.Node, strings.Join(ask.Members, ", "))
	}
	f, err := c.proposeCluster(ctx, ask.Members)
	if err != nil {
		return nil, err
	}
	return wire.AppendFormation(nil, f), nil
}

// mayFound refuses what could not form a cluster, by what this node knows itself.
func (c *Cluster) mayFound(named []string) error {
	if f := c.formation(); f != nil {
		return conflict("node %s belongs to cluster id %s already", c.o.Node, f.ClusterID)
	}
	if len(c.o.Join) > 0 {
		return conflict("node %s is to join a running cluster: its configuration has cluster.join", c.o.Node)
	}
	if len(named) == 0 {
		return conflict("nobody is named")
	}
	for _, id := range named {
		if _, listed := c.o.Members[id]; !listed {
			return conflict("node %s is not in the member list of node %s: %s", id, c.o.Node, strings.Join(slices.Sorted(maps.Keys(c.o.Members)), ", "))
		}
	}
	if all := len(c.o.Members); 2*len(named) <= all && !c.o.PartVoters {
		return conflict("%d of the %d listed members are named, and a cluster forms with %d or more: else two could form", len(named), all, all/2+1)
	}
	return nil
}

// proposeCluster asks all listed members, and proposes the cluster if those that are named
// agree and the others are away.
func (c *Cluster) proposeCluster(ctx context.Context, named []string) (*wire.Formation, error) {
	found := c.probeAll(ctx)
	f := &wire.Formation{Cluster: c.o.Name, ClusterID: newClusterID(), Level: c.shared(found)}
	var missing []string
	for _, id := range slices.Sorted(maps.Keys(c.o.Members)) {
		m, p := wire.Founder{Node: id, Address: c.o.Members[id]}, found[id]
		isNamed := slices.Contains(named, id)
		switch {
		case p.err != nil && !p.hello.ClusterID.IsZero():
			return nil, conflict("%v: this node is to be admitted to that cluster", p.err)
		case isNamed && p.err != nil:
			missing = append(missing, p.err.Error())
		case isNamed:
			m.Disk = p.hello.Disk
		case p.err == nil && !c.o.PartVoters:
			return nil, conflict("member %s, which is to be left out, is there and agrees: name it too, or stop it", id)
		}
		if isNamed || !c.o.PartVoters {
			f.Members = append(f.Members, m)
		}
	}
	if len(missing) > 0 {
		return nil, conflict("not all members that are named can form a cluster: %s", strings.Join(missing, "; "))
	}
	if err := c.take(f, 0); err != nil {
		return nil, err
	}
	c.o.Log.WarnContext(ctx, "an operator has the cluster form without members", "with", named, "without", founded(f).Without)
	return f, nil
}

// probed is what a listed member answered.
type probed struct {
	hello wire.Hello
	err   error // why it cannot form this cluster now
}

// probeAll asks every listed member at once whether it could form this cluster now.
func (c *Cluster) probeAll(ctx context.Context) map[string]probed {
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := map[string]probed{c.o.Node: {hello: wire.Hello{Disk: c.o.Identity.Disk}}}
	for id := range c.o.Members {
		if id == c.o.Node {
			continue
		}
		wg.Go(func() {
			hello, err := c.probe(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			out[id] = probed{hello, err}
		})
	}
	wg.Wait()
	return out
}

package cluster

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/wire"
)

// watchRest is the least time between two looks of watch: what happens in it to
// many tables is told at once.
const watchRest = 100 * time.Millisecond

// maxWithdrawn is how many incarnations withdrawn keeps: more than there are nodes.
const maxWithdrawn = 64

// heardNow is how long after its last word a node counts as heard by those who
// look at the cluster: five heartbeats.
const heardNow = 500 * time.Millisecond

// watch tells what changes in the cluster as this node sees it, until ctx ends.
func (c *Cluster) watch(ctx context.Context) error {
	last := watched{view: &meta.View{}, owners: map[api.TableID]owning{}}
	t := time.NewTimer(0)
	defer t.Stop()
	for first := true; ; first = false {
		change := c.changed.wait()
		now := watched{view: c.View(), leader: c.metaNow.Load().Lead, owners: c.directory.owners(c.o.Node)}
		c.tell(&last, &now, first)
		last = now
		t.Reset(watchRest)
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-change:
		case <-ctx.Done():
			return nil
		}
	}
}

// withdrawn are the incarnations that gave up their leases lately.
type withdrawn struct {
	mu   sync.Mutex
	last []api.Incarnation // the newest at the end
}

func (w *withdrawn) note(inc api.Incarnation) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = append(w.last[max(0, len(w.last)-maxWithdrawn+1):], inc)
}

func (w *withdrawn) has(inc api.Incarnation) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Contains(w.last, inc)
}

// watched is the picture that watch compares.
type watched struct {
	view   *meta.View
	leader uint64 // replica that leads the meta group
	owners map[api.TableID]owning
}

// owning is who owns a table.
type owning struct {
	node string
	term uint64
}

// owners returns who owns each table, as this node knows.
func (d *directory) owners(self string) map[api.TableID]owning {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := make(map[api.TableID]owning, len(d.mu.claims)+len(d.mu.owned))
	for id, c := range d.mu.claims {
		out[id] = owning{c.by.Node, c.term}
	}
	for id, o := range d.mu.owned {
		if o.Term >= out[id].term {
			out[id] = owning{self, o.Term}
		}
	}
	return out
}

// read calls f with the owner of each of the tables, as this node knows, unless nothing
// has changed since it returned that number.
func (d *directory) read(self string, tables []*wire.Table, since uint64, f func(i int, o owning)) (moves uint64) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.mu.moves == since {
		return since
	}
	for i, t := range tables {
		c := d.mu.claims[t.ID]
		o := owning{c.by.Node, c.term}
		if own, ok := d.mu.owned[t.ID]; ok && own.Term >= o.term {
			o = owning{self, own.Term}
		}
		f(i, o)
	}
	return d.mu.moves
}

// tell tells what is new in a picture. The first one is how the node found the
// cluster: its tables are no news.
func (c *Cluster) tell(was, now *watched, first bool) { //nolint:revive // the flag is part of the picture
	if was.leader != now.leader {
		c.o.Events(api.Event{Kind: api.EventMetaLeader, From: c.metaNode(was.leader), To: c.metaNode(now.leader), Term: c.metaNow.Load().Term})
	}
	c.tellLeases(was.view, now.view)
	if !first {
		c.tellTables(was.view, now.view)
	}
	c.tellOwners(was, now, first)
}

func (c *Cluster) tellLeases(was, now *meta.View) {
	for _, old := range was.Leases {
		if l, still := now.Lease(old.Incarnation.Node); !still || l.Incarnation != old.Incarnation {
			e := api.Event{Kind: api.EventLeaseEnded, Member: old.Incarnation.Node, Incarnation: &old.Incarnation, Why: "not renewed"}
			switch {
			case c.withdrawn.has(old.Incarnation):
				e.Why = "given up"
			case still:
				e.Why = "replaced by " + l.Incarnation.String()
			}
			c.o.Events(e)
		}
	}
	for _, l := range now.Leases {
		old, had := was.Lease(l.Incarnation.Node)
		had = had && old.Incarnation == l.Incarnation
		if !had {
			c.o.Events(api.Event{Kind: api.EventLease, Member: l.Incarnation.Node, Incarnation: &l.Incarnation})
		}
		kind := api.EventUndrained
		if l.Draining {
			kind = api.EventDraining
		}
		if had && old.Draining != l.Draining || !had && l.Draining {
			c.o.Events(api.Event{Kind: kind, Member: l.Incarnation.Node, Incarnation: &l.Incarnation})
		}
	}
}

// tellTables tells which tables came, went, and have other replicas.
func (c *Cluster) tellTables(was, now *meta.View) {
	created, dropped := api.Event{Kind: api.EventTableCreated}, api.Event{Kind: api.EventTableDropped}
	_ = eachChange(was, now, func(old, is *wire.Table) error { // f returns no errors
		switch {
		case old == nil:
			addTable(&created, is.Name)
		case is == nil:
			addTable(&dropped, old.Name)
		default:
			if from, to := holders(old), holders(is); from != to {
				c.o.Events(api.Event{Kind: api.EventReplicas, Tables: []string{is.Name}, Count: 1, From: from, To: to})
			}
		}
		return nil
	})
	for _, e := range []api.Event{created, dropped} {
		if e.Count > 0 {
			c.o.Events(e)
		}
	}
}

// holders names the nodes whose replicas count.
func holders(t *wire.Table) string {
	var nodes []string
	for _, r := range t.Replicas {
		if r.Voter {
			nodes = append(nodes, r.Node)
		}
	}
	slices.Sort(nodes)
	return strings.Join(nodes, ", ")
}

func addTable(e *api.Event, name string) {
	if len(e.Tables) < api.MaxEventTables {
		e.Tables = append(e.Tables, name)
	}
	e.Count++
}

// tellOwners tells which tables have other owners, all that went the same way for
// the same reason at once.
func (c *Cluster) tellOwners(was, now *watched, first bool) { //nolint:revive // the flag is part of the picture
	type way struct{ from, to, why string }
	moves := map[way]*api.Event{}
	places := c.places()
	for _, t := range now.view.Tables {
		old, owner := was.owners[t.ID], now.owners[t.ID]
		if owner.node == "" || owner.term < old.term {
			// Until somebody else owns it, it counts as its last owner's. What is known of
			// an earlier one, which nobody has heard since, is no news.
			if old.node != "" {
				now.owners[t.ID] = old
			}
			continue
		}
		if owner.node == old.node {
			continue
		}
		w := way{old.node, owner.node, c.whyMoved(was.view, old.node, places[t.ID] == owner.node)}
		if by := c.stays.by(t.ID, owner.node); by != "" {
			w.why = "handed over by " + by
		}
		if first {
			w = way{"", owner.node, "found so"}
		}
		e := moves[w]
		if e == nil {
			e = &api.Event{Kind: api.EventOwner, From: w.from, To: w.to, Why: w.why}
			moves[w] = e
		}
		e.Term = max(e.Term, owner.term)
		addTable(e, t.Name)
	}
	for _, w := range slices.SortedFunc(maps.Keys(moves), func(a, b way) int {
		return strings.Compare(a.from+"/"+a.to+"/"+a.why, b.from+"/"+b.to+"/"+b.why)
	}) {
		if e := moves[w]; e.Count > 1 {
			e.Term = 0 // of one table
		}
		c.o.Events(*moves[w])
	}
}

// whyMoved says why a table left its owner, as far as this node can tell. before is
// the view of when the table was still there.
func (c *Cluster) whyMoved(before *meta.View, from string, home bool) string {
	if from == "" {
		return "it had none"
	}
	if l, live := before.Lease(from); live && l.Draining {
		return from + " drains"
	}
	l, live := c.View().Lease(from)
	switch {
	case !live:
		return from + " has no lease"
	case l.Draining || from == c.o.Node && c.drain.Load():
		return from + " drains"
	case from != c.o.Node && c.pulses.death(from) != "":
		return from + " " + c.pulses.death(from)
	case from != c.o.Node && c.silence(from) > heardNow:
		return from + " is silent"
	case home:
		return "to its place"
	}
	return "elected"
}

// silence returns for how long another node has not been heard.
func (c *Cluster) silence(node string) time.Duration {
	_, at := c.o.Net.Heard(node)
	if at.IsZero() {
		return time.Duration(1<<63 - 1)
	}
	return time.Since(at)
}

package cluster

import (
	"maps"
	"sync"

	"tidal/node/api"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/ready"
	"tidal/node/internal/wire"
)

// directory is who owns which table, as soft state: what nodes say in heartbeats,
// with their terms. Nothing of it is on a disk.
type directory struct {
	mu struct {
		sync.RWMutex
		claims map[api.TableID]claim      // the newest of each table
		lives  map[string]api.Incarnation // the newest of each node that said hello
		disks  map[string]api.DiskID      // its disk
		gone   map[string]api.Incarnation // the last of the node's disk before
		whole  map[string]api.Incarnation // that said all that it owns
		owned  map[api.TableID]wire.Owned // tables that this node owns
		edit   uint64                     // counts changes of owned
		moves  uint64                     // counts changes of who owns what, here or elsewhere
		told   map[string]told            // per peer: what it was told
	}
}

// claim is a node's word that it owns a table.
type claim struct {
	by       api.Incarnation
	term     uint64
	frontier ready.Frontier
}

type told struct {
	edit  uint64
	terms map[api.TableID]uint64
}

func (d *directory) init() {
	d.mu.claims = map[api.TableID]claim{}
	d.mu.lives = map[string]api.Incarnation{}
	d.mu.disks = map[string]api.DiskID{}
	d.mu.gone = map[string]api.Incarnation{}
	d.mu.whole = map[string]api.Incarnation{}
	d.mu.owned = map[api.TableID]wire.Owned{}
	d.mu.told = map[string]told{}
}

// own notes whether this node owns a table now, and reports whether that changed.
func (d *directory) own(id api.TableID, s rafthost.State) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	was, owned := d.mu.owned[id]
	switch {
	case s.Owns && was.Term != s.Term:
		d.mu.owned[id] = wire.Owned{Table: id, Term: s.Term, Replica: s.Replica}
	case !s.Owns && owned:
		delete(d.mu.owned, id)
	default:
		return false
	}
	d.mu.edit++
	d.mu.moves++
	return true
}

// owns returns the tables that this node owns.
func (d *directory) owns() []api.TableID {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := make([]api.TableID, 0, len(d.mu.owned))
	for id := range d.mu.owned {
		out = append(out, id)
	}
	return out
}

// claim returns the newest claim on a table; the zero one if nobody owns it.
func (d *directory) claim(id api.TableID) claim {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.mu.claims[id]
}

// heard takes a heartbeat's claims, and reports whether any changed.
func (d *directory) heard(from api.Incarnation, hb *wire.Heartbeat) bool {
	if !hb.Full && len(hb.Owned) == 0 && len(hb.Gone) == 0 {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.lives[from.Node].Start > from.Start || d.mu.gone[from.Node] == from {
		return false // a former life's, late
	}
	changed := false
	now := map[api.TableID]bool{}
	for _, o := range hb.Owned {
		now[o.Table] = true
		old := d.mu.claims[o.Table]
		if o.Term < old.term {
			continue
		}
		// A later word of the same claim says how far the table has come since.
		d.mu.claims[o.Table] = claim{by: from, term: o.Term, frontier: ready.Frontier{Term: o.Term, Index: o.Frontier}}
		changed = changed || old.by != from || old.term != o.Term
	}
	if hb.Full {
		d.mu.whole[from.Node] = from
		changed = d.dropWhere(func(id api.TableID, c claim) bool { return c.by == from && !now[id] }) || changed
	}
	for _, id := range hb.Gone {
		if d.mu.claims[id].by == from {
			delete(d.mu.claims, id)
			changed = true
		}
	}
	if changed {
		d.mu.moves++
	}
	return changed
}

// unheard returns which of the nodes with a lease have not said yet what they own.
func (d *directory) unheard(leases []wire.Lease) map[string]bool {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := map[string]bool{}
	for i := range leases {
		if inc := leases[i].Incarnation; d.mu.whole[inc.Node] != inc {
			out[inc.Node] = true
		}
	}
	return out
}

// disk takes a node's disk, and reports whether it had another. The runs of another
// one do not come before or after those of the one before it: they are counted anew.
func (d *directory) disk(node string, disk api.DiskID) (replaced bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	old, met := d.mu.disks[node]
	if replaced = met && old != disk; replaced {
		d.mu.gone[node] = d.mu.lives[node]
		delete(d.mu.lives, node)
	}
	d.mu.disks[node] = disk
	return replaced
}

// dead drops the claims of a node's incarnations other than alive, and reports
// whether there were any.
func (d *directory) dead(node string, alive api.Incarnation) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if alive.Start > d.mu.lives[node].Start {
		d.mu.lives[node] = alive
	}
	return d.dropWhere(func(_ api.TableID, c claim) bool { return c.by.Node == node && c.by != alive })
}

func (d *directory) dropWhere(gone func(api.TableID, claim) bool) bool {
	n := len(d.mu.claims)
	maps.DeleteFunc(d.mu.claims, gone)
	if len(d.mu.claims) == n {
		return false
	}
	d.mu.moves++
	return true
}

// beat returns what a peer is to be told: all, or what changed since the last
// call for that peer. frontier gives a table's commit index.
func (d *directory) beat(peer string, hb *wire.Heartbeat, frontier func(api.TableID) uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.mu.told[peer]
	if !hb.Full && t.edit == d.mu.edit {
		return
	}
	terms := make(map[api.TableID]uint64, len(d.mu.owned))
	for id, o := range d.mu.owned {
		terms[id] = o.Term
		if hb.Full || t.terms[id] != o.Term {
			o.Frontier = frontier(id)
			hb.Owned = append(hb.Owned, o)
		}
	}
	for id := range t.terms {
		if _, still := terms[id]; !still && !hb.Full {
			hb.Gone = append(hb.Gone, id)
		}
	}
	d.mu.told[peer] = told{edit: d.mu.edit, terms: terms}
}

// Route is where a table's requests go.
type Route struct {
	Table api.TableID
	Owner string // node, this one too; "" while nobody owns the table
	Term  uint64
	Born  api.Position // newest committed position of the table known here
}

// Find returns the route of the table with that name, or false if there is no
// such table.
func (c *Cluster) Find(name string) (Route, bool) {
	t, ok := c.View().TableNamed(name)
	if !ok {
		return Route{}, false
	}
	r := Route{Table: t.ID, Born: api.Position{Table: t.ID}}
	cl := c.directory.claim(t.ID)
	r.Owner, r.Term = cl.by.Node, cl.term
	r.Born.Index = cl.frontier.Index
	l, here := c.o.Tables.Local(t.ID)
	if !here {
		return r, true
	}
	r.Born.Index = max(r.Born.Index, l.Commit, l.Applied)
	switch s := l.State; {
	case s.Leads:
		r.Owner, r.Term = c.o.Node, s.Term
	case s.Lead != 0 && s.Term >= cl.term:
		r.Owner, r.Term = l.Leader, s.Term
	case s.Term > cl.term || r.Owner == c.o.Node:
		r.Owner, r.Term = "", s.Term // an election that the claim does not know of
	}
	return r, true
}

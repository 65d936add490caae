package cluster

import (
	"maps"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/place"
	"tidal/node/internal/wire"
)

// eachChange calls f for each table that differs between two views: was is nil
// for one that came, is nil for one that went. Views share what did not change,
// so that comparing 10,000 tables costs microseconds.
func eachChange(before, after *meta.View, f func(was, is *wire.Table) error) error {
	a, b := before.Tables, after.Tables
	for len(a) > 0 || len(b) > 0 {
		var was, is *wire.Table
		if len(a) > 0 && (len(b) == 0 || a[0].ID <= b[0].ID) {
			was = a[0]
		}
		if len(b) > 0 && (len(a) == 0 || b[0].ID <= a[0].ID) {
			is = b[0]
		}
		if was != nil {
			a = a[1:]
		}
		if is != nil {
			b = b[1:]
		}
		if was == is {
			continue
		}
		if err := f(was, is); err != nil {
			return err
		}
	}
	return nil
}

// placements are the places of all tables, computed once for each view.
type placements struct {
	mu       sync.Mutex
	view     *meta.View
	draining bool
	owners   map[api.TableID]string
	at       time.Time
	took     time.Duration
	times    uint64 // that they were computed
}

// placeShare is which part of the time may go into computing places while tables
// come and go: one of so many.
const placeShare = 10

// get returns the places in a view, or, while many tables are made or dropped,
// those of a moment ago, and how often they were computed. A change of leases always
// counts at once.
func (p *placements) get(v *meta.View, draining bool, owners func() map[api.TableID]string) (map[api.TableID]string, uint64) { //nolint:revive // the flag is part of the picture
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.view != nil && p.draining == draining {
		if p.view == v || sameLeases(p.view, v) && now.Sub(p.at) < placeShare*p.took {
			return p.owners, p.times
		}
	}
	p.owners = owners()
	p.times++
	p.view, p.draining, p.at = v, draining, now
	p.took = time.Since(now)
	return p.owners, p.times
}

// sameLeases reports whether two views have the very same leases.
func sameLeases(a, b *meta.View) bool {
	return len(a.Leases) == len(b.Leases) && (len(a.Leases) == 0 || &a.Leases[0] == &b.Leases[0])
}

// places returns the node that should own each table now, not to be changed.
// While this node drains, that is never itself.
func (c *Cluster) places() map[api.TableID]string {
	places, _ := c.placesCounted()
	return places
}

// placesCounted also returns a number that changes with them.
func (c *Cluster) placesCounted() (map[api.TableID]string, uint64) {
	v, draining := c.View(), c.drain.Load()
	return c.placed.get(v, draining, func() map[api.TableID]string { return place.Owners(c.candidates(v, draining)) })
}

func (c *Cluster) candidates(v *meta.View, draining bool) place.Input {
	in := place.Input{Tables: make([]place.Table, len(v.Tables))}
	for _, l := range v.Leases {
		leaving := l.Draining || l.Incarnation.Node == c.o.Node && draining
		if !leaving {
			in.Nodes = append(in.Nodes, l.Incarnation.Node)
		}
	}
	n := 0
	for _, t := range v.Tables {
		n += len(t.Replicas)
	}
	all := make([]string, 0, n)
	for i, t := range v.Tables {
		from := len(all)
		for _, r := range t.Replicas {
			if r.Voter && !r.Leaving {
				all = append(all, r.Node)
			}
		}
		in.Tables[i] = place.Table{ID: t.ID, Holders: all[from:len(all):len(all)]}
	}
	return in
}

// loads count the replicas that each node holds, from view to view.
type loads struct {
	mu   sync.Mutex
	view *meta.View
	held map[string]int
}

// get returns a copy of the counts in a view.
func (l *loads) get(v *meta.View) map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.view == nil {
		l.view, l.held = &meta.View{}, map[string]int{}
	}
	_ = eachChange(l.view, v, func(was, is *wire.Table) error { // f returns no errors
		l.add(was, -1)
		l.add(is, 1)
		return nil
	})
	l.view = v
	return maps.Clone(l.held)
}

func (l *loads) add(t *wire.Table, n int) {
	if t != nil {
		for _, r := range t.Replicas {
			l.held[r.Node] += n
		}
	}
}

package cluster

import (
	"context"
	"maps"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// Times of gathering how far replicas are. It goes on only while somebody looks.
const (
	gatherEvery  = 500 * time.Millisecond
	gatherCall   = 400 * time.Millisecond  // for one node's answer
	gatherLinger = 5 * time.Second         // after the last look
	gatherKept   = 6                       // so many are kept, for rates
	rateOver     = 1500 * time.Millisecond // least time that a rate is taken over
	maxLate      = 1 << 40                 // microseconds that a write may take, as another node says
)

// Position is how far this node's replica of a table is and, if it owns the table, how
// long a write took lately, but for the slowest 1 %.
type Position struct {
	Table           api.TableID
	Commit, Applied uint64
	Late            time.Duration // 0: there was no write
}

// position is how far a replica is, as its node says.
type position struct {
	table           api.TableID
	commit, applied uint64
}

// gathering is how far the replicas of each node were at one time. A node that did
// not answer is not in it.
type gathering struct {
	at    time.Time
	nodes map[string]standing // nil of an older one
	// highest is the highest commit index of each table, in the order of the tables.
	highest []frontier
}

// standing is how far the replicas of one node are.
type standing struct {
	all  []position                    // in the order of the tables
	late map[api.TableID]time.Duration // of the writes of tables that it owns, where there are any
}

// frontier is the highest commit index of a table that any node tells.
type frontier struct {
	table api.TableID
	index uint64
}

// gatherings are the newest ones.
type gatherings struct {
	wanted  chan struct{} // capacity 1
	changed signal
	held    atomic.Int64 // how many replicas were here the last time
	looked  atomic.Int64 // when somebody last looked, in nanoseconds since the epoch
	mu      sync.Mutex
	last    []*gathering // the newest at the end
}

func (g *gatherings) init() {
	g.wanted = make(chan struct{}, 1)
	g.changed.ch = make(chan struct{})
}

// want says that somebody looks.
func (g *gatherings) want() {
	g.looked.Store(time.Now().UnixNano())
	select {
	case g.wanted <- struct{}{}:
	default:
	}
}

func (g *gatherings) add(n *gathering) {
	g.mu.Lock()
	if k := len(g.last); k > 0 { // pictures may still hold the whole one
		g.last[k-1] = &gathering{at: g.last[k-1].at, highest: g.last[k-1].highest}
	}
	g.last = append(g.last, n)
	if len(g.last) > gatherKept {
		g.last = append([]*gathering(nil), g.last[len(g.last)-gatherKept:]...)
	}
	g.mu.Unlock()
	g.changed.fire()
}

// pair returns the newest gathering, and an older one to take rates against; nil
// if there is none that is fresh.
func (g *gatherings) pair(now time.Time) (newest, older *gathering) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, x := range slices.Backward(g.last) {
		switch {
		case newest == nil && now.Sub(x.at) > 4*gatherEvery:
			return nil, nil
		case newest == nil:
			newest = x
		case newest.at.Sub(x.at) > gatherKept*2*gatherEvery:
			return newest, older
		default:
			if older = x; newest.at.Sub(x.at) >= rateOver {
				return newest, older
			}
		}
	}
	return newest, older
}

// gather asks all live nodes how far their replicas are, while somebody looks and
// until ctx ends.
func (c *Cluster) gather(ctx context.Context) error {
	g := &c.gathered
	for {
		select {
		case <-g.wanted:
		case <-ctx.Done():
			return nil
		}
		for time.Since(time.Unix(0, g.looked.Load())) < gatherLinger {
			g.add(c.gatherOnce(ctx))
			if c.sleep(ctx, gatherEvery, nil) {
				return nil
			}
		}
	}
}

func (c *Cluster) gatherOnce(ctx context.Context) *gathering {
	ctx, cancel := context.WithTimeout(ctx, gatherCall)
	defer cancel()
	g := &gathering{at: time.Now(), nodes: map[string]standing{}}
	var mu sync.Mutex
	var all errgroup.Group
	for _, l := range c.View().Leases {
		node := l.Incarnation.Node
		if node == c.o.Node || c.silence(node) > heardNow {
			continue // who is not heard would cost the whole time for nothing
		}
		all.Go(func() error {
			b, err := c.o.Net.Call(ctx, node, wire.MethodPositions, nil)
			if err != nil {
				return nil // then nobody knows
			}
			if s, err := readStanding(b); err == nil {
				mu.Lock()
				defer mu.Unlock()
				g.nodes[node] = s
			}
			return nil
		})
	}
	own := c.standing()
	_ = all.Wait() // the functions return no errors
	g.nodes[c.o.Node] = own
	g.highest = highest(g.nodes)
	return g
}

// highest merges what the nodes tell.
func highest(nodes map[string]standing) []frontier {
	rest, most := make([]cursor, 0, len(nodes)), 0
	for _, s := range nodes {
		rest, most = append(rest, cursor{s.all}), max(most, len(s.all))
	}
	out := make([]frontier, 0, most)
	for {
		next, more := api.TableID(math.MaxUint64), false
		for i := range rest {
			if p := rest[i].rest; len(p) > 0 {
				next, more = min(next, p[0].table), true
			}
		}
		if !more {
			return out
		}
		f := frontier{table: next}
		for i := range rest {
			if p, ok := rest[i].at(next); ok {
				f.index = max(f.index, p.commit, p.applied)
				rest[i].rest = rest[i].rest[1:]
			}
		}
		out = append(out, f)
	}
}

// standing returns how far the replicas here are.
func (c *Cluster) standing() standing {
	s := standing{all: make([]position, 0, c.gathered.held.Load()), late: map[api.TableID]time.Duration{}}
	c.o.Positions(func(p Position) {
		s.all = append(s.all, position{table: p.Table, commit: p.Commit, applied: p.Applied})
		if p.Late > 0 {
			s.late[p.Table] = p.Late
		}
	})
	c.gathered.held.Store(int64(len(s.all)))
	return s
}

func (c *Cluster) answerPositions() []byte { return appendStanding(nil, c.standing()) }

func appendStanding(b []byte, s standing) []byte {
	b = slices.Grow(b, 8*len(s.all)+8)
	b = wire.AppendUvarint(b, uint64(len(s.all)))
	last := api.TableID(0)
	for _, p := range s.all {
		b = wire.AppendUvarint(b, uint64(p.table-last))
		b = wire.AppendUvarint(wire.AppendUvarint(b, p.commit), p.applied)
		last = p.table
	}
	b, last = wire.AppendUvarint(b, uint64(len(s.late))), 0
	for _, id := range slices.Sorted(maps.Keys(s.late)) {
		b = wire.AppendUvarint(b, uint64(id-last))
		b = wire.AppendUvarint(b, uint64(s.late[id].Microseconds()))
		last = id
	}
	return b
}

// readStanding reads what appendStanding wrote; what a later release adds behind it is
// skipped.
func readStanding(b []byte) (standing, error) {
	r := wire.NewReader(b)
	n := r.Count("replicas", 3)
	s := standing{all: make([]position, 0, n), late: map[api.TableID]time.Duration{}}
	last := api.TableID(0)
	for range n {
		last += api.TableID(r.Uvarint("table id"))
		s.all = append(s.all, position{table: last, commit: r.Uvarint("commit"), applied: r.Uvarint("applied")})
	}
	last = 0
	for range r.Count("tables that were written", 2) {
		last += api.TableID(r.Uvarint("table id"))
		s.late[last] = time.Duration(min(r.Uvarint("time of a write"), maxLate)) * time.Microsecond
	}
	return s, r.Err()
}

// cursor goes through the positions of one node in the order of the tables.
type cursor struct{ rest []position }

// at returns the position of a table; each call asks for a higher one.
func (c *cursor) at(id api.TableID) (position, bool) {
	for len(c.rest) > 0 && c.rest[0].table < id {
		c.rest = c.rest[1:]
	}
	if len(c.rest) > 0 && c.rest[0].table == id {
		return c.rest[0], true
	}
	return position{}, false
}

// heights goes through the frontiers of a gathering in the order of the tables.
type heights struct{ rest []frontier }

// at returns the frontier of a table; each call asks for a higher one.
func (h *heights) at(id api.TableID) (uint64, bool) {
	for len(h.rest) > 0 && h.rest[0].table < id {
		h.rest = h.rest[1:]
	}
	if len(h.rest) > 0 && h.rest[0].table == id {
		return h.rest[0].index, true
	}
	return 0, false
}

package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// noteEvery is how many synced passes a disk may be ahead of what the meta group
// has noted of it while it runs. An idle disk makes none, so it costs nothing; of
// a disk that is gone, what it told last is noted at once.
const noteEvery = 4096

// memory is how far the disks of other nodes have come, as they told this node:
// start counters from hellos, synced passes from hellos, heartbeats and with each
// batch of raft messages. Nothing is told before it is on the disk that tells it, so
// a disk that comes back behind this has forgotten something.
//
// It goes into each batch that the raft loop writes, so what rests on a promise is
// never on this disk without the memory of it.
type memory struct {
	mu struct {
		sync.Mutex
		disks map[api.DiskID]*wire.Sighting
		runs  map[string]*wire.Sighting // of each node: the disk that said hello last
		news  map[string]bool           // of which nodes the disk here does not know
	}
}

func (m *memory) init() {
	m.mu.disks = map[api.DiskID]*wire.Sighting{}
	m.mu.runs = map[string]*wire.Sighting{}
	m.mu.news = map[string]bool{}
}

// load reads what this node remembered in the run before.
func (m *memory) load(db *store.DB) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	lo := store.NodeKey(store.NodeSeen)
	return db.Scan(lo, store.NodeKey(store.NodeSeen+1), func(k, v []byte) error {
		s, err := wire.DecodeSighting(v)
		if err != nil {
			return fmt.Errorf("what is remembered of node %s: %w", k[len(lo):], err)
		}
		m.mu.disks[s.Disk], m.mu.runs[string(k[len(lo):])] = &s, &s
		return nil
	})
}

// write adds what is new to a batch.
func (m *memory) write(b *store.Batch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for node := range m.mu.news {
		b.Set(append(store.NodeKey(store.NodeSeen), node...), wire.AppendSighting(nil, m.mu.runs[node]))
	}
	clear(m.mu.news)
}

// hello takes the word of an incarnation that was admitted.
func (m *memory) hello(h *wire.Hello, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.mu.disks[h.Disk]
	if s == nil {
		s = &wire.Sighting{Disk: h.Disk, Incarnation: h.Incarnation}
		m.mu.disks[h.Disk] = s
	}
	if h.Incarnation.Start > s.Incarnation.Start {
		s.Incarnation = h.Incarnation
	}
	s.Pass, s.At = max(s.Pass, h.Pass), now
	m.mu.runs[h.Incarnation.Node] = s
	m.mu.news[h.Incarnation.Node] = true
}

// passed takes a running incarnation's word of its last synced pass.
func (m *memory) passed(from api.Incarnation, pass uint64, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.mu.runs[from.Node]; s != nil && s.Incarnation == from {
		if s.At = now; pass > s.Pass {
			s.Pass = pass
			m.mu.news[from.Node] = true
		}
	}
}

// disk returns what is remembered of a disk, of which the zero value is nothing.
func (m *memory) disk(disk api.DiskID) wire.Sighting {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.mu.disks[disk]; s != nil {
		return *s
	}
	return wire.Sighting{}
}

// Remember adds what this node has heard of other nodes' disks to a batch.
func (c *Cluster) Remember(b *store.Batch) { c.memory.write(b) }

// Passed takes an incarnation's word that its disk has synced a pass.
func (c *Cluster) Passed(from api.Incarnation, pass uint64) { c.memory.passed(from, pass, time.Now()) }

// remembered returns how far a disk of a node has come, by all that this node
// knows: what it heard itself, in the run before too, and what the meta group was told.
func (c *Cluster) remembered(node string, disk api.DiskID) wire.Sighting {
	s := c.memory.disk(disk)
	if noted, ok := c.View().Seen(node); ok && noted.Disk == disk {
		s = later(s, noted)
	}
	if m, ok := c.member(node); ok && m.Disk == disk && !m.Last.IsZero() {
		s = later(s, wire.Sighting{Disk: disk, Incarnation: m.Last})
	}
	return s
}

// later returns the newer of two runs of a disk, and the higher pass.
func later(a, b wire.Sighting) wire.Sighting {
	if a.Incarnation.IsZero() || b.Incarnation.Start > a.Incarnation.Start {
		a, b = b, a
	}
	a.Pass = max(a.Pass, b.Pass)
	if b.At.After(a.At) {
		a.At = b.At
	}
	return a
}

// older refuses a disk that is behind what is remembered of it: an older state of
// it that was put back, or a copy that another run has left behind. The start
// counter and the pass are compared as the disk had them when the run began: what
// the run itself has added proves nothing.
func (c *Cluster) older(remote wire.Hello) error {
	now := remote.Incarnation
	was := c.remembered(now.Node, remote.Disk)
	last := was.Incarnation
	if last.IsZero() || now == last {
		return nil
	}
	switch {
	case now.Start > last.Start && remote.Pass >= was.Pass:
		return nil
	case now.Start == last.Start:
		return wrongDisk(now.Node, "disk %s ran as %s, and comes as %s with the same start number: it is a copy of that one, or an older state of it",
			remote.Disk, last, now)
	}
	until := "runs as node " + now.Node + " now"
	if time.Since(was.At) > heardLately {
		until = "ran as node " + now.Node
		if !was.At.IsZero() {
			until += " until " + was.At.UTC().Format(time.RFC3339)
		}
	}
	return wrongDisk(now.Node, "disk %s is older than the one that %s: that had start %d and pass %d, this comes with start %d and pass %d",
		remote.Disk, until, last.Start, was.Pass, now.Start, remote.Pass)
}

// wrongDisk says that a member runs on a disk that must not take part, with the way
// out. Who is told so by any member talks to nobody any more.
func wrongDisk(node, format string, args ...any) *api.Error {
	return &api.Error{
		Code: api.CodeWrongDisk, Message: fmt.Sprintf(format, args...),
		Hint: "if there is a newer state of its data, start node " + node + " on that; if not, stop it, empty its data directory, say `tidal node replace " + node + "`, and start it",
	}
}

// noteDisks has the meta group remember how far disks have come, while this node
// leads it.
func (c *Cluster) noteDisks(ctx context.Context) {
	v := c.View()
	for _, m := range v.Members {
		s := c.remembered(m.Node, m.Disk)
		if m.Node == c.o.Node {
			s = wire.Sighting{Disk: c.o.Identity.Disk, Incarnation: c.o.Identity.Incarnation, Pass: c.o.Host.Synced(), At: time.Now()}
		}
		_, leased := v.Lease(m.Node)
		if !worthNoting(v, s, leased || m.Node == c.o.Node || c.heard(m.Node)) {
			continue
		}
		if _, err := c.lead(ctx, &wire.MetaCommand{Kind: wire.MetaNoteDisk, ID: newID(), Seen: s}); err != nil {
			c.o.Log.DebugContext(ctx, "how far a disk has come is not noted", "peer", m.Node, "error", err)
		}
	}
}

// worthNoting reports whether the meta group should be told how far a disk has
// come: rarely while it runs, and all that it told once it is gone.
func worthNoting(v *meta.View, s wire.Sighting, running bool) bool { //nolint:revive // running is a fact, not a mode
	if s.Incarnation.IsZero() || s.Pass == 0 {
		return false
	}
	noted, _ := v.Seen(s.Incarnation.Node)
	ahead := uint64(0)
	if noted.Disk == s.Disk {
		ahead = noted.Pass
	}
	if running {
		return s.Pass >= ahead+noteEvery
	}
	return s.Pass > ahead
}

package node

import (
	"cmp"
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

const (
	compareEvery = time.Hour        // between two comparisons of a table
	compareLook  = time.Minute      // between two looks which are due
	compareMost  = 10 * time.Minute // for one table
)

// compared is what a node knows of the comparisons of a table that it owns.
type compared struct {
	due     time.Time
	applied uint64 // to which all were the same; 0: no such place is known
}

// comparisons are those of the tables that this node owns. They belong to one
// goroutine.
type comparisons struct {
	every  time.Duration
	tables map[api.TableID]compared
}

// due returns the tables that this node owns and whose replicas are to be compared now.
// Each has its own time in the hour, so that not all come at once; one that nothing was
// written to since all were the same is left alone.
func (c *comparisons) due(owned map[api.TableID]uint64, now time.Time) []api.TableID {
	var out []api.TableID
	for id := range c.tables {
		if _, still := owned[id]; !still {
			delete(c.tables, id)
		}
	}
	for id, applied := range owned {
		t, known := c.tables[id]
		switch {
		case !known:
			t.due = now.Add(rand.N(c.every)) //nolint:gosec // it spreads work, and guards nothing
		case now.Before(t.due):
			continue
		case t.applied == applied:
			t.due = c.next(now)
		default:
			out = append(out, id)
			continue
		}
		c.tables[id] = t
	}
	return out
}

// done notes that a table was compared: at a place where all were the same, or at 0.
func (c *comparisons) done(id api.TableID, applied uint64, now time.Time) {
	c.tables[id] = compared{due: c.next(now), applied: applied}
}

// next is once an hour, more or less.
func (c *comparisons) next(now time.Time) time.Time {
	return now.Add(c.every*9/10 + rand.N(c.every/5)) //nolint:gosec // as above
}

// compare has the replicas of each table that this node owns compared once an hour, one
// table after the other, until ctx ends. Those that differ from most others are fenced.
func (n *node) compare(ctx context.Context) error {
	every := cmp.Or(n.o.Limits.CompareEvery, compareEvery)
	c := comparisons{every: every, tables: map[api.TableID]compared{}}
	tick := time.NewTicker(min(compareLook, every/4))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		owned := map[api.TableID]uint64{}
		for _, l := range n.tables.All() {
			if l.State.Owns {
				owned[l.ID] = l.Applied
			}
		}
		for _, id := range c.due(owned, time.Now()) {
			if ctx.Err() == nil {
				c.done(id, n.compareTable(ctx, id), time.Now())
			}
		}
	}
}

// compareTable compares the replicas of a table, and returns the place at which all
// were the same; 0 if one was not, or could not be asked.
func (n *node) compareTable(ctx context.Context, id api.TableID) uint64 {
	info, ok := n.cluster.View().Table(id)
	if !ok {
		return 0
	}
	ctx, cancel := context.WithTimeout(ctx, compareMost)
	defer cancel()
	check, mark, err := n.checkTable(ctx, info, true)
	switch {
	case err != nil:
		n.log.DebugContext(ctx, "the replicas of a table were not compared", "table", info.Name, "error", err)
		return 0
	case check.Count(api.ReplicaSame) == len(check.Replicas):
		return mark
	}
	return 0
}

// fence has the nodes whose replicas differ from what more than half of all have serve
// nothing of the table any more. Without a majority nobody can say which are right.
func (n *node) fence(ctx context.Context, info *wire.Table, check *api.TableCheck) {
	if check.Count(api.ReplicaSame) == 0 {
		return
	}
	for _, r := range check.Replicas {
		if r.State != api.ReplicaDiffers {
			continue
		}
		replica, err := strconv.ParseUint(r.ID, 16, 64)
		if err == nil {
			_, err = n.askDigest(ctx, r.Node, wire.DigestCall{Kind: wire.DigestFence, Table: info.ID, Replica: replica})
		}
		if err != nil {
			n.log.WarnContext(ctx, "a replica that differs is not fenced", "table", info.Name, "peer", r.Node, "error", err)
		}
	}
}

// tableMeters are the metrics of what tables remember and whether their replicas agree.
func tableMeters(n *node) []prometheus.Collector {
	gauge := func(name, help string, f func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, f)
	}
	return []prometheus.Collector{
		gauge("tidal_answers_bytes", "Bytes that the answers take in memory which all tables here remember, so that a write that is sent again is done once.",
			func() float64 { return float64(n.tables.Remembered(false) + n.tables.Remembered(true)) }),
		gauge("tidal_replicas_fenced", "Replicas here that differ from most others and serve nothing.",
			func() float64 { return float64(len(n.tables.Fenced())) }),
	}
}

package sim

import (
	"math/rand/v2"
	"time"

	"tidal/node/api"
	"tidal/node/internal/table"
	"tidal/node/internal/wire"
)

// exact makes the runs of even seeds about requests: clients write under
// conditions, ids have both lifetimes, and now and then all nodes and clients stand
// still for longer than one of them, with requests on their way. It draws from a
// stream of its own, so that the other runs stay what they are.
type exact struct {
	rng    *rand.Rand
	lost   time.Duration // that everybody stood still so far
	recent []*op         // writes of late, whose copies may still be on their way
}

// recentWrites is how many writes may have copies on their way.
const recentWrites = 12

func newExact(w *world) *exact {
	if w.o.Seed%2 != 0 {
		return nil
	}
	return &exact{rng: rand.New(rand.NewPCG(w.o.Seed, 1))} //nolint:gosec // runs repeat
}

// clock is the time that clocks show: what happened, and what passed beside it.
func (w *world) clock() time.Duration {
	if w.exact == nil {
		return w.now
	}
	return w.now + w.exact.lost
}

// unleash makes everybody stand still at random times, while things go wrong.
func (x *exact) unleash(w *world) {
	if x == nil {
		return
	}
	w.after(time.Duration(x.rng.Int64N(int64(time.Second))), func() {
		if w.healed {
			return
		}
		pauses := [...]time.Duration{2 * time.Second, table.KeepMade + time.Second, table.KeepKeyed + time.Second}
		pause := pauses[x.rng.IntN(len(pauses))]
		w.trace("stand still for %s", pause)
		x.lost += pause
		for _, o := range x.recent {
			if x.rng.IntN(2) == 0 && !w.history.tables[o.group].refused[o.command.ID] {
				o.doubt = true
				o.arrive(w.target(o.group))
			}
		}
		x.unleash(w)
	})
}

// ask makes a client's write one of its kinds, and gives it the position of the
// table that the node knows where it enters.
func (x *exact) ask(w *world, o *op) {
	if x == nil {
		return
	}
	x.recent = append(x.recent, o)
	if len(x.recent) > recentWrites {
		x.recent = x.recent[1:]
	}
	c := &o.command
	c.Keyed = x.rng.IntN(3) == 0
	n := w.nodes[x.rng.IntN(len(w.nodes))]
	if g := n.gauges[o.group]; n.stepper != nil && g != nil {
		c.Born = g.Commit.Load()
	}
	if c.Op == api.OpBatch {
		return // it has no conditions
	}
	seen := api.Version{Table: api.TableID(o.group), Index: w.history.floor(o.group, c.Key)}
	switch x.rng.IntN(6) {
	case 0:
		c.IfAbsent = true
	case 1:
		c.IfExists = true
	case 2, 3:
		c.IfMatch = []api.Version{{Table: seen.Table, Index: seen.Index / 2}, seen}
	}
}

// proposal is what a node proposes of a request that arrives.
func (o *op) proposal(n *node) []byte {
	if !o.c.w.o.Loose {
		return o.data
	}
	row, _, err := table.Get(n.db, api.TableID(o.group), o.command.Key)
	if err != nil || !holds(&o.command, api.TableID(o.group), row.Version) {
		return o.data
	}
	bare := o.command
	bare.IfMatch, bare.IfAbsent, bare.IfExists = nil, false, false
	return wire.AppendCommand(nil, &bare)
}

// holds reports whether the conditions of a write hold for a row of that version, 0
// for none. It is written apart from the machine's.
func holds(c *wire.Command, of api.TableID, now uint64) bool {
	matches := len(c.IfMatch) == 0
	for _, v := range c.IfMatch {
		matches = matches || now != 0 && v.Table == of && v.Index == now
	}
	return matches && (!c.IfAbsent || now == 0) && (!c.IfExists || now != 0)
}

// notDone is an answer that says that the request did nothing.
func (o *op) notDone(a *table.Answer) {
	w := o.c.w
	switch {
	case a.Code == api.CodePreconditionFailed:
		w.after(w.between(50*time.Microsecond, time.Millisecond), func() {
			w.report.Failed++
			w.history.failed(o.group, o.command.ID, a.Version)
			o.finish()
		})
	case a.Code != api.CodeBehind:
		w.history.find("group %d: a write was answered with %+v", o.group, a)
	case o.c.op != o: // nobody waits for it
	case o.doubt:
		// Whether it was done is forgotten, and its client leaves it at that.
		w.report.Late++
		o.finish()
	default:
		o.command.Born = a.Version
		o.data = wire.AppendCommand(nil, &o.command)
		o.retry(o.tries)
	}
}

// want is a write as its client asked for it, and when it began.
type want struct {
	command wire.Command
	began   time.Duration
}

// asked takes what a client is about to send for the first time.
func (h *history) asked(group uint64, c *wire.Command, now time.Duration) {
	h.tables[group].wants[c.ID] = want{*c, now}
}

// judge checks the answer to an entry against the entries before it, and against
// what its client asked for.
func (h *history) judge(group uint64, c *wire.Command, got table.Answer, now time.Duration) {
	t := h.tables[group]
	asked, ok := t.wants[c.ID]
	if !ok {
		asked = want{*c, now}
	}
	index, first := uint64(len(t.entries)), t.first[c.ID]
	keep := table.KeepMade
	if asked.command.Keyed {
		keep = table.KeepKeyed
	}
	row := t.version(c.Key, index-1)
	switch {
	case got.Code == api.CodeBehind:
		if first != 0 && now-asked.began <= keep {
			h.find("group %d: request %s, which entry %d answered, is forgotten %s after it began", group, c.ID, first, now-asked.began)
		}
		return
	case first != 0:
		if before := t.entries[first-1].answer; got != before {
			h.find("group %d: entry %d is answered with %+v, its request was done by entry %d with %+v", group, index, got, first, before)
		}
		return
	case holds(&asked.command, api.TableID(group), row):
		if got.Code != "" || got.Version != index {
			h.find("group %d: entry %d is answered with %+v, and its conditions hold: the row's version is %d", group, index, got, row)
		}
		h.did(group, index, &asked.command)
	case got.Code != api.CodePreconditionFailed || got.Version != row:
		h.find("group %d: entry %d is answered with %+v, and its conditions do not hold: the row's version is %d", group, index, got, row)
	}
	t.first[c.ID] = index
}

// failed takes that a client was told that its conditions did not hold, and which
// version the row had.
func (h *history) failed(group uint64, id [16]byte, version uint64) {
	t := h.tables[group]
	first := t.first[id]
	if first == 0 || t.entries[first-1].answer != (table.Answer{Code: api.CodePreconditionFailed, Version: version}) {
		h.find("group %d: the client of request %s was told that the row has version %d, which entry %d does not say", group, id, version, first)
		return
	}
	t.newest = max(t.newest, first)
}

package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"tidal/node/api"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/table"
	"tidal/node/internal/wire"
)

// client sends one request after another, and each again until it is answered.
type client struct {
	w      *world
	number int
	count  int // requests so far
	op     *op // under way; nil: none
}

// op is one request of a client.
type op struct {
	c       *client
	group   uint64
	command wire.Command
	data    []byte   // the command as it is proposed; nil: a read
	keys    []string // of a read: the rows, in one look
	floor   uint64   // the newest entry that a client had seen the work of when it was first sent
	tries   int
	began   time.Duration
	doubt   bool // an attempt may have been applied
}

// next begins another request, until the end of the run.
func (c *client) next() {
	if c.op = nil; c.w.healed {
		return
	}
	if wait := c.w.lull - c.w.now; wait > 0 {
		c.w.after(wait, c.next)
		return
	}
	c.count++
	o := &op{c: c, group: pick(c.w, c.w.groups...), began: c.w.now}
	o.floor = c.w.history.newest(o.group)
	key := keyOf(c.w.rng.IntN(rowCount))
	if c.w.chance(0.2) {
		o.keys = []string{key}
		c.w.batches.read(o)
	} else {
		c.write(o, key)
	}
	c.op = o
	o.try()
}

// write makes a request a write of a row, or one that begins with it.
func (c *client) write(o *op, key string) {
	o.command = wire.Command{Op: api.OpPut, Key: key, Value: fmt.Appendf(nil, "%d of client %d", c.count, c.number)}
	if c.w.chance(0.1) {
		o.command.Value = append(o.command.Value, make([]byte, c.w.rng.IntN(4<<10))...)
	}
	o.command.ID = api.RequestID{0: byte(c.number) + 1}
	binary.BigEndian.PutUint64(o.command.ID[8:], uint64(c.count))
	c.w.batches.write(o)
	c.w.exact.ask(c.w, o)
	o.command.Hash = o.command.RequestHash(api.TableID(o.group))
	o.data = wire.AppendCommand(nil, &o.command)
	c.w.history.asked(o.group, &o.command, c.w.clock())
}

// try sends the request to a node. An answer that does not come in time is not
// waited for: the request goes out again, to whoever leads then.
func (o *op) try() {
	w := o.c.w
	o.tries++
	if o.tries > 1 {
		w.report.Resent++
	}
	try := o.tries
	n := w.target(o.group)
	w.after(w.between(50*time.Microsecond, time.Millisecond), func() { o.arrive(n) })
	w.after(100*time.Millisecond, func() { o.late(try) })
}

// late sends the request again if no answer has come: it may have been done.
func (o *op) late(try int) {
	if o.c.op == o && o.tries == try {
		o.doubt = true
	}
	o.retry(try)
}

// retry sends the request again unless it was answered, or is another's turn.
// While things go wrong a client gives up at last: whether the write was done it
// does not know.
func (o *op) retry(try int) {
	switch {
	case o.c.op != o || o.tries != try:
	case !o.c.w.healed && o.c.w.now-o.began > time.Second:
		o.c.next()
	default:
		o.try()
	}
}

// target returns a node for a request: mostly one that takes itself for the
// leader, of whom there may be several.
func (w *world) target(group uint64) *node {
	var leaders []*node
	for _, n := range w.nodes {
		if n.leads(group) {
			leaders = append(leaders, n)
		}
	}
	if len(leaders) == 0 || w.chance(0.25) {
		return pick(w, w.nodes...)
	}
	return pick(w, leaders...)
}

// arrive is the request at a node.
func (o *op) arrive(n *node) {
	if n.stepper == nil || n.later(func() { o.arrive(n) }) {
		return
	}
	life := n.life
	if o.data == nil {
		n.stepper.Read(o.group, func(err error) {
			if n.alive(life) {
				o.read(n, err)
			}
		})
	} else {
		n.stepper.Propose(o.group, o.command.ID, o.proposal(n), func(a any, err error) {
			if n.alive(life) {
				o.written(n, a, err)
			}
		})
	}
	n.wake()
}

// written is the answer to a write leaving its node.
func (o *op) written(n *node, answer any, err error) {
	w := o.c.w
	if err != nil {
		o.refused(n, err)
		return
	}
	a, ok := answer.(*table.Answer)
	if !ok {
		w.history.find("group %d: a write was answered with %+v", o.group, answer)
		return
	}
	if a.Code != "" {
		o.notDone(a)
		return
	}
	w.after(w.between(50*time.Microsecond, time.Millisecond), func() {
		w.trace("ack %d %x by %s: %d", o.group, o.command.ID, n.name, a.Version)
		w.history.ack(o.group, &o.command, o.floor, a.Version)
		if o.command.Op == api.OpBatch {
			w.report.Batches++
		}
		if !w.healed && w.chance(0.05) {
			o.arrive(w.target(o.group)) // a proxy sends it once more
		}
		o.finish()
	})
}

// read is the answer to a read leaving its node, with the rows that it has now.
func (o *op) read(n *node, err error) {
	w := o.c.w
	if err != nil {
		o.refused(n, err)
		return
	}
	rows, err := n.rows(o.group)
	if err != nil {
		w.history.find("node %s: %v", n.name, err)
		return
	}
	w.after(w.between(50*time.Microsecond, time.Millisecond), func() {
		if o.c.op != o {
			return // nobody waits for it
		}
		w.trace("read %d %v by %s: %v", o.group, o.keys, n.name, versions(o.keys, rows))
		w.report.Reads++
		if len(o.keys) > 1 {
			w.report.Scans++
		}
		w.history.read(o.group, o.floor, o.keys, rows)
		o.finish()
	})
}

// refused sends the request again soon, to another node.
func (o *op) refused(n *node, err error) {
	switch {
	case errors.Is(err, rafthost.ErrNotLeader), errors.Is(err, rafthost.ErrUnknown):
	case errors.Is(err, rafthost.ErrNoGroup) && o.c.w.o.Reshape:
	default:
		o.c.w.history.find("node %s refuses a request: %v", n.name, err)
		return
	}
	w := o.c.w
	o.doubt = o.doubt || errors.Is(err, rafthost.ErrUnknown)
	if errors.Is(err, rafthost.ErrNotLeader) && o.data != nil && o.tries == 1 && !o.doubt && o.c.op == o && w.chance(0.3) {
		// Nothing was done, so the client may leave it at that.
		w.history.refuse(o.group, o.command.ID)
		o.finish()
		return
	}
	try := o.tries
	w.after(w.between(time.Millisecond, 20*time.Millisecond), func() { o.retry(try) })
}

// finish ends the request if it is under way still, and lets the next one come.
func (o *op) finish() {
	if c := o.c; c.op == o {
		c.op = nil
		c.w.after(c.w.between(0, 20*time.Millisecond), c.next)
	}
}

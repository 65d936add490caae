package owner

import (
	"context"
	"time"

	"tidal/node/api"
	"tidal/node/internal/table"
)

// clockPause is how often a table's clock is moved at most for writes that find
// no room.
const clockPause = time.Second

// room refuses a new write while the table remembers as many answers as it may, or all
// tables of a node that has a replica of it do together. A write that was answered
// before is let through: it takes no room.
func (t *Tables) room(ctx context.Context, r *replica, req *api.Request) error {
	if t.full(r, req.Keyed) == nil || r.table.Load().Knows(req.ID) {
		return nil
	}
	if err := t.moveClock(ctx, r); err != nil {
		return t.refusal(r, err)
	}
	return t.full(r, req.Keyed)
}

// full returns why there is no room for another answer of a lifetime, or nil.
func (t *Tables) full(r *replica, keyed bool) error {
	switch {
	case r.table.Load().Full(keyed):
		return noRoom("table "+r.info.Name, keyed)
	case t.budget.Spent(keyed):
		return noRoom("node "+t.o.Node, keyed)
	case t.o.Spent == nil:
		return nil
	}
	if node := t.o.Spent(r.info.ID, keyed); node != "" {
		return noRoom("node "+node, keyed)
	}
	return nil
}

// Spent reports whether the tables here remember nearly as many answers of a lifetime
// together as they may: keyed, or made.
func (t *Tables) Spent(keyed bool) bool { return t.budget.Spent(keyed) }

// Remembered returns what the answers of a lifetime take in memory, in bytes.
func (t *Tables) Remembered(keyed bool) int64 { return t.budget.Bytes(keyed) }

// noRoom says that who remembers as many answers of a lifetime as it may.
func noRoom(who string, keyed bool) *api.Error { //nolint:revive // keyed is data, not a mode
	if keyed {
		return &api.Error{
			Code: api.CodeTooMany, Message: who + " remembers as many answers to an " + api.HeaderIdempotency + " as it may",
			Hint: "an answer is kept for " + table.KeepKeyed.String() + "; writes without the header go on", RetryAfter: 10 * time.Second,
		}
	}
	return &api.Error{
		Code: api.CodeTooMany, Message: who + " remembers as many answers as it may: more writes came in the last " +
			table.KeepMade.String() + " than it can take",
		RetryAfter: time.Second,
	}
}

// moveClock lets the table's time go on, now and then, while no entry does that:
// answers are forgotten by it, and if every write waits for that, none comes.
func (t *Tables) moveClock(ctx context.Context, r *replica) error {
	now := time.Now().UnixNano()
	last := r.ticked.Load()
	if now-last < int64(clockPause) || !r.ticked.CompareAndSwap(last, now) {
		return nil
	}
	_, err := t.o.Host.Propose(ctx, uint64(r.info.ID), [16]byte{}, nil)
	return err
}

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

// room refuses a new write while the table remembers as many answers as it may. A
// write that was answered before is let through: it takes no room.
func (t *Tables) room(ctx context.Context, r *replica, req *api.Request) error {
	m := r.table.Load()
	if !m.Full(req.Keyed) || m.Knows(req.ID) {
		return nil
	}
	if err := t.moveClock(ctx, r); err != nil {
		return t.refusal(r, err)
	}
	if !r.table.Load().Full(req.Keyed) {
		return nil
	}
	if req.Keyed {
		return &api.Error{
			Code: api.CodeTooMany, Message: "table " + r.info.Name + " remembers as many answers to an " + api.HeaderIdempotency + " as it may",
			Hint: "an answer is kept for " + table.KeepKeyed.String() + "; writes without the header go on", RetryAfter: 10 * time.Second,
		}
	}
	return &api.Error{
		Code: api.CodeTooMany, Message: "table " + r.info.Name + " remembers as many answers as it may: more writes came in the last " +
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

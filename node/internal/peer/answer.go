package peer

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// callee is the accepting side of a call connection.
type callee struct {
	*session
	handler  Handler
	log      *slog.Logger
	inFlight atomic.Int64
	work     chan wire.Call // to a goroutine that waits for a call
	spare    atomic.Int64   // such goroutines
	wg       sync.WaitGroup
}

// spareHands is how many goroutines of a connection wait for calls: one that has grown
// its stack is worth keeping.
const spareHands = 32

// receive takes a frame of the session and answers it in a goroutine of wg; ctx
// ends with the connection.
func (c *callee) receive(ctx context.Context, kind wire.FrameKind, payload []byte) error {
	if kind != wire.FrameCall {
		return unexpected(kind)
	}
	one, err := wire.DecodeCall(payload)
	if err != nil {
		return err
	}
	if c.inFlight.Load() >= maxCalls {
		busy := &api.Error{
			Code:       api.CodeTooMany,
			Message:    "too many calls of this node are being answered",
			RetryAfter: time.Second,
		}
		// If even that finds no room the connection is not being read.
		return c.queue.push(item{kind: wire.FrameReply, payload: wire.AppendReply(nil, wire.Reply{ID: one.ID, Err: busy})})
	}
	c.inFlight.Add(1)
	select {
	case c.work <- one:
	default:
		c.wg.Go(func() { c.answerAll(ctx, one) })
	}
	return nil
}

// answerAll answers a call, and then those that come while not too many goroutines wait
// for one.
func (c *callee) answerAll(ctx context.Context, one wire.Call) {
	for ok := true; ok; {
		if reply, answered := c.answer(ctx, one); answered {
			// It fails only with the connection, and then nobody waits for the reply.
			_ = c.send(ctx, item{kind: wire.FrameReply, payload: wire.AppendReply(nil, reply)})
		}
		c.inFlight.Add(-1)
		if c.spare.Add(1) > spareHands {
			ok = false
		} else {
			one, ok = <-c.work
		}
		c.spare.Add(-1)
	}
}

// end has the goroutines that wait for calls end, and awaits the others.
func (c *callee) end() {
	close(c.work)
	c.wg.Wait()
}

// answer has the handler answer a call within its deadline. It reports false if
// the handler gave up because the caller has: that is no answer, and the caller's
// own deadline, which came first, says better what happened.
func (c *callee) answer(ctx context.Context, one wire.Call) (wire.Reply, bool) {
	if one.Timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, one.Timeout)
		defer cancel()
		ctx = limited
	}
	payload, err := c.handler.Call(ctx, c.remote, one.Method, one.Payload)
	if err == nil {
		err = checkSize(payload)
	}
	if err == nil {
		return wire.Reply{ID: one.ID, Payload: payload}, true
	}
	var e *api.Error
	switch {
	case errors.As(err, &e):
	case ctx.Err() != nil:
		return wire.Reply{}, false
	default:
		c.log.ErrorContext(ctx, "answering a call failed",
			"peer", c.remote.Incarnation.Node, "method", int(one.Method), "error", err.Error())
		e = api.AsError(err)
	}
	return wire.Reply{ID: one.ID, Err: e}, true
}

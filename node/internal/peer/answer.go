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
	wg       sync.WaitGroup
}

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
	c.wg.Go(func() {
		defer c.inFlight.Add(-1)
		if reply, ok := c.answer(ctx, one); ok {
			// It fails only with the connection, and then nobody waits for the reply.
			_ = c.queue.wait(ctx, item{kind: wire.FrameReply, payload: wire.AppendReply(nil, reply)})
		}
	})
	return nil
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

package peer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/internal/wire"
)

// The life of a call: the writer takes it to sent, its caller to dropped.
const (
	callQueued = iota
	callSent
	callDropped
)

// call is one call that waits for its reply.
type call struct {
	state atomic.Int32
	done  chan outcome // capacity 1
}

type outcome struct {
	payload []byte
	err     error
}

// send reports whether the call is still to be sent; it counts as sent then.
func (c *call) send() bool { return c.state.CompareAndSwap(callQueued, callSent) }

// lost returns the error of a call that gets no reply. One that was not sent by
// now never will be.
func (c *call) lost(node string, cause error) error {
	kind := ErrBroken
	if c.state.CompareAndSwap(callQueued, callDropped) || c.state.Load() == callDropped {
		kind = ErrUnreachable
	}
	return fmt.Errorf("%w: node %s: %w", kind, node, cause)
}

// caller is the dialling side of a call connection.
type caller struct {
	*session
	calls struct {
		sync.Mutex
		last    uint64
		pending map[uint64]*call
		closed  bool
		leaving bool // the connection ends with its last call
	}
}

func newCaller(s *session) *caller {
	c := &caller{session: s}
	c.calls.pending = make(map[uint64]*call)
	return c
}

// do sends a call and waits for its reply.
func (c *caller) do(ctx context.Context, method wire.Method, payload []byte) ([]byte, error) {
	node := c.remote.Incarnation.Node
	one := &call{done: make(chan outcome, 1)}
	id, ok := c.add(one)
	if !ok {
		return nil, one.lost(node, c.cause())
	}
	defer c.remove(id)
	frame := appendCall(ctx, id, method, payload)
	if err := c.send(ctx, item{kind: wire.FrameCall, payload: frame, call: one}); err != nil {
		return nil, one.lost(node, err)
	}
	select {
	case o := <-one.done:
		return o.payload, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-one.done: // came at the same time
		return o.payload, o.err
	default:
		return nil, one.lost(node, ctx.Err())
	}
}

// appendCall returns the frame of a call whose timeout is what ctx has left.
func appendCall(ctx context.Context, id uint64, method wire.Method, payload []byte) []byte {
	one := wire.Call{ID: id, Method: method, Payload: payload}
	if deadline, ok := ctx.Deadline(); ok {
		one.Timeout = max(time.Until(deadline), 1)
	}
	return wire.AppendCall(make([]byte, 0, len(payload)+16), one)
}

func (c *caller) add(one *call) (uint64, bool) {
	c.calls.Lock()
	defer c.calls.Unlock()
	if c.calls.closed {
		return 0, false
	}
	c.calls.last++
	c.calls.pending[c.calls.last] = one
	return c.calls.last, true
}

func (c *caller) remove(id uint64) {
	c.calls.Lock()
	defer c.calls.Unlock()
	delete(c.calls.pending, id)
	c.leaveLocked()
}

// depart ends the connection once no call waits on it: another has taken its
// place.
func (c *caller) depart() {
	close(c.leave)
	c.calls.Lock()
	defer c.calls.Unlock()
	c.calls.leaving = true
	c.leaveLocked()
}

func (c *caller) leaveLocked() {
	if c.calls.leaving && len(c.calls.pending) == 0 && c.remote.Kind == wire.ConnCall {
		c.close(errRenewed)
	}
}

// receive takes a frame of the session.
func (c *caller) receive(kind wire.FrameKind, payload []byte) error {
	if kind != wire.FrameReply {
		return unexpected(kind)
	}
	reply, err := wire.DecodeReply(payload)
	if err != nil {
		return err
	}
	c.calls.Lock()
	one := c.calls.pending[reply.ID]
	delete(c.calls.pending, reply.ID)
	c.calls.Unlock()
	if one == nil {
		return nil // its caller has gone
	}
	o := outcome{payload: reply.Payload}
	if reply.Err != nil {
		o = outcome{err: reply.Err}
	}
	one.done <- o
	return nil
}

// fail ends every pending call. It is called when the session has ended.
func (c *caller) fail(cause error) {
	c.calls.Lock()
	defer c.calls.Unlock()
	c.calls.closed = true
	for id, one := range c.calls.pending {
		one.done <- outcome{err: one.lost(c.remote.Incarnation.Node, cause)}
		delete(c.calls.pending, id)
	}
}

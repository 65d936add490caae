package peer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

const (
	snapshotSilence = 60 * time.Second // without a part, or without one being taken
	snapshotPing    = time.Second      // how often the receiver says that it lives
	snapshotDead    = 10 * time.Second // without that word
)

var errExpired = errors.New("the other side's certificate expired")

// Inbound is a snapshot that a peer sends. Its methods are called by one
// goroutine.
type Inbound struct {
	s       *session
	silence time.Duration
	writing sync.Mutex // pings and what Ready and the end say
}

// Next returns the next part, which is the caller's. It fails when none comes for
// too long.
func (in *Inbound) Next() ([]byte, error) {
	if err := in.s.conn.SetReadDeadline(time.Now().Add(in.silence)); err != nil {
		return nil, err
	}
	kind, payload, err := wire.ReadFrame(in.s.br, wire.MaxFrame)
	if errors.Is(err, io.EOF) {
		return nil, errClosedByPeer
	}
	if err == nil && kind != wire.FrameSnapshot {
		return nil, unexpected(kind)
	}
	return payload, err
}

// Ready lets the sender go on after the first part.
func (in *Inbound) Ready() error { return in.write(wire.FramePong, nil) }

func (in *Inbound) write(kind wire.FrameKind, payload []byte) error {
	in.writing.Lock()
	defer in.writing.Unlock()
	return in.s.writeAll(wire.AppendFrame(nil, kind, payload))
}

// live says that this side lives until ctx ends, however long it waits or works.
func (in *Inbound) live(ctx context.Context) {
	t := time.NewTicker(snapshotPing)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			if err := in.write(wire.FramePing, nil); err != nil {
				in.s.close(err)
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// serveSnapshot has an inbound snapshot taken, and says how that ended.
func (t *Transport) serveSnapshot(ctx context.Context, s *session) error {
	if t.o.Snapshot == nil {
		return errors.New("this node takes no snapshots")
	}
	ctx, expire := s.valid(ctx)
	defer expire()
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(ctx, func() { s.close(context.Cause(ctx)) })
	in := &Inbound{s: s, silence: t.o.SnapshotSilence}
	var wg sync.WaitGroup
	wg.Go(func() { in.live(ctx) })
	wg.Go(func() { // it may be closed while its snapshot waits for its turn
		select {
		case <-s.done:
			cancel(s.cause())
		case <-ctx.Done():
		}
	})
	err := t.o.Snapshot(ctx, s.remote, in)
	stop()
	var verdict []byte
	if err != nil {
		verdict = wire.AppendError(nil, refuseSnapshot(err))
	}
	werr := in.write(wire.FrameVerdict, verdict)
	cancel(errClosed)
	wg.Wait()
	return errors.Join(err, werr, errClosed)
}

// refuseSnapshot says why a snapshot was not taken to the node that sent it.
func refuseSnapshot(err error) *api.Error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	return &api.Error{Code: api.CodeNotReady, Message: err.Error()}
}

// Ship carries a snapshot to a peer over a connection of its own: the parts that
// next returns, until io.EOF. After the first it waits for the peer's turn. It
// returns nil once the peer says that it took the snapshot. The error wraps
// ErrUnreachable if nothing was delivered, and is an *api.Error if the peer
// refused.
func (t *Transport) Ship(ctx context.Context, to string, next func() ([]byte, error)) error {
	ls := t.peer(to)
	if ls == nil {
		return fmt.Errorf("%w: no address is known for node %s", ErrUnreachable, to)
	}
	s, err := t.dial(ctx, ls.call.where(), to, wire.ConnSnapshot)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	ctx, expire := s.valid(ctx)
	defer expire()
	stop := context.AfterFunc(ctx, func() { s.close(context.Cause(ctx)) })
	defer stop()
	out := &outbound{s: s, silence: t.o.SnapshotSilence, turn: make(chan struct{}), end: make(chan error, 1)}
	var wg sync.WaitGroup
	wg.Go(out.listen)
	err = out.send(next)
	s.close(errClosed)
	wg.Wait()
	return err
}

// valid returns a context that ends when the remote's certificate expires.
func (s *session) valid(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.expires.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, s.expires, errExpired)
}

// outbound is a snapshot that is being sent.
type outbound struct {
	s       *session
	silence time.Duration
	turn    chan struct{} // closed when the peer wants the rest
	end     chan error    // capacity 1: how it ended
}

// send sends all parts and waits for the end.
func (o *outbound) send(next func() ([]byte, error)) error {
	for first := true; ; first = false {
		part, err := next()
		if errors.Is(err, io.EOF) {
			return <-o.end
		}
		if err != nil {
			return err
		}
		if err := o.write(wire.AppendFrame(nil, wire.FrameSnapshot, part)); err != nil {
			select {
			case end := <-o.end: // why it closed says more
				return end
			case <-time.After(time.Second):
				return err
			}
		}
		if !first {
			continue
		}
		select {
		case <-o.turn:
		case end := <-o.end:
			return end
		}
	}
}

// write writes a part, in pieces, for as long as the peer takes any of it.
func (o *outbound) write(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), writeChunk)
		if err := o.s.conn.SetWriteDeadline(time.Now().Add(o.silence)); err != nil {
			return err
		}
		if _, err := o.s.conn.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// listen hears what the peer says until it says how it ended, or breaks off.
func (o *outbound) listen() {
	err := o.hear()
	o.s.close(errClosed)
	o.end <- err
}

func (o *outbound) hear() error {
	for turned := false; ; {
		if err := o.s.conn.SetReadDeadline(time.Now().Add(snapshotDead)); err != nil {
			return err
		}
		kind, payload, err := wire.ReadFrame(o.s.br, wire.MaxVerdict)
		switch {
		case errors.Is(err, io.EOF):
			return errClosedByPeer
		case err != nil:
			return err
		case kind == wire.FramePing:
		case kind == wire.FramePong && !turned:
			turned = true
			close(o.turn)
		case kind == wire.FrameVerdict && len(payload) == 0:
			return nil
		case kind == wire.FrameVerdict:
			refusal, err := wire.DecodeError(payload)
			if err != nil {
				return err
			}
			return refusal
		default:
			return unexpected(kind)
		}
	}
}

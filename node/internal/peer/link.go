package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

const (
	firstPause = 5 * time.Millisecond // between attempts to dial
	maxPause   = time.Second
	growth     = 3
	steady     = time.Second           // a connection that stood so long was good
	fresh      = 50 * time.Millisecond // an attempt that failed so recently answers a call
)

// link keeps one outbound connection to a peer.
type link struct {
	t     *Transport
	node  string
	kind  wire.ConnKind
	kick  chan struct{} // capacity 1: dial now
	nudge chan struct{} // capacity 1: send a heartbeat now
	along chan struct{} // capacity 1: send a heartbeat if the next is due soon
	renew chan struct{} // capacity 1: put another connection in the place of the one that stands
	mu    struct {
		sync.Mutex
		address string
		newest  api.Incarnation // that said hello, on any connection
		cur     *caller
		cancel  context.CancelCauseFunc // of run; nil before start
		failed  error                   // why the last attempt did, nil after a good one
		when    time.Time               // it failed
		settled chan struct{}           // closed when the attempt that is next or under way ends
		retired error                   // why there will be no more attempts
	}
}

func newLink(t *Transport, node string, kind wire.ConnKind, address string) *link {
	l := &link{
		t: t, node: node, kind: kind, kick: make(chan struct{}, 1), renew: make(chan struct{}, 1),
		nudge: make(chan struct{}, 1), along: make(chan struct{}, 1),
	}
	l.mu.address = address
	l.mu.settled = make(chan struct{})
	return l
}

// start returns what to run, or nil if it runs already.
func (l *link) start(parent context.Context) func() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.cancel != nil || l.mu.retired != nil {
		return nil
	}
	// It ends by retire alone, so that pending calls do not show a cancellation
	// that is not their caller's.
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(parent))
	l.mu.cancel = cancel
	return func() {
		defer cancel(nil)
		l.run(ctx)
	}
}

// retire ends the link for good.
func (l *link) retire(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.retired != nil {
		return
	}
	l.mu.retired = why
	if l.mu.cancel != nil {
		l.mu.cancel(why)
	}
	l.settleLocked(why)
}

// move changes the address to dial.
func (l *link) move(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.address == address {
		return
	}
	l.mu.address = address
	if l.mu.cur != nil {
		l.mu.cur.close(errMoved)
	}
	notify(l.kick)
}

// where returns the address to dial.
func (l *link) where() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.address
}

// seen says that an incarnation of the peer said hello, so it lives and answers.
func (l *link) seen(inc api.Incarnation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.newest = inc
	if l.mu.cur != nil {
		if l.mu.cur.remote.Incarnation == inc {
			return
		}
		l.mu.cur.close(errOlder)
	}
	notify(l.kick)
}

// current returns the connection, or nil.
func (l *link) current() *caller {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.cur
}

// trouble returns why the last attempt to connect failed; nil while there is a
// connection.
func (l *link) trouble() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.cur != nil {
		return nil
	}
	return l.mu.failed
}

// ready returns the connection, and waits for one attempt to dial if there is
// none, unless one failed a moment ago.
func (l *link) ready(ctx context.Context) (*caller, error) {
	l.mu.Lock()
	cur, failed, settled := l.mu.cur, l.mu.failed, l.mu.settled
	recent := failed != nil && time.Since(l.mu.when) < fresh
	gone := l.mu.retired
	l.mu.Unlock()
	switch {
	case cur != nil:
		return cur, nil
	case gone != nil:
		return nil, gone
	case recent:
		return nil, failed
	}
	notify(l.kick)
	select {
	case <-settled:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.mu.cur != nil:
		return l.mu.cur, nil
	case l.mu.failed != nil:
		return nil, l.mu.failed
	}
	return nil, errClosedByPeer // it stood, and broke in the meantime
}

// settleLocked tells those who wait that an attempt failed.
func (l *link) settleLocked(err error) {
	l.mu.failed, l.mu.when = err, time.Now()
	close(l.mu.settled)
	l.mu.settled = make(chan struct{})
}

// run dials, serves the connection, and dials again, until ctx ends.
func (l *link) run(ctx context.Context) {
	var (
		lost  *loss
		pause time.Duration // after an attempt that failed
		brief time.Duration // after a connection that did not stand long, but for the first
		said  string

		departing sync.WaitGroup // connections that were replaced
	)
	defer departing.Wait()
	for ctx.Err() == nil {
		c, err := l.dial(ctx)
		l.mourn(ctx, lost, err)
		if err != nil {
			if kind := wordsOf(err); kind != said && ctx.Err() == nil {
				said = kind
				l.t.o.Log.WarnContext(ctx, "cannot connect to peer", "peer", l.node, "connection", l.kind.String(), "error", err.Error())
			}
			pause = l.rest(ctx, pause)
			continue
		}
		said, pause = "", 0
		since := time.Now()
		c, err = l.keep(ctx, c, &departing)
		lost = &loss{inc: c.remote.Incarnation, err: err}
		switch {
		case time.Since(since) >= steady:
			brief = 0
		case brief == 0:
			brief = firstPause
		default:
			brief = l.rest(ctx, brief)
		}
	}
	// A peer that was removed is gone; when this node stops nobody listens.
	if l.kind == wire.ConnRaft && lost != nil && !lost.told && errors.Is(context.Cause(ctx), errRemoved) {
		l.t.o.Handler.Down(l.node, lost.inc, errRemoved)
	}
}

// wordsOf returns an error's text without its digits: the same failure of
// another attempt differs in the port that it came from.
func wordsOf(err error) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, err.Error())
}

// dial makes one attempt and settles it.
func (l *link) dial(ctx context.Context) (*caller, error) {
	l.mu.Lock()
	address := l.mu.address
	l.mu.Unlock()
	s, err := l.t.dial(ctx, address, l.node, l.kind)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		switch {
		case l.mu.retired != nil:
			err = l.mu.retired
		case l.mu.address != address:
			err = errMoved
		case s.stranger:
			err = errStranger
		case l.mu.newest != s.remote.Incarnation:
			err = errOlder
		}
		if err != nil {
			s.close(err)
		}
	}
	if err != nil {
		l.settleLocked(err)
		return nil, err
	}
	l.mu.cur = newCaller(s)
	l.settleLocked(nil)
	select {
	case <-l.kick: // asked for what now stands
	default:
	}
	return l.mu.cur, nil
}

// serve runs a connection until it ends, and returns why.
func (l *link) serve(ctx context.Context, c *caller) error {
	level := slog.LevelDebug // calls come and go with the raft connection
	if l.kind == wire.ConnRaft {
		level = slog.LevelInfo
	}
	l.t.o.Log.Log(ctx, level, "connected to peer",
		"peer", l.node, "connection", l.kind.String(), "peer_incarnation", c.remote.Incarnation.String())
	p := pace{silence: dialSilence, pings: true}
	read := c.receive
	if l.kind == wire.ConnRaft {
		l.t.o.Handler.Up(c.remote)
		p.beat, p.every, p.nudge, p.along, p.went = l.beat(), l.t.o.Interval, l.nudge, l.along, l.t.along
		read = func(kind wire.FrameKind, _ []byte) error { return unexpected(kind) }
	}
	ends := l.t.stands(c.session)
	err := c.run(ctx, p, read)
	ends()
	l.mu.Lock()
	if l.mu.cur == c {
		l.mu.cur = nil
	}
	l.mu.Unlock()
	c.fail(err)
	if ctx.Err() == nil && !errors.Is(err, errRenewed) {
		l.t.o.Log.InfoContext(ctx, "connection to peer ended",
			"peer", l.node, "connection", l.kind.String(), "peer_incarnation", c.remote.Incarnation.String(), "error", err.Error())
	}
	return err
}

// beat returns what makes the heartbeats of one connection.
func (l *link) beat() func() []byte {
	full := true
	var seq uint64
	return func() []byte {
		hb := l.t.o.Beat(l.node, full)
		if hb == nil {
			return nil
		}
		full = false
		seq++
		hb.Seq = seq
		return wire.AppendHeartbeat(nil, hb)
	}
}

// loss is a connection that ended.
type loss struct {
	inc     api.Incarnation
	err     error
	told    bool
	refused bool
}

// mourn tells the handler of a lost raft connection, knowing how an attempt to
// dial again went.
func (l *link) mourn(ctx context.Context, lost *loss, redial error) {
	if l.kind != wire.ConnRaft || lost == nil || ctx.Err() != nil {
		return
	}
	refused := errors.Is(redial, ErrRefused)
	if lost.told && (lost.refused || !refused) {
		return
	}
	lost.told, lost.refused = true, refused || redial == nil
	why := lost.err
	if redial != nil {
		why = fmt.Errorf("%w; dialled again: %w", lost.err, redial)
	}
	l.t.o.Handler.Down(l.node, lost.inc, why)
}

// rest waits before the next attempt, or until it is asked for, and returns how
// long to wait the next time.
func (l *link) rest(ctx context.Context, pause time.Duration) time.Duration {
	pause = max(pause, firstPause)
	half := pause / 2
	timer := time.NewTimer(half + rand.N(half)) //nolint:gosec // spreads attempts, hides nothing
	defer timer.Stop()
	select {
	case <-timer.C:
		return min(growth*pause, maxPause)
	case <-l.kick:
		return 0
	case <-ctx.Done():
		return 0
	}
}

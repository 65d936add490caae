package peer

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"sync"
	"time"

	"tidal/node/internal/wire"
)

const (
	departMost = 15 * time.Second // that the calls on a connection which was replaced may take
	renewPause = time.Second      // between attempts to replace one
)

// Renew has every connection replaced by one whose handshake is made now, since a
// certificate of this node or its trust changed. Those that this node dialled it
// dials again before it lets the old ones go; who dialled the others is asked to
// do the same. A snapshot under way keeps its connection.
func (t *Transport) Renew() { t.RenewIf(func(Conn) bool { return true }) }

// RenewIf is Renew for the connections of which the function says so. One whose
// handshake is under way is not among them: look again.
func (t *Transport) RenewIf(so func(Conn) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, ls := range t.mu.links {
		for _, l := range []*link{ls.raft, ls.call} {
			if c := l.current(); c != nil && so(connOf(c.session)) {
				notify(l.renew)
			}
		}
	}
	for s, node := range t.mu.accepted {
		if node == "" {
			continue // its hello may be on the way
		}
		asked := s.remote.Kind == wire.ConnRaft || s.remote.Kind == wire.ConnCall
		if asked && so(connOf(s)) {
			// A queue that is full is looked at again, too.
			_ = s.queue.push(item{kind: wire.FrameRenew})
		}
	}
}

// Conn is a connection between nodes, as Conns lists it.
type Conn struct {
	Node string               // at the other end
	Own  *x509.Certificate    // that this side showed; nil if it is not known
	Peer *tls.ConnectionState // nil in plaintext
}

func connOf(s *session) Conn { return Conn{Node: s.remote.Incarnation.Node, Own: s.own, Peer: s.state} }

// Conns lists the connections that stand. In plaintext there is nothing to say of
// them.
func (t *Transport) Conns() []Conn {
	var out []Conn
	for _, s := range t.sessions(func(node string) bool { return node != "" }) {
		if s.state != nil {
			out = append(out, connOf(s))
		}
	}
	return out
}

// CloseIf closes every connection whose TLS state the function finds fault with,
// also one that was accepted and whose handshake is under way, or that of a node
// that is no member yet. One that this node dials stands before it is looked at:
// look again.
func (t *Transport) CloseIf(fault func(*tls.ConnectionState) error) {
	for _, s := range t.sessions(func(string) bool { return true }) {
		if s.state == nil {
			continue
		}
		if err := fault(s.state); err != nil {
			s.close(err)
		}
	}
}

// sessions returns the connections that this node dialled, and of the accepted
// those of nodes of which the function says so; "" is one that is not known yet.
func (t *Transport) sessions(of func(node string) bool) []*session {
	t.mu.Lock()
	defer t.mu.Unlock()
	var all []*session
	for s, node := range t.mu.accepted {
		if of(node) {
			all = append(all, s)
		}
	}
	for s := range t.mu.dialled {
		all = append(all, s)
	}
	return all
}

// stands notes a connection that this node dialled, until the returned function
// is called.
func (t *Transport) stands(s *session) (ends func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.dialled[s] = struct{}{}
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.mu.dialled, s)
	}
}

// keep runs a connection, and those that take its place when a certificate
// changes, until one ends of itself. It returns that one, and why it ended. Those
// that depart may go on: their calls are awaited, and nobody waits for them to
// dial again.
func (l *link) keep(ctx context.Context, c *caller, departing *sync.WaitGroup) (*caller, error) {
	for {
		ended, over := make(chan error, 1), make(chan struct{})
		run := c
		run.renew = func() { notify(l.renew) }
		departing.Go(func() {
			defer close(over)
			ended <- l.serve(ctx, run)
		})
		next, err := l.successor(ctx, c, ended)
		if next == nil {
			return c, err
		}
		timer := time.AfterFunc(departMost, func() { run.close(errRenewed) })
		departing.Go(func() {
			<-run.done
			timer.Stop()
		})
		c.depart()
		if l.kind == wire.ConnRaft {
			<-over // one tells the peer how things are, not two
		}
		c = next
	}
}

// successor waits until the connection ends, or is to be replaced and another
// stands. If it ends there is none.
func (l *link) successor(ctx context.Context, c *caller, ended <-chan error) (*caller, error) {
	for {
		select {
		case err := <-ended:
			return nil, err
		case <-l.renew:
		}
		next, err := l.dialNext(ctx, c)
		if err == nil {
			return next, nil
		}
		if ctx.Err() == nil && c.cause() == nil {
			l.t.o.Log.WarnContext(ctx, "cannot connect anew to peer, so the connection stays",
				"peer", l.node, "connection", l.kind.String(), "error", err.Error())
		}
		timer := time.NewTimer(renewPause)
		select {
		case err := <-ended:
			timer.Stop()
			return nil, err
		case <-timer.C:
			notify(l.renew)
		}
	}
}

var errReplaced = errors.New("it is another incarnation by now")

// dialNext makes a connection that takes another's place.
func (l *link) dialNext(ctx context.Context, c *caller) (*caller, error) {
	s, err := l.t.dial(ctx, l.where(), l.node, l.kind)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.mu.retired != nil:
		err = l.mu.retired
	case s.stranger:
		err = errStranger
	case l.mu.newest != s.remote.Incarnation || c.remote.Incarnation != s.remote.Incarnation:
		err = errReplaced
	case l.mu.cur != c:
		err = errClosedByPeer // it broke meanwhile, and is dialled in the usual way
	}
	if err != nil {
		s.close(err)
		return nil, err
	}
	l.mu.cur = newCaller(s)
	select {
	case <-l.renew: // asked for what now stands
	default:
	}
	return l.mu.cur, nil
}

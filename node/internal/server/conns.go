package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"sync"
	"time"
)

// oldSilence is how long a connection from before a change of certificates must
// have been silent to be closed. One that speaks is closed after its answer; and a
// client that reaches for a connection just as it is closed would see an error.
const oldSilence = 15 * time.Second

// oldAnswer is how long one answer may go on over a connection that is to end: a
// stream would go on for ever, and its client comes again.
const oldAnswer = time.Minute

// shakeMost is how long the handshake of a connection may take before the connection counts
// for nothing: until then its client is about to ask, though it has said nothing yet.
const shakeMost = 3 * time.Second

// conns is the connections of the http.Server, and the streams and lanes that some of them
// have become. Those of peers are theirs.
type conns struct {
	mu      sync.Mutex
	open    map[net.Conn]*conn
	thinned time.Time      // since when each answer was the last of a connection from before; zero: at no time
	drained time.Time      // since when each answer is the last of its connection
	streams sync.WaitGroup // and lanes
	ended   bool           // no connection becomes one any more
}

// conn is one of them.
type conn struct {
	active bool // a request is under way
	asked  bool // it has made a request
	came   time.Time
	shakes bool                 // its handshake goes on
	old    bool                 // its handshake was made with certificates that changed
	spoke  time.Time            // when a request last began or ended, or the handshake did
	tls    *tls.ConnectionState // nil until it has spoken, and in plaintext
	stream *stream              // what it has become; nil: it speaks HTTP
	lane   *lane                // that serves it; nil: net/http does
	plain  bool                 // it was a lane, and is none any more
	since  time.Time            // it is old, or its certificate has ended, as far as noticed
}

// busy reports whether a request is under way, and since when or until when it spoke.
func (c *conn) busy() (active bool, spoke time.Time) {
	if st := c.stream; st != nil {
		return st.inFlight.Load() > 0, st.s.since.Add(time.Duration(st.spoke.Load()))
	}
	return c.active, c.spoke
}

// expired reports whether the certificate that the client showed has ended.
func (c *conn) expired(now time.Time) bool {
	end := expiry(c.tls)
	return !end.IsZero() && now.After(end)
}

// expiry is when the first of the certificates that the client has shown ends; zero:
// never.
func expiry(cs *tls.ConnectionState) (end time.Time) {
	if cs == nil {
		return end
	}
	for _, c := range cs.PeerCertificates {
		if end.IsZero() || c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	return end
}

type connKey struct{}

// connContext has the requests of a connection find it.
func connContext(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, c)
}

// track implements http.Server.ConnState.
func (c *conns) track(nc net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	switch state {
	case http.StateHijacked, http.StateClosed:
		if one := c.open[nc]; one == nil || one.lane == nil {
			delete(c.open, nc)
		}
		return
	default:
	}
	one := c.open[nc]
	if one != nil && one.plain && state == http.StateNew {
		return // its request is there already
	}
	if one == nil {
		_, secure := nc.(*tls.Conn)
		one = &conn{came: now, shakes: secure}
		c.open[nc] = one
	}
	one.active, one.spoke = state == http.StateActive, now
	one.asked = one.asked || one.active
	if t, ok := nc.(*tls.Conn); ok && one.active && one.tls == nil {
		cs := t.ConnectionState() // the handshake is over
		one.tls, one.shakes = &cs, false
	}
}

// Shaken is told that the handshake of a connection over TLS has ended, however that did.
func (s *Server) Shaken(nc net.Conn) {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	if one := s.conns.open[nc]; one != nil && one.shakes {
		one.shakes, one.spoke = false, time.Now()
	}
}

// arriving reports whether the first request of a connection may be on its way: it has
// made none, and its handshake goes on, or the connection was there, or its handshake
// over, less than that silence ago.
func (c *conn) arriving(silence time.Duration) bool {
	switch {
	case c.asked:
		return false
	case c.shakes:
		return time.Since(c.came) < shakeMost
	case c.spoke.After(c.came):
		return time.Since(c.spoke) < silence
	}
	return time.Since(c.came) < silence
}

// ending reports whether a connection's next answer is to be its last, whether that is
// because the client's certificate has ended, and whether the connection may outlive
// its answers while others are thinned out.
func (c *conns) ending(nc net.Conn, now time.Time) (last, expired, stays bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.open[nc]
	if one == nil {
		return false, false, false
	}
	expired = one.expired(now)
	return one.old || expired, expired, !c.thinned.IsZero() && c.drained.IsZero() && one.came.After(c.thinned)
}

// adopt goes on with a connection that has become a stream; false: it is to end.
func (c *conns) adopt(nc net.Conn, st *stream, cs *tls.ConnectionState) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return false
	}
	c.streams.Add(1)
	c.open[nc] = &conn{came: time.Now(), tls: cs, stream: st}
	return true
}

// enlane has a connection be a lane from now on, and returns its entry; nil: it may not.
func (c *conns) enlane(nc net.Conn, l *lane) *conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.open[nc]
	if one == nil || one.plain || c.ended {
		return nil
	}
	c.streams.Add(1)
	one.lane = l
	return one
}

// unlane has what is left of a lane be a connection of net/http.
func (c *conns) unlane(nc, left net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.open[nc]
	delete(c.open, nc)
	one.lane, one.plain, one.active = nil, true, true
	c.open[left] = one
}

// outlane forgets a lane that has ended.
func (c *conns) outlane(nc net.Conn, l *lane) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if one := c.open[nc]; one != nil && one.lane == l {
		delete(c.open, nc)
	}
	c.streams.Done()
}

// speaks notes that a request on a lane begins, or has ended, now.
func (c *conns) speaks(one *conn, begins bool) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	one.active, one.spoke = begins, now
	return now
}

// gone forgets a stream.
func (c *conns) gone(nc net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, nc)
	c.streams.Done()
}

// leave asks the clients of all streams to come anew.
func (c *conns) leave() { c.leaveIf(func(*conn) bool { return true }) }

// leaveIf asks the clients of those streams to come anew of which the function says so,
// and waits for none of them.
func (c *conns) leaveIf(so func(*conn) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.open {
		if one.stream != nil && so(one) {
			c.streams.Go(one.stream.leave)
		}
	}
}

// EndStreams ends the streams and lanes, each once what has come on it is answered; when
// ctx ends, without. It returns when nothing of them is under way. There will be no more
// of them.
func (s *Server) EndStreams(ctx context.Context) {
	s.conns.mu.Lock()
	s.conns.ended = true
	var all []*stream
	var lanes []*lane
	for _, one := range s.conns.open {
		if one.stream != nil {
			all = append(all, one.stream)
		}
		if one.lane != nil {
			lanes = append(lanes, one.lane)
		}
	}
	s.conns.mu.Unlock()
	for _, st := range all {
		st.end()
	}
	for _, l := range lanes {
		l.end()
	}
	stop := context.AfterFunc(ctx, func() {
		for _, st := range all {
			st.cancel(errNodeEnds)
		}
		for _, l := range lanes {
			l.cancel(errNodeEnds)
		}
	})
	defer stop()
	s.conns.streams.Wait()
}

// Recycle makes the next answer of every connection there is its last, since a
// certificate of this node or its trust changed. Tidy closes those that stay
// silent.
func (s *Server) Recycle() { s.recycleIf(func(net.Conn, *conn) bool { return true }) }

// RecycleIf is Recycle for the connections over TLS of which the function says so.
func (s *Server) RecycleIf(so func(Conn) bool) {
	s.recycleIf(func(nc net.Conn, one *conn) bool { return one.tls != nil && so(connOf(nc, one)) })
}

func (s *Server) recycleIf(so func(net.Conn, *conn) bool) {
	s.conns.mu.Lock()
	for nc, one := range s.conns.open {
		if !one.old && so(nc, one) {
			one.old, one.since = true, time.Now()
		}
	}
	s.conns.mu.Unlock()
	s.conns.leaveIf(func(one *conn) bool { return one.old })
}

// Tidy closes the connections whose client's certificate has ended, or which are
// older than a change of certificates and have been silent for a while. A request
// that is under way is answered first, unless its answer is a stream.
func (s *Server) Tidy(now time.Time) {
	for _, nc := range s.those(func(one *conn) bool {
		expired := one.expired(now)
		active, spoke := one.busy()
		if (expired || one.old) && one.since.IsZero() {
			one.since = now
		}
		if active {
			if one.stream != nil { // one call may follow another for ever
				spoke = one.since
			}
			return (expired || one.old) && now.Sub(spoke) >= oldAnswer
		}
		return expired || one.old && now.Sub(spoke) >= oldSilence
	}) {
		_ = nc.Close() // it may be closed already
	}
}

// CloseIf closes every connection whose TLS state the function finds fault with,
// whatever is under way on it.
func (s *Server) CloseIf(fault func(*tls.ConnectionState) error) {
	for _, nc := range s.those(func(one *conn) bool { return one.tls != nil && fault(one.tls) != nil }) {
		// Without an alert, which TLS writes for up to 5 s to a client that reads
		// nothing: so many, one after another, would hold up the caller for minutes.
		_ = bare(nc).Close() // it may be closed already
	}
}

// those returns the connections of which the function says so.
func (s *Server) those(so func(*conn) bool) []net.Conn {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	var out []net.Conn
	for nc, one := range s.conns.open {
		if so(one) {
			out = append(out, nc)
		}
	}
	return out
}

// Conn is a connection of a client, as Conns lists it.
type Conn struct {
	Own  *x509.Certificate // that it was served with; nil if it is not known
	Peer *tls.ConnectionState
}

// Conns lists the connections of clients that have made a request over TLS.
func (s *Server) Conns() []Conn {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	var out []Conn
	for nc, one := range s.conns.open {
		if one.tls != nil {
			out = append(out, connOf(nc, one))
		}
	}
	return out
}

func connOf(nc net.Conn, one *conn) Conn {
	c := Conn{Peer: one.tls}
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok { // a tls.Conn, or a givenTLS
		if served, ok := t.NetConn().(interface{ Served() *x509.Certificate }); ok {
			c.Own = served.Served()
		}
	}
	return c
}

// Settled reports whether the connections from before the last call of Thin or
// Draining are gone, or have been silent for so long; see Quiet.
func (s *Server) Settled(silence time.Duration) bool {
	return s.silent(silence, func(one *conn) bool {
		return one.came.After(s.conns.thinned) && (s.conns.drained.IsZero() || one.came.After(s.conns.drained))
	})
}

// Quiet reports whether the server may be closed without cutting anybody short:
// no request is under way, and each connection has been silent for so long, and
// since the first call of Thin or Draining that meant it. Its own silence alone would
// prove nothing: when the neighbours of a connection close, clients reach for just
// those that they have not used in a while.
func (s *Server) Quiet(silence time.Duration) bool {
	return s.silent(silence, func(*conn) bool { return false })
}

// Idle reports whether no request is under way, and each connection that has not
// made one yet has been there for so long, with its handshake over.
func (s *Server) Idle(silence time.Duration) bool {
	return len(s.those(func(one *conn) bool { return one.active || one.arriving(silence) })) == 0
}

// silent is Quiet, but for connections that do not count.
func (s *Server) silent(silence time.Duration, except func(*conn) bool) bool {
	c := &s.conns
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.open {
		if except(one) {
			continue
		}
		meant := c.drained
		if !c.thinned.IsZero() && !one.came.After(c.thinned) {
			meant = c.thinned
		}
		active, spoke := one.busy()
		if active || one.arriving(silence) || time.Since(spoke) < silence || time.Since(meant) < silence {
			return false
		}
	}
	return true
}

// Connections returns how many connections there are, peers' not counted.
func (s *Server) Connections() int {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	return len(s.conns.open)
}

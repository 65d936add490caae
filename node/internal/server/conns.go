package server

import (
	"net"
	"net/http"
	"sync"
	"time"
)

// conns is the connections of the http.Server, but for those that a handler took
// over: peers' are theirs.
type conns struct {
	mu     sync.Mutex
	active map[net.Conn]bool // open ones, and whether a request is under way
	last   time.Time         // when any of them last spoke, or came
}

// track implements http.Server.ConnState.
func (c *conns) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.active == nil {
		c.active = map[net.Conn]bool{}
	}
	c.last = time.Now()
	switch state {
	case http.StateHijacked, http.StateClosed:
		delete(c.active, conn)
	default:
		c.active[conn] = state == http.StateActive
	}
}

// Quiet reports whether the server may be closed without cutting anybody short:
// no connection is open, or no request is under way and none has spoken for so
// long, nor since Draining. How long a single connection has been silent proves
// nothing: when its neighbours close, clients reach for just those that they have
// not used in a while.
func (s *Server) Quiet(silence time.Duration) bool {
	c := &s.conns
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, active := range c.active {
		if active {
			return false
		}
	}
	return len(c.active) == 0 || time.Since(c.last) >= silence
}

// Connections returns how many connections there are, peers' not counted.
func (s *Server) Connections() int {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	return len(s.conns.active)
}

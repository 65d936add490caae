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
	mu   sync.Mutex
	open map[net.Conn]spoken
}

// spoken says when a connection last spoke.
type spoken struct {
	active bool // a request is under way
	at     time.Time
}

// track implements http.Server.ConnState.
func (c *conns) track(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[net.Conn]spoken{}
	}
	switch state {
	case http.StateHijacked, http.StateClosed:
		delete(c.open, conn)
	default:
		c.open[conn] = spoken{active: state == http.StateActive, at: time.Now()}
	}
}

// Quiet reports whether the server may be closed without cutting anybody short:
// no request is under way on any connection, and none has spoken for so long. A
// connection that was just accepted counts as one that spoke.
func (s *Server) Quiet(silence time.Duration) bool {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	for _, c := range s.conns.open {
		if c.active || time.Since(c.at) < silence {
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

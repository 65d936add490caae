package cluster

import (
	"sync"
	"sync/atomic"
)

// said is what other nodes say of themselves, of those that have something to say:
// mostly there is none, and it costs nothing to ask.
type said[T any] struct {
	any atomic.Bool // there is one
	mu  struct {
		sync.Mutex
		nodes map[string]T
	}
}

// heard takes what a node says of itself, or that it has nothing to say.
func (s *said[T]) heard(node string, x T, nothing bool) { //nolint:revive // the flag is the news
	if nothing && !s.any.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.nodes == nil {
		s.mu.nodes = map[string]T{}
	}
	if s.mu.nodes[node] = x; nothing {
		delete(s.mu.nodes, node)
	}
	s.any.Store(len(s.mu.nodes) > 0)
}

// of returns what a node says of itself.
func (s *said[T]) of(node string) T {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.nodes[node]
}

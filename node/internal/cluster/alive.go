package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// Default times of the look at who is alive.
const (
	suspectAfter = 300 * time.Millisecond // a node that says nothing for so long is dead
	stallAfter   = time.Second            // one whose loop stands still for so long, too
	looks        = 6                      // how often a node looks within suspectAfter, once one may be dead at the next
)

// Why a node counts as dead.
var (
	errSilent   = errors.New("it says nothing")
	errStalled  = errors.New("its loop stands still")
	errRefusing = errors.New("its connections broke, and nothing listens there")
	errReborn   = errors.New("it has started anew")
)

// mourner is who gets told of lives and deaths: the host, in their order.
type mourner interface {
	Alive(node string, start uint64)
	Dead(node string)
}

// pulses is which other nodes live, as far as this one can tell. A death is no
// proof of anything: who is wrong about one costs an election at most.
type pulses struct {
	suspect, stall time.Duration
	host           mourner
	mu             struct {
		sync.Mutex
		of map[string]*pulse
	}
}

// pulse is another node's life.
type pulse struct {
	inc     api.Incarnation
	silent  time.Duration // since a byte of it came
	heard   time.Time     // when the last one did that was counted
	stalled time.Duration // how long its loop stood still when it last said so
	refused bool          // nothing listened there: it must say hello again
	hears   []string      // whom it hears
	life    *life
}

func (p *pulse) dead() bool { return p.life.over() != nil }

// life is a node's, from when it is heard to when it is not any more. What waits for
// the node waits as long.
type life struct {
	mu struct {
		sync.Mutex
		why   error // it is over; nil: it lasts
		last  uint64
		waits map[uint64]context.CancelCauseFunc
	}
}

func newLife() *life {
	l := &life{}
	l.mu.waits = map[uint64]context.CancelCauseFunc{}
	return l
}

// over returns why the life is over, nil while it lasts.
func (l *life) over() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.why
}

// end ends the life, and what waits for it.
func (l *life) end(why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.why != nil {
		return
	}
	l.mu.why = why
	for _, cancel := range l.mu.waits {
		cancel(why)
	}
	l.mu.waits = nil
}

// wait has cancel called when the life ends, until leave is called; why it is over if
// it is.
func (l *life) wait(cancel context.CancelCauseFunc) (leave func(), why error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.why != nil {
		return nil, l.mu.why
	}
	l.mu.last++
	n := l.mu.last
	l.mu.waits[n] = cancel
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.mu.waits, n)
	}, nil
}

// hello takes word that an incarnation said hello. A later one is the death of those
// before, even if nobody missed them.
func (s *pulses) hello(inc api.Incarnation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.mu.of[inc.Node]
	switch {
	case p != nil && inc.Start < p.inc.Start:
		return
	case p != nil && inc == p.inc:
		p.silent, p.refused = 0, false
		s.settleLocked(p)
		return
	case p != nil:
		p.life.end(errReborn)
	}
	p = &pulse{inc: inc, life: newLife()}
	s.mu.of[inc.Node] = p
	s.host.Alive(inc.Node, inc.Start)
}

// replaced forgets a node that has another disk: its starts are counted anew.
func (s *pulses) replaced(node string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.mu.of[node]; p != nil {
		p.life.end(errReborn)
		delete(s.mu.of, node)
	}
}

// beat takes a heartbeat.
func (s *pulses) beat(inc api.Incarnation, hb *wire.Heartbeat) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.mu.of[inc.Node]
	if p == nil || p.inc != inc {
		return false
	}
	p.silent, p.stalled, p.hears = 0, hb.Age, hb.Hears
	return s.settleLocked(p)
}

// refuse takes word that the connections to an incarnation broke and that nothing
// listens where it was.
func (s *pulses) refuse(inc api.Incarnation) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.mu.of[inc.Node]; p != nil && p.inc == inc {
		p.refused = true
		s.settleLocked(p)
	}
}

// look counts the time since the last look, or since their last word, against those of
// whom nothing came. A look that comes later than it was due counts against nobody:
// what came meanwhile may not have been read. It reports whether somebody died or came
// back.
func (s *pulses) look(now time.Time, elapsed, due time.Duration, heard func(node string) (api.Incarnation, time.Time)) (changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if elapsed > due*3/2 {
		elapsed = 0
	}
	for _, node := range slices.Sorted(maps.Keys(s.mu.of)) {
		p := s.mu.of[node]
		inc, at := heard(node)
		switch {
		case inc == p.inc && at.After(p.heard):
			p.heard, p.silent = at, min(now.Sub(at), elapsed)
		default:
			p.silent += elapsed
		}
		changed = s.settleLocked(p) || changed
	}
	return changed
}

// next is the time until the next look: twice as long while nobody can be dead by
// then, since looks are much of what an idle node does.
func (s *pulses) next() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	every := s.suspect / looks
	for _, p := range s.mu.of {
		if p.silent+2*every > s.suspect && !p.dead() {
			return every
		}
	}
	return 2 * every
}

// settleLocked tells the host if a node has died or come back.
func (s *pulses) settleLocked(p *pulse) (changed bool) {
	var why error
	switch {
	case p.refused:
		why = errRefusing
	case p.stalled >= s.stall:
		why = errStalled
	case p.silent >= s.suspect:
		why = errSilent
	}
	switch {
	case why != nil && !p.dead():
		s.host.Dead(p.inc.Node)
		p.life.end(fmt.Errorf("%s is not heard: %w", p.inc, why))
	case why == nil && p.dead():
		p.life = newLife()
		s.host.Alive(p.inc.Node, p.inc.Start)
	default:
		return false
	}
	return true
}

// lifeOf returns a node's life, nil if it never said hello.
func (s *pulses) lifeOf(node string) *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.mu.of[node]; p != nil {
		return p.life
	}
	return nil
}

// death says how a node died, for people; "" if it lives.
func (s *pulses) death(node string) string {
	l := s.lifeOf(node)
	if l == nil {
		return ""
	}
	switch why := l.over(); {
	case errors.Is(why, errSilent):
		return "is silent"
	case errors.Is(why, errStalled):
		return "stands still"
	case why != nil:
		return "is gone"
	}
	return ""
}

// living returns the nodes that live.
func (s *pulses) living() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for node, p := range s.mu.of {
		if !p.dead() {
			out = append(out, node)
		}
	}
	slices.Sort(out)
	return out
}

// who hears a node, of those that live; "" if nobody does.
func (s *pulses) hearer(node string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, other := range slices.Sorted(maps.Keys(s.mu.of)) {
		if p := s.mu.of[other]; other != node && !p.dead() && slices.Contains(p.hears, node) {
			return other
		}
	}
	return ""
}

// watchPeers looks who is heard, until ctx ends.
func (c *Cluster) watchPeers(ctx context.Context) error {
	due := c.pulses.next()
	t := time.NewTimer(due)
	defer t.Stop()
	dead := map[string]bool{}
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		now := time.Now()
		changed := c.pulses.look(now, now.Sub(last), due, c.o.Net.Heard)
		if last = now; changed {
			c.changed.fire()
		}
		c.sayDeaths(ctx, dead)
		due = c.pulses.next()
		t.Reset(due)
	}
}

// sayDeaths logs who died or came back since the last call.
func (c *Cluster) sayDeaths(ctx context.Context, said map[string]bool) {
	for _, m := range c.View().Members {
		l := c.pulses.lifeOf(m.Node)
		if l == nil {
			continue
		}
		why := l.over()
		if said[m.Node] == (why != nil) {
			continue
		}
		if said[m.Node] = why != nil; said[m.Node] {
			c.o.Log.WarnContext(ctx, "peer counts as dead", "peer", m.Node, "reason", why.Error())
		} else {
			c.o.Log.InfoContext(ctx, "peer lives", "peer", m.Node)
		}
	}
}

// Ask calls a node and waits for its answer as long as the node lives. Its errors are
// those of Net.Call, and owner-unreachable without a call to a node that is dead.
func (c *Cluster) Ask(ctx context.Context, node string, method wire.Method, payload []byte) ([]byte, error) {
	l := c.pulses.lifeOf(node)
	if l == nil {
		return c.o.Net.Call(ctx, node, method, payload)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	leave, over := l.wait(cancel)
	if over != nil {
		return nil, &api.Error{Code: api.CodeOwnerUnreachable, Message: over.Error(), RetryAfter: time.Second}
	}
	defer leave()
	b, err := c.o.Net.Call(ctx, node, method, payload)
	if over = l.over(); err != nil && over != nil {
		return nil, fmt.Errorf("%w (%w)", err, over)
	}
	return b, err
}

// Detour returns a node that lives and hears another one that this node does not
// hear; "" if there is none. The other one may be any member: "".
func (c *Cluster) Detour(node string) string {
	if node != "" {
		return c.detour(node)
	}
	for _, m := range c.View().Members {
		if via := c.detour(m.Node); m.Node != c.o.Node && via != "" {
			return via
		}
	}
	return ""
}

func (c *Cluster) detour(node string) string {
	if l := c.pulses.lifeOf(node); l != nil && l.over() == nil {
		return ""
	}
	return c.pulses.hearer(node)
}

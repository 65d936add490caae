package node

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"
)

// ErrStalled says that the raft loop stood still for so long that the process ends
// around it.
var ErrStalled = errors.New("the raft loop stood still for too long: its disk does not answer, most likely")

// Times of the watchdog.
const (
	watchLook  = 250 * time.Millisecond
	stallAfter = time.Second
	stallEnd   = 30 * time.Second
	stacksMost = 4 << 20 // bytes of the stacks of all goroutines
)

// stall measures how long the raft loop has stood still. Time in which nobody
// looked does not count: then the whole process stood still, or had no processor.
type stall struct {
	looked time.Duration // when, from some beginning
	turned time.Duration // what the loop said then
	still  time.Duration
}

// look takes the time and when the loop last turned, and returns how long it has
// stood still.
func (s *stall) look(now, turned time.Duration) time.Duration {
	passed := min(now-s.looked, 2*watchLook)
	s.looked = now
	if turned != s.turned {
		s.turned, s.still = turned, 0
	} else {
		s.still += passed
	}
	return s.still
}

// watchdog is what the node knows of its own loop, outside of it.
type watchdog struct {
	after, end time.Duration
	still      atomic.Int64  // for how long, in nanoseconds
	count      atomic.Int64  // how often the node was stalled
	over       chan struct{} // closed when it took too long
}

func newWatchdog(l Limits) *watchdog {
	w := &watchdog{after: l.StallAfter, end: l.StallEnd, over: make(chan struct{})}
	if w.after == 0 {
		w.after = stallAfter
	}
	if w.end == 0 {
		w.end = stallEnd
	}
	return w
}

// Still returns how long the loop has stood still, and whether that is too long for
// the node to be of use.
func (w *watchdog) Still() (still time.Duration, stalled bool) {
	still = time.Duration(w.still.Load())
	return still, still >= w.after
}

// loop is the raft loop. When it has ended in good order it does not turn, and
// does not stand still either: the watchdog rests.
func (n *node) loop(run context.Context, rest func()) error {
	err := n.host.Run(run)
	if err == nil {
		n.dog.still.Store(0)
		rest()
	}
	return err
}

// watch looks after the raft loop until done is closed. It belongs to nobody whom
// the loop could hold up.
func (n *node) watch(done <-chan struct{}) {
	t := time.NewTicker(watchLook)
	defer t.Stop()
	begun := time.Now()
	s := stall{turned: n.host.Turned()}
	for {
		select {
		case <-done:
			return
		case <-t.C:
		}
		still := s.look(time.Since(begun), n.host.Turned())
		was := time.Duration(n.dog.still.Swap(int64(still)))
		switch {
		case still >= n.dog.end:
			n.log.Error("the raft loop stands still: the node ends", "duration", still, "goroutines", stacks())
			close(n.dog.over)
			return
		case still >= n.dog.after && was < n.dog.after:
			n.dog.count.Add(1)
			n.log.Warn("the raft loop stands still", "duration", still)
		case still < n.dog.after && was >= n.dog.after:
			n.log.Info("the raft loop turns again", "stood_still", was)
		}
	}
}

// stacks returns what every goroutine is doing.
func stacks() string {
	b := make([]byte, stacksMost)
	return string(b[:runtime.Stack(b, true)])
}

package rafthost

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/internal/store"
)

// Bounds of the inbox.
const (
	maxInboxBytes = 64 << 20 // of raft batches; more are dropped, and sent again. Of proposals, likewise; more get ErrBusy
	maxInboxCalls = 64 << 10 // of proposals, reads and other calls; more get ErrBusy
)

// Host drives a Stepper: one loop, fed by an inbox, ticked by the clock. Ticks
// that a busy loop missed count as one, so that being late elects nobody. Its
// methods may be called from any goroutine.
type Host struct {
	stepper *Stepper
	tick    time.Duration
	start   time.Time
	wake    chan struct{}
	ended   chan struct{} // closed when all that waited is answered
	synced  atomic.Uint64
	passes  atomic.Uint64
	logs    atomic.Int64 // bytes of all logs
	awake   atomic.Int64
	turned  atomic.Int64 // when the loop last turned, from start

	mu struct {
		sync.Mutex
		items []item
		bytes int // of the batches among them
		calls int // how many calls are among them
		held  int // bytes that those hold
		ended bool
	}
}

// item is a call, or a batch of raft messages. They keep their order: what a node
// sends comes after the word that it lives.
type item struct {
	call  func(*Stepper)
	from  string
	start uint64
	batch []byte
}

// NewHost returns a host for a Stepper that nothing else uses from now on. A
// tick is as long as given; 0: 100 ms.
func NewHost(s *Stepper, tick time.Duration) *Host {
	if tick == 0 {
		tick = 100 * time.Millisecond
	}
	h := &Host{stepper: s, tick: tick, start: time.Now(), wake: make(chan struct{}, 1), ended: make(chan struct{})}
	h.synced.Store(s.Synced())
	return h
}

// Run is the loop. It returns when ctx ends, or with the error that ends the
// node; all that waits is then answered with ErrNotLeader or ErrUnknown.
func (h *Host) Run(ctx context.Context) (err error) {
	defer h.end()
	defer func() {
		r := recover()
		if lost, ok := r.(error); ok && errors.Is(lost, store.ErrDamaged) {
			err = lost // the disk's doing, see raftLogger
		} else if r != nil {
			err = fmt.Errorf("the raft loop failed: %v\n%s", r, debug.Stack())
		}
	}()
	t := time.NewTicker(h.tick)
	defer t.Stop()
	due := time.NewTimer(h.tick)
	defer due.Stop()
	for {
		ticked := false
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
			ticked = true
		case <-due.C:
		case <-h.wake:
			// Those who are ready to run may have something for the same pass, and then
			// share its sync.
			runtime.Gosched()
		}
		load := h.stepper.o.DB.Load()
		h.stepper.Slow(load >= store.LoadHeavy)
		if load == store.LoadFull {
			// The database would make the loop wait. So nothing begins, not even a
			// tick, as if it did: the node is stalled. But the loop can be asked.
			h.listen()
			continue
		}
		if ticked {
			h.stepper.Tick()
		}
		if err := h.turn(); err != nil { //nolint:contextcheck // a pass that began is carried out
			return err
		}
		h.turned.Store(int64(h.Clock()))
		if at, waits := h.stepper.Due(); waits {
			due.Reset(at - h.Clock())
		}
	}
}

// Wake has the loop look again at what it could not do.
func (h *Host) Wake() { h.signal() }

// turn takes the inbox in and makes one pass. What is left to do wakes the next:
// a busy loop must still see its ticks and the end of its context.
func (h *Host) turn() error {
	h.listen()
	h.stepper.Stand(h.Clock())
	if !h.stepper.Dirty() {
		return nil
	}
	if err := h.stepper.Pass(h.Clock()); err != nil {
		return err
	}
	h.synced.Store(h.stepper.Synced())
	h.passes.Add(1)
	h.logs.Store(h.stepper.LogBytes())
	h.awake.Store(int64(h.stepper.Awake()))
	if h.stepper.Dirty() {
		h.signal()
	}
	return nil
}

// listen takes the inbox in.
func (h *Host) listen() {
	for _, i := range h.take() {
		if i.call != nil {
			i.call(h.stepper)
			continue
		}
		// A damaged batch cannot come over TLS; what stood before the damage
		// was taken, the rest is as lost as on a bad network.
		_ = h.stepper.Deliver(i.from, i.start, i.batch)
	}
}

func (h *Host) take() []item {
	h.mu.Lock()
	defer h.mu.Unlock()
	items := h.mu.items
	h.mu.items, h.mu.bytes, h.mu.calls, h.mu.held = nil, 0, 0, 0
	return items
}

func (h *Host) end() {
	defer close(h.ended)
	h.mu.Lock()
	items := h.mu.items
	h.mu.items, h.mu.ended = nil, true
	h.mu.Unlock()
	for _, i := range items {
		if i.call != nil {
			i.call(h.stepper)
		}
	}
	h.stepper.Stop()
}

func (h *Host) signal() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// Deliver takes a batch of raft messages that a node sent in one of its starts. It
// is the host's from now on.
func (h *Host) Deliver(from string, start uint64, batch []byte) {
	h.mu.Lock()
	drop := h.mu.ended || h.mu.bytes+len(batch) > maxInboxBytes
	if !drop {
		h.mu.items = append(h.mu.items, item{from: from, start: start, batch: batch})
		h.mu.bytes += len(batch)
	}
	h.mu.Unlock()
	if !drop {
		h.signal()
	}
}

// post queues a call that holds size bytes.
func (h *Host) post(size int, f func(*Stepper)) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.mu.ended:
		return ErrStopped
	case h.mu.calls >= maxInboxCalls || size > 0 && h.mu.held+size > maxInboxBytes:
		return ErrBusy
	}
	h.mu.items = append(h.mu.items, item{call: f})
	h.mu.calls++
	h.mu.held += size
	h.signal()
	return nil
}

// tell queues what nobody would say again, however full the inbox is.
func (h *Host) tell(f func(*Stepper)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.mu.ended {
		h.mu.items = append(h.mu.items, item{call: f})
		h.signal()
	}
}

type outcome struct {
	answer any
	err    error
}

// wait posts f and waits for what it sends. An end of ctx or of the host while f
// may be under way gives lost.
func (h *Host) wait(ctx context.Context, lost error, f func(s *Stepper, done func(any, error))) (any, error) {
	return h.waitHolding(ctx, 0, lost, f)
}

// waitHolding is wait for an f that holds size bytes.
func (h *Host) waitHolding(ctx context.Context, size int, lost error, f func(s *Stepper, done func(any, error))) (any, error) {
	c := make(chan outcome, 1)
	err := h.post(size, func(s *Stepper) { f(s, func(a any, err error) { c <- outcome{a, err} }) })
	if err != nil {
		return nil, err
	}
	select {
	case o := <-c:
		return o.answer, o.err
	case <-ctx.Done():
		return nil, fmt.Errorf("%w: %w", lost, context.Cause(ctx))
	case <-h.ended:
	}
	select {
	case o := <-c:
		return o.answer, o.err
	default: // a pass that failed halfway had it in its hands
		return nil, fmt.Errorf("%w: %w", lost, errLoopEnded)
	}
}

var errLoopEnded = errors.New("the raft loop ended")

// Propose replicates data as an entry of a group and returns the machine's
// answer. Errors: ErrNoGroup, ErrNotLeader, ErrBusy, ErrSlowDisk and ErrStopped
// (nothing was done), ErrUnknown (it may have been, or may still be).
func (h *Host) Propose(ctx context.Context, group uint64, id [16]byte, data []byte) (any, error) {
	if h.stepper.o.DB.Load() == store.LoadFull {
		return nil, ErrSlowDisk
	}
	return h.waitHolding(ctx, len(data), ErrUnknown, func(s *Stepper, done func(any, error)) {
		if s.pushesBack(group) {
			done(nil, ErrSlowDisk)
			return
		}
		s.Propose(group, id, data, done)
	})
}

// ReadIndex returns once all that was acknowledged before the call is applied
// here. Errors: ErrNoGroup, ErrNotLeader, ErrBusy, ErrStopped, or the end of ctx.
func (h *Host) ReadIndex(ctx context.Context, group uint64) error {
	_, err := h.wait(ctx, ErrNotLeader, func(s *Stepper, done func(any, error)) {
		s.Read(group, func(err error) { done(nil, err) })
	})
	return err
}

// Transfer hands a group to another replica and returns once this one does not
// lead it any more. Errors: ErrNoGroup, ErrNotLeader, ErrBusy, ErrTransfer,
// ErrStopped, or the end of ctx.
func (h *Host) Transfer(ctx context.Context, group, to uint64) error {
	_, err := h.wait(ctx, ErrTransfer, func(s *Stepper, done func(any, error)) {
		s.Transfer(group, to, func(err error) { done(nil, err) })
	})
	return err
}

// Add opens a replica, or makes it.
func (h *Host) Add(ctx context.Context, o GroupOptions) error {
	_, err := h.wait(ctx, ErrStopped, func(s *Stepper, done func(any, error)) { done(nil, s.Add(o)) })
	return err
}

// Remove drops a replica for ever.
func (h *Host) Remove(ctx context.Context, group uint64) error {
	_, err := h.wait(ctx, ErrStopped, func(s *Stepper, done func(any, error)) { done(nil, s.Remove(group)) })
	return err
}

// Progress returns a snapshot of a group's replica here. Errors: ErrNoGroup,
// ErrBusy, ErrStopped, or the end of ctx.
func (h *Host) Progress(ctx context.Context, group uint64) (Progress, error) {
	a, err := h.wait(ctx, ErrStopped, func(s *Stepper, done func(any, error)) {
		p, ok := s.Progress(group)
		if !ok {
			done(nil, ErrNoGroup)
			return
		}
		done(p, nil)
	})
	p, _ := a.(Progress) // the zero one with an error
	return p, err
}

// Level returns the id of a node's voter in a group that this replica leads, if
// it answers and lacks at most reach entries; else 0. Errors: as of Progress.
func (h *Host) Level(ctx context.Context, group uint64, node string, reach uint64) (uint64, error) {
	p, err := h.Progress(ctx, group)
	if err != nil {
		return 0, err
	}
	for _, x := range p.Peers {
		if x.Node == node && x.Voter && x.Active && x.Match+reach >= p.Last {
			return x.Replica, nil
		}
	}
	return 0, nil
}

// Arrive returns what takes in a snapshot that comes for a replica here.
// Errors: ErrNoGroup, ErrUnwanted, ErrBusy, ErrStopped, or the end of ctx.
func (h *Host) Arrive(ctx context.Context, group, replica uint64) (Arriving, error) {
	a, err := h.wait(ctx, ErrStopped, func(s *Stepper, done func(any, error)) {
		a, err := s.Arrive(group, replica)
		done(a, err)
	})
	in, _ := a.(Arriving) // nil with an error
	return in, err
}

// Install makes a snapshot that is staged the state of its replica, and returns
// once that is on the disk, also if ctx ends: until then the stage is the host's. Errors:
// ErrNoGroup, ErrUnwanted, ErrBusy or ErrStopped: the replica is as it was.
func (h *Host) Install(ctx context.Context, st *Stage) error {
	_, err := h.wait(context.WithoutCancel(ctx), ErrStopped, func(s *Stepper, done func(any, error)) {
		s.Install(st, func(err error) { done(nil, err) })
	})
	return err
}

// ReportSnapshot says how a shipment ended. Errors: ErrBusy (it must be said
// again: a replica gets nothing else before) or ErrStopped.
func (h *Host) ReportSnapshot(sh Shipment, taken bool) error {
	return h.post(0, func(s *Stepper) { s.ReportSnapshot(sh, taken) })
}

// Unreachable says that messages to a node may have been lost.
func (h *Host) Unreachable(node string) {
	_ = h.post(0, func(s *Stepper) { s.Unreachable(node) }) // the next heartbeat mends it too
}

// Alive says that a node was heard, and which of its starts it is in.
func (h *Host) Alive(node string, start uint64) {
	h.tell(func(s *Stepper) { s.Alive(node, start) })
}

// Dead says that a node is not heard any more, or that its loop stands still: what
// it has sent before it is heard anew is dropped.
func (h *Host) Dead(node string) { h.tell(func(s *Stepper) { s.Dead(node) }) }

// Replaced says that a node has another disk than it had.
func (h *Host) Replaced(node string) { h.tell(func(s *Stepper) { s.Replaced(node) }) }

// Welcome says that a new connection to a node stands.
func (h *Host) Welcome(node string) { h.tell(func(s *Stepper) { s.Welcome(node) }) }

// Awake returns how many groups are not quiet.
func (h *Host) Awake() int { return int(h.awake.Load()) }

// Campaign makes a replica stand for election now.
func (h *Host) Campaign(group uint64) {
	_ = h.post(0, func(s *Stepper) { s.Campaign(group) }) // its election timeout comes too
}

// Synced returns the number of the last batch that is on the disk for certain.
func (h *Host) Synced() uint64 { return h.synced.Load() }

// Turned returns when the loop last turned, from when the host was made.
func (h *Host) Turned() time.Duration { return time.Duration(h.turned.Load()) }

// Idle returns how long ago the loop last turned. It turns each tick at least.
func (h *Host) Idle() time.Duration { return h.Clock() - time.Duration(h.turned.Load()) }

// Clock returns how long the host has been there, which is the time that its
// passes and gauges know.
func (h *Host) Clock() time.Duration { return time.Since(h.start) }

// LogBytes returns roughly what the logs of all groups take on the disk.
func (h *Host) LogBytes() int64 { return h.logs.Load() }

// Passes returns how many passes the loop has finished.
func (h *Host) Passes() uint64 { return h.passes.Load() }

package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"tidal/node/api"
	"tidal/node/internal/ready"
	"tidal/node/internal/store"
)

// Times of a restart in place.
const (
	silence    = time.Second             // a connection that has not spoken for so long may be closed
	thinMost   = 1500 * time.Millisecond // for connections from before to end, while later ones go on, and for a flush
	settleMost = 3 * time.Second         // for connections to end while others are still taken
	closeMost  = 10 * time.Second        // for closing; then the process ends instead
	quietLook  = 2 * time.Millisecond    // how often the connections are looked at
	endMost    = 5 * time.Second         // of closeMost, for connections to end; then they are cut
	endLeft    = 500 * time.Millisecond  // of endMost, for the last answers
)

// ErrPort says that a node that has withdrawn its lease for a restart in place could not
// keep its port. The process must end, so that somebody starts it anew.
var ErrPort = errors.New("the port cannot be kept for a restart in place")

// ErrSlowClose says that a node that was to restart in place could not close in
// time. The process must end, so that somebody starts it anew.
var ErrSlowClose = errors.New("closing took too long for a restart in place")

// RestartError is what Run returns when the process is to become the node's next
// incarnation by exec. Both files are open, and the caller's: the port goes on
// taking connections into its backlog, and the data directory stays locked.
type RestartError struct {
	Port *os.File
	Lock *os.File
}

// Error implements error.
func (*RestartError) Error() string { return "the node restarts in place" }

// Close closes the files of a restart that does not happen.
func (e *RestartError) Close() error { return errors.Join(e.Port.Close(), e.Lock.Close()) }

// another is what a restart in place is to run.
type another struct {
	binary  string // its SHA-256; "": the one at the node's path
	checked string // what was checked
}

// restart is a restart in place that was ordered.
type restart struct {
	wanted  chan another            // capacity 1
	ordered atomic.Pointer[another] // the same, until the node goes on instead; nil: none is
	last    another                 // the last that was obeyed; life's own
	port    *os.File                // once the node takes no more connections
	failed  error                   // why there is none; nil: the process simply stops
	shut    time.Time               // since when
	late    chan struct{}           // closed when closing has taken too long
}

// order has the node restart. While it is going to, the same order changes nothing, and
// one for another binary is refused: it would not be obeyed.
func (r *restart) order(next another) error {
	for {
		if r.ordered.CompareAndSwap(nil, &next) {
			r.wanted <- next // there is room: the last one was taken before ordered was nil again
			return nil
		}
		switch now := r.ordered.Load(); {
		case now == nil: // the node goes on, since a moment
		case *now == next:
			return nil
		default:
			return &api.Error{Code: api.CodeNotReady, Message: "the node is going to restart with another binary", RetryAfter: time.Second}
		}
	}
}

// orderRestart begins a restart in place, unless what would run fails its check.
// It returns before anything else happens.
func (n *node) orderRestart(ctx context.Context, o api.NodeOrder) error {
	if n.o.Program == nil {
		return &api.Error{
			Code: api.CodeCheckFailed, Message: "this node cannot be restarted in place: nothing was given to run instead of it",
			Hint: "stop and start its process",
		}
	}
	if p := *n.phase.Load(); p != ready.Serving {
		return &api.Error{Code: api.CodeNotReady, Message: "the node is in phase " + string(p) + ": it can be restarted in place while it serves", RetryAfter: time.Second}
	}
	if err := n.cluster.MayOrder(o); err != nil {
		return err
	}
	if err := n.mayKeepPort(); err != nil {
		return checkFailed("this node cannot be restarted in place now: ", err)
	}
	p, err := n.o.Program.Check(ctx, o.Binary)
	if err != nil {
		return checkFailed("what would run after the restart fails its check: ", err)
	}
	next := another{binary: o.Binary, checked: p.SHA256}
	if err = n.o.Program.Prepare(next.binary, next.checked); err != nil {
		return checkFailed("what would run after the restart cannot take its place: ", err)
	}
	if o.Roll != 0 { // the check took its time
		if err = n.cluster.HoldsRoll(ctx, o.Roll, o.Epoch); err != nil {
			return err
		}
	}
	if err = n.cluster.MayOrder(o); err != nil {
		return err
	}
	if err = n.restart.order(next); err != nil {
		return err
	}
	n.log.InfoContext(ctx, "restart in place ordered", "by", o.By, "roll", o.Roll, "epoch", o.Epoch, "binary", o.Binary)
	return nil
}

// mayKeepPort finds out whether the port can outlive this run.
func (n *node) mayKeepPort() error {
	port, err := n.door.keep()
	if err != nil {
		return err
	}
	return port.Close()
}

// checkFailed is what is said of a binary that cannot run this node.
func checkFailed(text string, err error) error {
	if e, ok := errors.AsType[*api.Error](err); ok {
		return e
	}
	return &api.Error{Code: api.CodeCheckFailed, Message: text + err.Error(), Hint: "the node goes on as it is; mend that and try again"}
}

// vacate prepares a restart in place: the node hands everything over and takes no
// more connections. It reports false, and the node goes on, if a group would
// lose its quorum by the restart, or if the binary is not there any more; but not
// once the lease is gone, as this run gets no other. When stop ends, it becomes a stop,
// with what is left of its time.
func (n *node) vacate(stop, run context.Context, next another) bool {
	n.notice(NoticeRestarting)
	n.enter(ready.Drain) // from here on no order is taken for this one
	n.restart.last = next
	port, err := n.door.keep()
	if err != nil {
		return n.unkept(run, err)
	}
	ctx, cancel := context.WithTimeout(run, drainBudget)
	defer cancel()
	err = n.handOver(ctx, func() (err error) {
		if stop.Err() == nil {
			err = n.o.Program.Prepare(next.binary, next.checked)
		}
		return err
	})
	switch {
	case stop.Err() != nil:
		return n.stopInstead(ctx, port, err)
	case err == nil || run.Err() != nil:
	case n.cluster.HasLeft(run):
		n.log.WarnContext(run, "the lease is withdrawn: the restart goes on", "error", err)
	default:
		n.log.ErrorContext(run, "no restart in place: the node goes on", "error", errors.Join(err, port.Close()))
		n.stay()
		return false
	}
	// From here on the process ends, one way or the other: whatever starts it next must
	// start the same.
	if err = n.o.Program.Install(next.binary); err != nil {
		n.log.ErrorContext(run, "the binary is not put in its place: what stands there is run", "binary", next.binary, "error", err)
	}
	waits, ended := context.WithCancel(run)
	defer ended()
	defer context.AfterFunc(stop, ended)()
	// While the port is open nobody waits: so what must be waited for comes before.
	flushed := n.flush()
	n.server.Thin()
	n.await(waits, thinMost, func(silence time.Duration) bool { return flushed() && n.server.Settled(silence) })
	n.server.Draining()
	n.await(waits, settleMost, n.server.Settled)
	if stop.Err() != nil {
		return n.stopInstead(ctx, port, nil)
	}
	n.shutPort(waits, port)
	return true
}

// stopInstead ends what was to be a restart in place as a stop. It reports true.
func (n *node) stopInstead(ctx context.Context, port *os.File, err error) bool {
	n.notice(NoticeStopping)
	n.part(ctx, err)
	if err = port.Close(); err != nil {
		n.log.WarnContext(ctx, "close the port", "error", err)
	}
	return true
}

// shutPort takes no more connections in, and waits until those that there are have
// ended.
func (n *node) shutPort(waits context.Context, port *os.File) {
	if err := n.door.shutIn(); err != nil {
		n.restart.failed = errors.Join(fmt.Errorf("%w: %w", ErrPort, err), port.Close())
		return
	}
	n.restart.port, n.restart.shut = port, time.Now()
	time.AfterFunc(closeMost, func() { close(n.restart.late) })
	n.await(waits, endMost-endLeft, n.server.Quiet)
	n.log.InfoContext(waits, "connections ended", "left", n.server.Connections(), "duration", time.Since(n.restart.shut))
}

// unkept gives up a restart in place whose port cannot be kept. It reports true, and the
// process ends, if the lease is gone.
func (n *node) unkept(run context.Context, err error) bool {
	if n.cluster.Left() {
		n.restart.failed = fmt.Errorf("%w: %w", ErrPort, err)
		return true
	}
	n.log.ErrorContext(run, "no restart in place: the node goes on", "error", err)
	n.stay()
	return false
}

// endBudget is how long what is in flight at the end may take. Whoever connects after
// the port is shut waits meanwhile, and must not for longer than the patience: one slow
// client of many is cut before.
func (n *node) endBudget() time.Duration {
	if n.restart.shut.IsZero() {
		return closeBudget
	}
	return min(closeBudget, time.Until(n.restart.shut.Add(endMost)))
}

// flush has the database written into tables, for the next run to open it sooner, and
// returns what tells whether that is done. A disk that is full or does not keep up is
// left alone.
func (n *node) flush() (done func() bool) {
	if n.space.full.Load() || n.db.Load() != store.LoadLight {
		return func() bool { return true }
	}
	flushed, err := n.db.Flush()
	if err != nil {
		n.log.Warn("the next run will read the log of this one", "error", err)
		return func() bool { return true }
	}
	return func() bool {
		select {
		case <-flushed:
			return true
		default:
			return false
		}
	}
}

// stay goes on serving after a drain that led nowhere.
func (n *node) stay() {
	n.restart.ordered.Store(nil)
	n.cluster.Stay()
	n.enter(ready.Serving)
	n.notice(NoticeReady)
}

// await waits, not for ever, until what clients do with their connections allows
// the next step.
func (n *node) await(run context.Context, most time.Duration, done func(silence time.Duration) bool) {
	begun := time.Now()
	t := time.NewTicker(quietLook)
	defer t.Stop()
	for !done(silence) && time.Since(begun) < most {
		select {
		case <-t.C:
		case <-run.Done():
			return
		}
	}
}

// pass returns what the next incarnation gets, once all is closed, or nil if the
// process simply stops.
func (n *node) pass() *RestartError {
	if n.restart.port == nil {
		return nil
	}
	return &RestartError{Port: n.restart.port, Lock: n.lock.f}
}

// close closes the storage, and lets go of the directory unless the next
// incarnation gets it. The error may be a *RestartError.
func (n *node) closeAll() error {
	next := n.pass()
	if next == nil {
		return errors.Join(n.restart.failed, n.closeStorage())
	}
	failed, err := n.carry(n.db.Close)
	switch {
	case err == nil:
		return next
	case !failed:
		err = fmt.Errorf("%w: %w", ErrSetup, err)
	}
	return errors.Join(err, next.Close())
}

// closeWeb closes the port, and waits until what is under way on the connections that
// are left is answered.
func (n *node) closeWeb(ctx context.Context, web *http.Server) {
	// Shutdown waits 5 s for a connection that has never spoken, as clients dial
	// some ahead. One from before the silence that ended the grace is not waited for.
	idle, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		n.await(idle, closeBudget, n.server.Idle)
	}()
	if err := web.Shutdown(idle); err != nil && !n.server.Idle(silence) {
		n.log.WarnContext(ctx, "requests were still in flight at the end", "error", err)
	}
}

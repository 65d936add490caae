package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"tidal/node/api"
	"tidal/node/internal/cluster"
	"tidal/node/internal/owner"
	"tidal/node/internal/peer"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/ready"
	"tidal/node/internal/router"
	"tidal/node/internal/server"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
	"tidal/pki"
)

// ErrSetup is wrapped by errors of the configuration, the certificates, the
// port or the storage: starting again changes nothing before they are mended.
var ErrSetup = errors.New("the node cannot run")

// ErrLocked is wrapped by errors about a data directory that another process has.
var ErrLocked = errors.New("the data directory is in use")

// databaseFolder holds the database, inside the data directory.
const databaseFolder = "db"

// Times of a graceful stop. The drain budget is shared: what the hand-over needs
// is not there for waiting.
const (
	drainBudget = 20 * time.Second
	graceQuiet  = 500 * time.Millisecond     // without a request, the node may close
	graceMost   = 3 * time.Second            // however many come
	ackMost     = 5 * time.Second            // for peers to acknowledge the new owners
	closeBudget = api.StopMost - drainBudget // for what is in flight at the end
)

var errDone = errors.New("the node has stopped")

type node struct {
	o     Options
	log   *slog.Logger
	phase atomic.Pointer[ready.Phase]
	fatal chan error // the disk can no longer be trusted
	dog   *watchdog
	space *space

	restart restart
	lock    *directoryLock
	keys    *pki.Keypair  // nil in a plaintext cluster
	revoked atomic.Uint64 // certificates that keys refuses
	db      *store.DB
	stepper *rafthost.Stepper
	host    *rafthost.Host
	outbox  *rafthost.Outbox
	tables  *owner.Tables
	net     *peer.Transport
	cluster *cluster.Cluster
	router  *router.Router
	server  *server.Server
	cut     context.CancelCauseFunc // ends the requests of clients that are left
	door    *door                   // once it listens
	meters  *meters
	events  *events
	started time.Time
	who     cluster.Identity

	requests requests

	receiver *rafthost.Receiver
}

// Run is a node's whole life. When ctx ends it hands over what it owns, goes on
// answering until nobody asks any more, and returns nil; when stopNow is closed
// it stops at once. When a restart in place was ordered it returns a
// *RestartError. Errors that wrap ErrSetup need an operator.
func Run(ctx context.Context, stopNow <-chan struct{}, o Options) error {
	if o.Disk == nil {
		o.Disk = vfs.Default
	}
	n := &node{o: o, log: o.Log.With("node", o.Config.Node.ID), fatal: make(chan error, 1), started: time.Now(), dog: newWatchdog(o.Limits)}
	n.restart = restart{wanted: make(chan another, 1), late: make(chan struct{})}
	n.enter(ready.Prepare)
	if failed, err := n.carry(n.prepare); err != nil {
		if failed {
			return err // a database that failed may never be closed
		}
		if isDisk(err) {
			return errors.Join(n.asDisk(err), n.closeStorage())
		}
		return errors.Join(fmt.Errorf("%w: %w", ErrSetup, err), n.closeStorage())
	}
	run, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	g, run := errgroup.WithContext(run)
	looked, rest := context.WithCancel(context.WithoutCancel(ctx))
	defer rest()
	g.Go(func() error { return n.loop(run, rest) })
	g.Go(func() error { return n.trim(run) })
	g.Go(func() error { return n.watchCerts(run) })
	g.Go(func() error { return n.keepSpace(run) })
	g.Go(func() error { return n.db.WatchLoad(run, n.host.Wake) })
	g.Go(func() error { return n.life(ctx, run, g) })
	g.Go(func() error {
		select {
		case <-run.Done():
		case <-stopNow:
			stop(errDone)
		}
		return nil
	})
	go n.watch(looked.Done())
	ended := make(chan error, 1)
	go func() { ended <- g.Wait() }()
	var err error
	select {
	case err = <-ended:
	case err = <-n.fatal:
		n.enter(ready.Stop) // the last that the log says, but for the error
		// The loop may hang in a database that failed, and must: what it would do
		// next rests on what was lost. The process ends around it.
		stop(err)
		return n.asDisk(err)
	case <-n.dog.over:
		stop(ErrStalled)
		return ErrStalled
	case <-n.restart.late:
		stop(ErrSlowClose)
		return ErrSlowClose
	}
	stop(errDone)
	if errors.Is(err, errDone) {
		err = nil
	}
	n.enter(ready.Stop)
	select {
	case told := <-n.fatal: // which the loop's error came of, if it has one
		return n.asDisk(told)
	default:
	}
	if err == nil {
		return n.closeAll()
	}
	return n.failed(err)
}

// failed is the error that Run ends with for one of the parts.
func (n *node) failed(err error) error {
	switch {
	case isDisk(err):
		return n.asDisk(err)
	case errors.Is(err, wire.ErrNewer):
		return fmt.Errorf("%w: %w", ErrSetup, err)
	}
	return err
}

func (n *node) notice(what Notice) {
	if n.o.Notice != nil {
		n.o.Notice(what)
	}
}

func (n *node) enter(p ready.Phase) {
	if was := n.phase.Swap(&p); was == nil || *was != p {
		n.log.Info("phase", "phase", string(p))
		if n.events != nil {
			e := api.Event{Kind: api.EventPhase, Member: n.o.Config.Node.ID, To: string(p)}
			if was != nil {
				e.From = string(*was)
			}
			n.events.tell(e)
		}
	}
}

// prepare opens storage and builds the parts. Nothing of it is visible to peers.
func (n *node) prepare() error {
	c := n.o.Config
	var err error
	if n.keys, err = loadKeys(c); err != nil {
		return err
	}
	if n.lock, err = lockDirectory(c.Node.Data, n.o.Lock); err != nil {
		return err
	}
	n.space = newSpace(n)
	full, err := n.space.look()
	if err != nil {
		return err
	}
	n.space.full.Store(full)
	// A database of a later release may be nothing that this one can open. What is
	// damaged there is written anew below.
	err = store.CheckFormat(n.o.Disk, formatFile(c))
	if _, newer := errors.AsType[store.NewerError](err); newer {
		return err
	}
	n.db, err = store.Open(filepath.Join(c.Node.Data, databaseFolder), store.Options{FS: n.o.Disk, Log: n.log, Fatal: n.die, NoSpace: n.space.ranOut})
	if err != nil {
		return err
	}
	suffix := rand.Uint32() //nolint:gosec // it tells copies apart, and guards nothing
	if err = n.checkEmptied(); err != nil {
		return err
	}
	if n.who, err = cluster.LoadIdentity(n.db, c.Cluster.Name, c.Node.ID, newDisk(), suffix); err != nil {
		return err
	}
	if err = store.WriteFormat(n.o.Disk, formatFile(c)); err != nil {
		return err
	}
	n.log = n.log.With("incarnation", n.who.Incarnation.String())
	return n.build()
}

func (n *node) die(err error) {
	select {
	case n.fatal <- err:
	default:
	}
}

func (n *node) closeStorage() error {
	var err error
	if n.db != nil {
		var failed bool
		if failed, err = n.carry(n.db.Close); failed {
			return err
		}
	}
	if n.lock != nil {
		err = errors.Join(err, n.lock.Close())
	}
	return err
}

// life carries the node through its phases. It ends run by returning errDone.
func (n *node) life(ctx, run context.Context, g *errgroup.Group) error {
	if err := n.cluster.Open(run); err != nil {
		return fmt.Errorf("%w: %w", ErrSetup, err)
	}
	early := n.o.Faults.LeaseBeforeListen && n.cluster.Formed() // the first time, the others must reach it
	if early {
		n.join(run, g)
		n.awaitLease(ctx, run)
	}
	n.refuseRevoked(run) // as far as this disk knows
	pause(run, n.o.Faults.ListenDelay)
	n.enter(ready.Listen)
	web, err := n.listen(run, g)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrSetup, err)
	}
	if !early {
		n.join(run, g)
		n.awaitLease(ctx, run)
	}
	if run.Err() == nil && ctx.Err() == nil {
		n.enter(ready.Serving)
		n.notice(NoticeReady)
	}
	for stops := false; !stops; {
		select {
		case <-run.Done():
			stops = true
		case <-ctx.Done():
			n.leave(run)
			stops = true
		case next := <-n.restart.wanted:
			stops = n.vacate(ctx, run, next)
		case <-n.cluster.Gone(): // by an order that this node had given up
			stops = n.vacate(ctx, run, n.restart.last)
		}
	}
	n.enter(ready.Stop)
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), n.endBudget())
	defer cancel()
	if run.Err() == nil {
		n.cluster.Withdraw(end)
	}
	n.endRequests(end, run, web)
	n.leaveCounts()
	return errDone
}

// join starts what talks to other nodes.
func (n *node) join(run context.Context, g *errgroup.Group) {
	n.enter(ready.Start)
	g.Go(func() error { return n.net.Run(run) })
	g.Go(func() error { return n.outbox.Run(run, n.host) })
	g.Go(func() error { return n.cluster.Run(run) })
	g.Go(func() error { return n.events.run(run) })
	g.Go(func() error { return n.tables.Keep(run) })
	g.Go(func() error { return n.compare(run) })
}

// awaitLease waits until the node has its lease, or is told to stop.
func (n *node) awaitLease(ctx, run context.Context) {
	for !n.cluster.Leased() {
		select {
		case <-n.cluster.Changed():
		case <-time.After(100 * time.Millisecond): // a change between the two looks
		case <-ctx.Done():
			return
		case <-run.Done():
			return
		}
	}
}

// listen binds the port and serves it. Until the node has started, requests
// wait for the routes that peers will tell.
func (n *node) listen(run context.Context, g *errgroup.Group) (*http.Server, error) {
	bound, err := n.o.Listen(run, "tcp", n.o.Config.Node.Listen)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", n.o.Config.Node.Listen, err)
	}
	n.door = newDoor(bound)
	var l net.Listener = n.door
	if n.keys != nil {
		l = &shaking{Listener: l, conf: n.keys.ServerTLS(), shake: func(c *tls.Conn) {
			_ = c.HandshakeContext(context.WithoutCancel(run)) // who serves the connection ends it, and hears of it
			n.server.Shaken(c)
		}}
	}
	n.takeCounts()
	web := n.server.HTTPServer()
	n.under(run, web)
	g.Go(func() error {
		if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	n.log.InfoContext(run, "listening", "address", l.Addr().String(), "advertise", n.o.Config.Node.Advertise)
	return web, nil
}

// leave hands everything over and goes on answering until nobody asks any more.
func (n *node) leave(run context.Context) {
	n.notice(NoticeStopping)
	n.enter(ready.Drain)
	ctx, cancel := context.WithTimeout(run, drainBudget)
	defer cancel()
	n.part(ctx, n.handOver(ctx, func() error { return nil }))
}

// part goes on answering after a hand-over until nobody asks any more.
func (n *node) part(ctx context.Context, err error) {
	if err != nil {
		n.log.WarnContext(ctx, "the node stops though a quorum may go with it: its time is over", "error", err)
	}
	n.flush() // Close waits for it
	n.server.Draining()
	grace := time.Now()
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for time.Since(grace) < graceMost {
		inFlight, last := n.server.Activity()
		if quiet := time.Since(later(last, grace)); inFlight == 0 && quiet >= graceQuiet {
			break
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
	}
	n.log.InfoContext(ctx, "grace ended", "duration", time.Since(grace))
}

// handOver gives away all that this node owns, waits until every peer says that
// it sends nothing of it here any more, and withdraws the lease once no quorum
// goes with this node, if last has no error: there is no way back from there. The
// phases share ctx's time, of which the grace is kept; the error is last's, or what a
// quorum would lose.
func (n *node) handOver(ctx context.Context, last func() error) error {
	if deadline, ok := ctx.Deadline(); ok {
		limited, cancel := context.WithDeadline(ctx, deadline.Add(-graceMost))
		defer cancel()
		ctx = limited
	}
	begun := time.Now()
	n.cluster.Drain(ctx)
	n.log.InfoContext(ctx, "tables handed over", "duration", time.Since(begun))
	acks, cancel := context.WithTimeout(ctx, ackMost)
	defer cancel()
	if missing := n.cluster.AwaitReleased(acks); len(missing) > 0 {
		n.log.WarnContext(ctx, "not every node has acknowledged the new owners", "missing", missing)
	}
	if err := last(); err != nil {
		return err
	}
	if err := n.cluster.AwaitLeave(ctx); err != nil {
		return err
	}
	n.log.InfoContext(ctx, "let go", "duration", time.Since(begun))
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

var errPlain = errors.New("its connection shows no certificate, in a cluster that is not in plaintext")

// principal says who a client is. A plaintext cluster is on loopback alone, and
// who reaches it may do everything.
func (n *node) principal(cs *tls.ConnectionState) (api.Principal, error) {
	switch {
	case cs == nil && n.keys != nil:
		return api.Principal{}, errPlain
	case cs == nil:
		return api.Principal{Name: "local", Role: api.RoleAdmin}, nil
	}
	name, role, err := pki.ClientRole(cs, n.o.Config.Cluster.Name)
	if err == nil {
		err = n.keys.Revoked(cs)
	}
	if err != nil {
		return api.Principal{}, err
	}
	r, ok := api.ParseRole(role)
	if !ok {
		return api.Principal{}, fmt.Errorf("role %q is not known here", role)
	}
	return api.Principal{Name: name, Role: r}, nil
}

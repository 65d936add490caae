package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/api"
	"tidal/node/internal/cluster"
	"tidal/node/internal/owner"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/ready"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

var (
	errAway  = errors.New("nobody answers there")
	errEnded = errors.New("the node ended")
)

// bed is a cluster of whole memberships in one bubble of virtual time: real
// hosts, groups, tables and disks, and a network that calls functions.
type bed struct {
	*testing.T
	ids   []string
	nodes map[string]*node
	mu    struct {
		sync.Mutex
		at    map[string]string // URL to node
		block func(from, to string, m wire.Method) bool
		lose  func(from string, m wire.Method) bool // the answer to a call
	}
}

// node is one node, running or not.
type node struct {
	bed       *bed
	id        string
	members   map[string]string
	advertise string
	join      []string
	wiped     byte        // how often its disk was lost
	unproven  bool        // the proof of the address is switched off
	part      bool        // a cluster without some members has the others alone as voters
	mute      atomic.Bool // it sends no heartbeats
	lenient   bool        // it lets older disks in
	starts    uint32
	fs        *vfs.MemFS

	run *running // nil while it does not run
}

// running is one incarnation.
type running struct {
	n        *node
	who      cluster.Identity
	db       *store.DB
	host     *rafthost.Host
	tables   *owner.Tables
	receiver *rafthost.Receiver
	cluster  *cluster.Cluster
	ctx      context.Context //nolint:containedctx // it is the life of the incarnation
	stop     func()
	calls    sync.RWMutex            // read while a call is answered: the disk is there till then
	fenced   atomic.Pointer[outcast] // nil: it takes part

	mu struct {
		sync.Mutex
		peers map[string]string
		heard map[string]time.Time
		met   map[string]api.Incarnation

		events []api.Event
	}
	nudge chan struct{}
}

// inBubble runs f on a cluster of a, b and c that does not run yet.
func inBubble(t *testing.T, f func(b *bed)) {
	t.Helper()
	inBubbleOf(t, []string{"a", "b", "c"}, f)
}

func inBubbleOf(t *testing.T, ids []string, f func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bed{T: t, ids: ids, nodes: map[string]*node{}}
		b.mu.at = map[string]string{}
		for _, id := range b.ids {
			b.mu.at["http://"+id] = id
			b.nodes[id] = &node{bed: b, id: id, advertise: "http://" + id, members: map[string]string{}, fs: vfs.NewCrashableMem()}
			for _, m := range b.ids {
				b.nodes[id].members[m] = "http://" + m
			}
		}
		defer func() {
			for _, n := range b.nodes {
				n.kill()
			}
		}()
		f(b)
	})
}

func (b *bed) check(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) start(ids ...string) {
	b.Helper()
	for _, id := range ids {
		b.nodes[id].start()
	}
}

// replicas shows an owner's tables as a cluster wants them.
type replicas struct{ *owner.Tables }

func (r replicas) Local(id api.TableID) (cluster.Replica, bool) {
	l, ok := r.Tables.Local(id)
	return cluster.Replica(l), ok
}

func (r replicas) All() []cluster.Replica {
	var out []cluster.Replica
	for _, l := range r.Tables.All() {
		out = append(out, cluster.Replica(l))
	}
	return out
}

func (n *node) start() {
	n.bed.Helper()
	check := n.bed.check
	n.starts++
	r := &running{n: n, nudge: make(chan struct{}, 1)}
	r.mu.heard, r.mu.met = map[string]time.Time{}, map[string]api.Incarnation{}
	var err error
	r.db, err = store.Open("db", store.Options{FS: n.fs})
	check(err)
	r.who, err = cluster.LoadIdentity(r.db, "prod", n.id, api.DiskID{n.id[0], n.wiped}, 6+n.starts)
	check(err)
	log := slog.New(slog.DiscardHandler)
	r.receiver, err = rafthost.NewReceiver(rafthost.ReceiverOptions{DB: r.db, Dir: "staging", Log: log})
	check(err)
	outbox := rafthost.NewOutbox(rafthost.OutboxOptions{DB: r.db, Carrier: sender{r}.carry, Log: log})
	s, err := rafthost.NewStepper(rafthost.Options{DB: r.db, Sender: sender{r}, Shipper: outbox, Memo: func(b *store.Batch) { r.cluster.Remember(b) }, Events: func(e rafthost.Event) {
		r.tables.Observe(e)
		r.cluster.Observe(e)
	}})
	check(err)
	r.host = rafthost.NewHost(s, 0)
	r.tables = owner.New(owner.Options{Node: n.id, DB: r.db, Host: r.host})
	r.cluster = cluster.New(cluster.Options{
		Node: n.id, Name: "prod", Members: n.members, Join: n.join, Advertise: n.advertise, Version: "test", Identity: r.who,
		DB: r.db, Host: r.host, Tables: replicas{r.tables}, Net: network{r},
		Positions: func(f func(cluster.Position)) { r.tables.Positions(func(p owner.Position) { f(cluster.Position(p)) }) },
		Unsound: func() (fenced []api.TableID) {
			for _, l := range r.tables.Fenced() {
				fenced = append(fenced, l.ID)
			}
			return fenced
		},
		Log: log, NoAddressProof: n.unproven, PartVoters: n.part, AdmitOlder: n.lenient, Events: func(e api.Event) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.mu.events = append(r.mu.events, e)
		},
	})
	ctx, cancel := context.WithCancelCause(n.bed.Context())
	r.ctx = ctx
	var wg sync.WaitGroup
	run := func(f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil && ctx.Err() == nil {
				n.bed.Errorf("node %s: %v", n.id, err)
			}
		})
	}
	run(r.host.Run)
	run(func(ctx context.Context) error { return outbox.Run(ctx, r.host) })
	run(r.cluster.Run)
	run(r.tables.Keep)
	run(r.beat)
	r.stop = func() {
		cancel(errEnded)
		wg.Wait()
		r.calls.Lock() // for good
		check(r.db.Close())
	}
	n.bed.mu.Lock()
	defer n.bed.mu.Unlock()
	n.run = r
}

// kill ends the node as a crash of the machine does: with what was synced.
func (n *node) kill() {
	n.bed.mu.Lock()
	r := n.run
	n.run = nil
	n.bed.mu.Unlock()
	if r == nil {
		return
	}
	after := n.fs.CrashClone(vfs.CrashCloneCfg{})
	r.stop()
	n.fs = after
}

// reach returns the incarnation of a node that runs and is not cut off, or nil.
func (b *bed) reach(from, to string, m wire.Method) *running {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.mu.block != nil && b.mu.block(from, to, m) {
		return nil
	}
	at, there := b.nodes[from].run, b.nodes[to].run
	if at == nil || at.fenced.Load() != nil || there == nil || there.fenced.Load() != nil {
		return nil
	}
	return there
}

func (b *bed) block(f func(from, to string, m wire.Method) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.block = f
}

func (b *bed) lose(f func(from string, m wire.Method) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.lose = f
}

func (b *bed) loses(from string, m wire.Method) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.mu.lose != nil && b.mu.lose(from, m)
}

func (b *bed) isolate(id string) {
	b.block(func(from, to string, _ wire.Method) bool { return (from == id) != (to == id) })
}

func (b *bed) listen(url, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.at[url] = id
}

// network is a node's Net.
type network struct{ r *running }

// meet has two incarnations say hello to each other.
func (r *running) meet(to *running, kind wire.ConnKind) error {
	if err := to.judge(r.cluster.Hello(kind)); err != nil {
		r.heed(to, err)
		return err
	}
	err := r.judge(to.cluster.Hello(kind))
	to.heed(r, err)
	return err
}

// outcast is a member's word that a node must not take part.
type outcast struct {
	by  *running
	why *api.Error
}

// heed has a node take no part any more if its disk is not the one that it was.
func (r *running) heed(by *running, err error) {
	if why, _ := errors.AsType[*api.Error](err); why != nil && why.Code == api.CodeWrongDisk && r.fenced.CompareAndSwap(nil, &outcast{by, why}) {
		r.cluster.Fenced(by.who.Incarnation, why)
	}
}

// talks reports whether the two let each other in.
func (r *running) talks(to *running) bool {
	return to.cluster.Admit(r.cluster.Hello(wire.ConnRaft)) == nil && r.cluster.Admit(to.cluster.Hello(wire.ConnRaft)) == nil
}

func (r *running) judge(remote wire.Hello) error {
	err := r.cluster.Admit(remote)
	if e, ok := errors.AsType[*api.Error](err); ok {
		r.cluster.Refused(remote, e)
	}
	return err
}

func (w network) Call(ctx context.Context, id string, m wire.Method, payload []byte) ([]byte, error) {
	to := w.r.n.bed.reach(w.r.n.id, id, m)
	if to == nil {
		return nil, errAway
	}
	if err := w.r.meet(to, wire.ConnCall); err != nil {
		return nil, err
	}
	answer, err := to.serve(ctx, w.r.cluster.Hello(wire.ConnCall), m, payload)
	if w.r.n.bed.loses(w.r.n.id, m) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return answer, err
}

// serve answers a call until its caller gives up or the node ends.
func (r *running) serve(ctx context.Context, from wire.Hello, m wire.Method, payload []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)()
	var b []byte
	err := r.asked(func() (err error) {
		b, err = r.cluster.Call(ctx, from, m, payload)
		return err
	})
	if r.ctx.Err() != nil {
		return nil, errAway
	}
	return b, err
}

// asked has the node do something for somebody else, if it runs.
func (r *running) asked(f func() error) error {
	if !r.calls.TryRLock() {
		return errAway
	}
	defer r.calls.RUnlock()
	return f()
}

func (w network) CallAddress(ctx context.Context, url string, m wire.Method, payload []byte) (wire.Hello, []byte, error) {
	bed := w.r.n.bed
	bed.mu.Lock()
	id := bed.mu.at[url]
	bed.mu.Unlock()
	if id == "" {
		return wire.Hello{}, nil, errAway
	}
	to := bed.reach(w.r.n.id, id, m)
	if to == nil {
		return wire.Hello{}, nil, errAway
	}
	if err := w.r.meet(to, wire.ConnCall); err != nil {
		return wire.Hello{}, nil, err
	}
	hello := to.cluster.Hello(wire.ConnCall)
	if m == 0 {
		return hello, nil, nil
	}
	b, err := to.serve(ctx, w.r.cluster.Hello(wire.ConnCall), m, payload)
	return hello, b, err
}

func (w network) SetPeers(addresses map[string]string) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	w.r.mu.peers = addresses
}

func (w network) Nudge() {
	select {
	case w.r.nudge <- struct{}{}:
	default:
	}
}

func (w network) Heard(id string) (api.Incarnation, time.Time) {
	w.r.mu.Lock()
	defer w.r.mu.Unlock()
	return w.r.mu.met[id], w.r.mu.heard[id]
}

func (w network) Refusal(id string) *api.Error {
	if out := w.r.fenced.Load(); out != nil && out.by.n.id == id {
		return out.why
	}
	return nil
}

// beat sends heartbeats to the peers that can be dialled.
func (r *running) beat(ctx context.Context) error {
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	connected := map[string]*running{}
	for {
		r.mu.Lock()
		peers := maps.Clone(r.mu.peers)
		r.mu.Unlock()
		for _, id := range slices.Sorted(maps.Keys(peers)) {
			to := r.n.bed.reach(r.n.id, id, 0)
			r.n.bed.mu.Lock()
			there := r.n.bed.mu.at[peers[id]] == id
			r.n.bed.mu.Unlock()
			if to == nil || !there || r.meet(to, wire.ConnRaft) != nil {
				if old := connected[id]; old != nil {
					r.cluster.Down(id, old.who.Incarnation, false, errAway)
				}
				delete(connected, id)
				continue
			}
			full := connected[id] != to
			if connected[id] = to; full {
				r.cluster.Up(to.cluster.Hello(wire.ConnRaft))
				to.cluster.Up(r.cluster.Hello(wire.ConnRaft))
			}
			hb := r.cluster.Beat(id, full)
			// What it says after the moment of its crash, it does not say.
			if !r.n.mute.Load() && r.n.bed.reach(r.n.id, id, 0) == to {
				to.hear(r.who.Incarnation, hb)
			}
		}
		select {
		case <-t.C:
		case <-r.nudge:
		case <-ctx.Done():
			return nil
		}
	}
}

func (r *running) hear(from api.Incarnation, hb *wire.Heartbeat) {
	r.mu.Lock()
	r.mu.heard[from.Node], r.mu.met[from.Node] = time.Now(), from
	r.mu.Unlock()
	r.cluster.Heartbeat(from, hb)
}

// sender carries raft messages.
type sender struct{ r *running }

func (s sender) Send(id string, batch []byte) {
	s.r.mu.Lock()
	_, known := s.r.mu.peers[id]
	s.r.mu.Unlock()
	if to := s.r.n.bed.reach(s.r.n.id, id, 0); to != nil && known && s.r.talks(to) {
		to.cluster.Passed(s.r.who.Incarnation, wire.RaftPass(batch))
		to.host.Deliver(s.r.n.id, s.r.who.Incarnation.Start, batch)
	}
}

// carry brings a snapshot to a node.
func (s sender) carry(ctx context.Context, id string, next func() ([]byte, error)) error {
	to := s.r.n.bed.reach(s.r.n.id, id, 0)
	if to == nil {
		return errAway
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(to.ctx, cancel)()
	return to.receiver.Receive(ctx, s.r.n.id, to.host, next, func() error { return nil })
}

// within waits for a condition, and returns how long that took.
func (b *bed) within(d time.Duration, what string, f func() bool) time.Duration {
	b.Helper()
	begun := time.Now()
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for !f() {
		if time.Since(begun) > d {
			b.Fatalf("%s: not within %v; %s", what, d, b.say())
		}
		<-t.C
	}
	return time.Since(begun)
}

// never waits, and holds that a condition does not come true.
func (b *bed) never(d time.Duration, what string, f func() bool) {
	b.Helper()
	t := time.NewTicker(10 * time.Millisecond)
	defer t.Stop()
	for begun := time.Now(); time.Since(begun) < d; <-t.C {
		if f() {
			b.Fatalf("%s after %v; %s", what, time.Since(begun), b.say())
		}
	}
}

func (b *bed) say() string {
	s := ""
	for _, id := range b.ids {
		if r := b.nodes[id].run; r != nil {
			s += fmt.Sprintf("%s: formed %t, leased %t, waits for %q, outcast %v; ", id, r.cluster.Formed(), r.cluster.Leased(), r.cluster.Waiting(), r.cluster.Outcast())
		}
	}
	return s
}

func (b *bed) at(id string) *running {
	b.Helper()
	if b.nodes[id].run == nil {
		b.Fatalf("node %s does not run", id)
	}
	return b.nodes[id].run
}

// reasons is why a node is not ready.
func (r *running) reasons() []api.Reason {
	in := ready.Input{Phase: ready.Serving}
	r.cluster.Ready(&in)
	return ready.Reasons(in)
}

// leased waits until nodes have their leases.
func (b *bed) leased(ids ...string) {
	b.Helper()
	for _, id := range ids {
		b.within(20*time.Second, "the lease of "+id, b.at(id).cluster.Leased)
	}
}

// up starts all nodes and waits for their leases.
func (b *bed) up() {
	b.Helper()
	b.start(b.ids...)
	b.leased(b.ids...)
}

// metaLeader returns the node that leads the meta group.
func (b *bed) metaLeader() string {
	b.Helper()
	lead := ""
	b.within(20*time.Second, "a meta leader", func() bool {
		for _, id := range b.ids {
			if r := b.nodes[id].run; r != nil && r.cluster.Status().MetaLeader == id {
				lead = id
			}
		}
		return lead != ""
	})
	return lead
}

func (r *running) holds(node string) bool {
	_, ok := r.cluster.View().Lease(node)
	return ok
}

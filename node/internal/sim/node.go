package sim

import (
	"fmt"
	"runtime/debug"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/api"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/store"
	"tidal/node/internal/table"
	"tidal/node/internal/wire"
)

// node is one machine: its disk, and while it runs, what runs on it.
type node struct {
	w    *world
	name string
	pace time.Duration

	disk    *disk
	life    int // how often it was started
	stages  int // snapshots that came
	started time.Duration
	db      *store.DB
	stepper *rafthost.Stepper // nil: it is down
	gauges  map[uint64]*rafthost.Gauge
	due     bool             // a pass is on the way
	alarm   time.Duration    // when it will wake by itself; 0: never
	heard   map[string]pulse // of the other nodes
	looked  time.Duration    // when it last looked who is silent
	stopped time.Duration    // since when it stands still
	until   time.Duration    // until when
	frozen  bool             // all of it, not its loop alone
	synced  uint64           // number of the last synced pass
}

// recorder is a table's machine that shows the history what it applies.
type recorder struct {
	n       *node
	at      replicaOf
	machine *table.Machine
	next    uint64 // entry that comes next; 0: not known yet
}

// Apply implements rafthost.Machine.
func (r *recorder) Apply(b *store.Batch, e rafthost.Entry) ([16]byte, any, error) {
	r.n.w.history.between(r.at, r.next, e.Index)
	r.next = e.Index + 1
	id, answer, err := r.machine.Apply(b, e.Index, e.Term, e.Elapsed, e.Data)
	if err != nil {
		return id, nil, err
	}
	a, _ := answer.(*table.Answer) // nil for raft's own
	r.n.w.history.apply(r.at, e, a, r.n.w.clock())
	return id, answer, nil
}

// Flush implements rafthost.Machine.
func (r *recorder) Flush(b *store.Batch) { r.machine.Flush(b) }

// Committed implements rafthost.Machine.
func (r *recorder) Committed() { r.machine.Committed() }

// start opens the database and all replicas, from what is on the disk.
func (n *node) start() {
	n.life++
	n.started = n.w.clock()
	n.due, n.alarm, n.until, n.looked = false, 0, 0, n.w.now
	n.heard = map[string]pulse{}
	n.w.trace("start %s", n.name)
	if n.life > 1 && !n.w.healed && n.w.chance(0.1) {
		n.disk.arm(n.w.drawCrash(4 << 10))
	}
	err := n.guard(n.open)
	synctest.Wait()
	n.disk.disarm()
	if image := n.disk.image(); image != nil {
		n.w.report.Unborn++
		n.stop(image)
		return
	}
	if err != nil {
		n.w.history.find("node %s cannot start: %v", n.name, err)
		return
	}
	n.synced = n.stepper.Synced() // it is no pass that synced
	n.tick(n.life)
	n.wake()
}

func (n *node) open() (err error) {
	n.db, err = store.Open("db", store.Options{
		FS:         n.disk,
		CacheBytes: 1 << 20,
		Fatal:      func(err error) { panic(err) }, //nolint:forbidigo // no disk fails here: the simulator is wrong
	})
	if err != nil {
		return err
	}
	if err = n.db.RemoveFolder(staging); err != nil {
		return err
	}
	s, err := rafthost.NewStepper(rafthost.Options{
		DB: n.db, Sender: n, Events: n.event, ElectionTicks: electionTicks, LogCache: n.w.logCache, Defect: n.w.o.Defect,
		Shipper: n, LogBytes: n.w.logBytes, Stagger: tick / 2,
	})
	if err != nil {
		return err
	}
	if s.Synced() < n.synced {
		n.w.history.find("node %s came back at pass %d, and had synced pass %d", n.name, s.Synced(), n.synced)
	}
	n.synced = s.Synced()
	n.gauges = map[uint64]*rafthost.Gauge{}
	for _, g := range n.w.groups {
		if err := n.sweep(s, g); err != nil {
			return err
		}
		if n.w.replica(g, n) == 0 {
			continue
		}
		if err := n.add(s, g); err != nil {
			return err
		}
	}
	n.stepper = s
	return nil
}

func (n *node) add(s *rafthost.Stepper, group uint64) error {
	r, err := n.machine(group)
	if err != nil {
		return err
	}
	roster := n.w.rosters[group]
	id := roster.on(n)
	o := rafthost.GroupOptions{
		Group: group, Replica: id, Machine: r, Nodes: roster.names(), Voters: roster.first, Gauge: &rafthost.Gauge{},
		Arrive: func() rafthost.Arriving { return n.arrive(group) },
	}
	if err := s.Add(o); err != nil {
		return err
	}
	if err := n.readLog(group); err != nil {
		return err
	}
	p, _ := s.Progress(group)
	r.next = p.Applied + 1
	n.gauges[group] = o.Gauge
	n.conf(group, &p)
	n.w.history.restarted(replicaOf{group, id}, durable{p.Term, p.Commit, p.Applied})
	return n.compare(replicaOf{group, id}, p.Applied)
}

// machine returns the machine of a table as the database has it.
func (n *node) machine(group uint64) (*recorder, error) {
	m, err := table.Open(n.db, api.TableID(group))
	if err != nil {
		return nil, err
	}
	return n.record(group, m), nil
}

func (n *node) record(group uint64, m *table.Machine) *recorder {
	m.Break(n.w.o.Table)
	return &recorder{n: n, at: replicaOf{group, n.w.replica(group, n)}, machine: m}
}

// readLog looks at a replica's log as it is on the disk.
func (n *node) readLog(group uint64) error {
	var terms []uint64
	err := n.db.Scan(store.GroupKey(group, store.SubEntry), store.GroupEnd(group, store.SubEntry), func(_, v []byte) error {
		t, err := wire.EntryTerm(v)
		terms = append(terms, t)
		return err
	})
	n.w.history.log(replicaOf{group, n.w.replica(group, n)}, terms)
	return err
}

// guard turns a panic, which is how raft says that it cannot go on, into an error.
func (n *node) guard(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return f()
}

// tick moves the node's clock, at its own pace, for as long as it lives.
func (n *node) tick(life int) {
	if !n.alive(life) {
		return
	}
	if n.frozen && n.later(func() { n.tick(life) }) {
		return
	}
	n.beat()
	if n.w.now >= n.until {
		n.watch()
		n.stepper.Tick()
		n.wake()
	}
	n.w.after(n.pace+n.w.between(0, n.pace/4), func() { n.tick(life) })
}

// alive reports whether the node's life of that number goes on.
func (n *node) alive(life int) bool {
	return n.stepper != nil && n.life == life && n.disk.image() == nil
}

// wake makes a pass come soon. Now and then the node is slow.
func (n *node) wake() {
	if n.due {
		return
	}
	n.stepper.Stand(n.w.clock() - n.started)
	if !n.stepper.Dirty() {
		n.setAlarm()
		return
	}
	n.due = true
	wait := n.w.between(0, 500*time.Microsecond)
	if n.w.chance(n.w.faults.slow) {
		wait = n.w.between(0, 60*time.Millisecond)
	}
	life := n.life
	n.w.after(wait, func() { n.pass(life) })
}

// setAlarm wakes the node when a replica's turn comes to stand for election.
func (n *node) setAlarm() {
	due, waits := n.stepper.Due()
	wait := max(due-(n.w.clock()-n.started), 0)
	if !waits || n.alarm > n.w.now && n.alarm <= n.w.now+wait {
		return
	}
	n.alarm = n.w.now + wait
	life := n.life
	n.w.after(wait, func() {
		if n.alive(life) && !n.later(n.wake) {
			n.wake()
		}
	})
}

func (n *node) pass(life int) {
	if !n.alive(life) || n.later(func() { n.pass(life) }) {
		return
	}
	n.due = false
	n.w.report.Passes++
	err := n.guard(func() error { return n.stepper.Pass(n.w.clock() - n.started) })
	synctest.Wait() // what pebble writes behind the pass is of the pass
	if err != nil {
		n.w.history.find("node %s: pass: %v", n.name, err)
		return
	}
	if image := n.disk.image(); image != nil {
		n.w.report.Torn++
		n.stop(image)
		return
	}
	if s := n.stepper.Synced(); s != n.synced {
		n.synced = s
		for _, g := range n.w.groups {
			p, here := n.stepper.Progress(g)
			if !here {
				continue
			}
			n.conf(g, &p)
			n.w.history.synced(replicaOf{g, p.Replica}, durable{p.Term, n.gauges[g].Commit.Load(), p.Applied})
		}
	}
	n.wake()
}

// stop ends the node, and starts it again in a while, unless something else did.
// image is what its disk has then.
func (n *node) stop(image *vfs.MemFS) {
	n.w.trace("crash %s", n.name)
	n.w.report.Crashes++
	if err := n.close(); err != nil {
		n.w.history.find("node %s: close: %v", n.name, err)
	}
	n.disk = newDisk(image)
	life := n.life
	if n.w.chance(0.5) { // else they miss its heartbeats
		for _, x := range n.w.nodes {
			if x != n {
				n.w.after(n.w.between(100*time.Microsecond, 3*time.Millisecond), func() { x.mourn(n.name, life) })
			}
		}
	}
	n.w.after(n.w.downtime(), func() {
		if n.stepper == nil && n.life == life {
			n.start()
		}
	})
}

// close lets go of what runs. What it still writes, the image does not have.
func (n *node) close() error {
	if n.stepper != nil {
		n.w.report.Lulls += n.stepper.Lulled()
	}
	n.stepper = nil
	if n.db == nil {
		return nil
	}
	db := n.db
	n.db = nil
	return n.guard(db.Close)
}

// Send implements rafthost.Sender.
func (n *node) Send(to string, batch []byte) {
	if n.disk.image() != nil {
		return // it crashed before it came to this
	}
	err := wire.DecodeRaft(batch, func(m wire.RaftMessage) {
		if m.GetType() == pb.MsgVoteResp && !m.GetReject() {
			n.w.history.voted(termOf{m.Group, m.GetTerm()}, m.GetFrom(), m.GetTo())
		}
	})
	if err != nil {
		n.w.history.find("node %s sends what nobody can read: %v", n.name, err)
		return
	}
	for _, x := range n.w.nodes {
		if x.name == to {
			n.w.transmit(n, x, batch)
		}
	}
}

func (n *node) receive(from string, life int, batch []byte) {
	if n.stepper == nil || n.later(func() { n.receive(from, life, batch) }) {
		return
	}
	if p := n.heard[from]; p.life == life && !p.dead {
		p.silent = 0
		n.heard[from] = p
	}
	err := n.guard(func() error { return n.stepper.Deliver(from, uint64(life), batch) })
	if err != nil {
		n.w.history.find("node %s: receive: %v", n.name, err)
		return
	}
	n.wake()
}

func (n *node) event(e rafthost.Event) {
	n.w.trace("state %s %d: %+v", n.name, e.Group, e.State)
	if e.State.Leads && (!e.Was.Leads || e.Was.Term != e.State.Term) {
		n.w.report.Leaders++
		n.w.history.led(termOf{e.Group, e.State.Term}, e.State.Replica)
		n.w.elected(n)
	}
}

// leads reports whether the node is up and leads the group.
func (n *node) leads(group uint64) bool {
	if n.stepper == nil {
		return false
	}
	p, _ := n.stepper.Progress(group)
	return p.Leads
}

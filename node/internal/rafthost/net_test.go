package rafthost_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// fabric is three nodes in one goroutine: every message, tick and pass happens
// when the test says so.
type fabric struct {
	*testing.T
	now    time.Duration
	nodes  []*node
	groups []uint64
	defect rafthost.Defect
	// restless groups are never quiet.
	restless bool
	vital    bool
	// drop decides about each message; nil: all arrive.
	drop func(from, to string, m wire.RaftMessage) bool
	// sent sees each batch when it leaves.
	sent func(n *node, batch []byte)
	// prefer is rafthost.Options.Prefer.
	prefer func(group uint64, node string) uint64
	// logBytes bounds each log; 0: the default.
	logBytes int64
}

type node struct {
	f        *fabric
	id       string
	at       int // 1 to 3
	fs       *vfs.MemFS
	db       *store.DB
	stepper  *rafthost.Stepper
	machines map[uint64]*machine
	gauges   map[uint64]*rafthost.Gauge
	state    map[uint64]rafthost.State
	events   []rafthost.Event
	out      []parcel
	owed     []rafthost.Shipment
	passing  bool
	hosted   bool // a host makes its passes
}

type parcel struct {
	to    string
	batch []byte
}

// machine remembers what it applied, in memory and in the database.
type machine struct {
	group   uint64
	applied []rafthost.Entry
	fail    func(data string) // called for each entry; may panic
	err     error             // of each Apply
	cut     string            // the batch ends behind this text
	last    string            // applied
	look    func()            // called by Committed
}

// Apply implements rafthost.Machine. The data is an id and a text, and the answer
// says where the text was applied.
func (m *machine) Apply(b *store.Batch, e rafthost.Entry) (id [16]byte, answer any, err error) {
	if m.err != nil {
		return id, nil, m.err
	}
	m.applied = append(m.applied, e)
	if len(e.Data) == 0 {
		return id, nil, nil
	}
	copy(id[:], e.Data)
	text := string(e.Data[16:])
	m.last = text
	if m.fail != nil {
		m.fail(text)
	}
	b.Set(binary.BigEndian.AppendUint64(store.GroupKey(m.group, store.SubState), e.Index), e.Data)
	return id, fmt.Sprintf("%s at %d", text, e.Index), nil
}

// Flush implements rafthost.Machine.
func (m *machine) Flush(*store.Batch) {}

// Committed implements rafthost.Machine.
func (m *machine) Committed() {
	if m.look != nil {
		m.look()
	}
}

// Cut implements rafthost.Cutter.
func (m *machine) Cut() bool { return m.cut != "" && m.last == m.cut }

// texts are the applied texts in order.
func (m *machine) texts() []string {
	var out []string
	for _, e := range m.applied {
		if len(e.Data) > 0 {
			out = append(out, string(e.Data[16:]))
		}
	}
	return out
}

// Send implements rafthost.Sender.
func (n *node) Send(to string, batch []byte) {
	if n.f.sent != nil {
		n.f.sent(n, batch)
	}
	n.out = append(n.out, parcel{to, batch})
}

// replica is the raft id of a group's replica on the node numbered at.
func replica(group uint64, at int) uint64 { return group*10 + uint64(at) }

func newFabric(t *testing.T, groups ...uint64) *fabric {
	t.Helper()
	return newBroken(t, rafthost.Sound, groups...)
}

func newBroken(t *testing.T, defect rafthost.Defect, groups ...uint64) *fabric {
	t.Helper()
	return (&fabric{T: t, groups: groups, defect: defect}).start()
}

func newRestless(t *testing.T, groups ...uint64) *fabric {
	t.Helper()
	return (&fabric{T: t, groups: groups, restless: true}).start()
}

func (f *fabric) start() *fabric {
	f.Helper()
	for at := 1; at <= 3; at++ {
		n := &node{f: f, id: fmt.Sprint("n", at), at: at, fs: vfs.NewCrashableMem()}
		f.nodes = append(f.nodes, n)
		n.open()
	}
	f.Cleanup(func() {
		for _, n := range f.nodes {
			f.check(n.db.Close())
		}
	})
	return f
}

func (f *fabric) check(err error) {
	f.Helper()
	if err != nil {
		f.Fatal(err)
	}
}

// options describe a group's replica on this node.
func (n *node) options(group uint64) rafthost.GroupOptions {
	o := rafthost.GroupOptions{
		Group: group, Replica: replica(group, n.at), Nodes: map[uint64]string{},
		Machine: n.machines[group], Gauge: n.gauges[group], Restless: n.f.restless, Vital: n.f.vital,
		Arrive: func() rafthost.Arriving { return &arriving{n: n, m: &machine{group: group}} },
	}
	for at := 1; at <= 3; at++ {
		o.Nodes[replica(group, at)] = fmt.Sprint("n", at)
		o.Voters = append(o.Voters, replica(group, at))
	}
	return o
}

// open starts the node on its file system.
func (n *node) open() {
	n.f.Helper()
	var err error
	n.db, err = store.Open("db", store.Options{FS: n.fs})
	n.f.check(err)
	n.stepper, err = rafthost.NewStepper(rafthost.Options{
		DB: n.db, Sender: n, Defect: n.f.defect, Shipper: n, LogBytes: n.f.logBytes, Prefer: n.f.prefer,
		Events: func(e rafthost.Event) {
			n.events = append(n.events, e)
			n.state[e.Group] = e.State
		},
	})
	n.f.check(err)
	n.machines, n.gauges, n.state = map[uint64]*machine{}, map[uint64]*rafthost.Gauge{}, map[uint64]rafthost.State{}
	for _, g := range n.f.groups {
		n.machines[g], n.gauges[g] = &machine{group: g}, &rafthost.Gauge{}
		n.f.check(n.stepper.Add(n.options(g)))
	}
}

// crash starts the node again with what was synced.
func (n *node) crash() {
	n.f.Helper()
	after := n.fs.CrashClone(vfs.CrashCloneCfg{})
	n.f.check(n.db.Close())
	n.fs, n.out, n.owed = after, nil, nil
	n.open()
}

func (n *node) pass() {
	n.f.Helper()
	n.passing = true
	n.f.check(n.stepper.Pass(n.f.now))
	n.passing = false
}

// settle makes passes and delivers messages until nothing moves.
func (f *fabric) settle() {
	f.Helper()
	for range 1000 {
		moved := false
		for _, n := range f.nodes {
			n.stepper.Stand(f.now)
			if n.stepper.Dirty() {
				n.pass()
				moved = true
			}
		}
		for _, n := range f.nodes {
			out := n.out
			n.out = nil
			for _, p := range out {
				moved = true
				f.deliver(n, p)
			}
		}
		if !moved {
			return
		}
	}
	f.Fatal("it never settles")
}

func (f *fabric) deliver(from *node, p parcel) {
	f.Helper()
	to := f.node(p.to)
	f.check(wire.DecodeRaft(p.batch, func(m wire.RaftMessage) {
		if f.drop == nil || !f.drop(from.id, p.to, m) {
			to.stepper.Receive(from.id, m)
		}
	}))
}

func (f *fabric) node(id string) *node {
	i := slices.IndexFunc(f.nodes, func(n *node) bool { return n.id == id })
	return f.nodes[i]
}

// tick moves every clock by one and settles.
func (f *fabric) tick() {
	f.Helper()
	f.now += 100 * time.Millisecond
	for _, n := range f.nodes {
		n.stepper.Tick()
	}
	f.settle()
}

// elect makes the node numbered at lead all groups.
func (f *fabric) elect(at int) *node {
	f.Helper()
	f.settle()
	n := f.nodes[at-1]
	for _, g := range f.groups {
		n.stepper.Campaign(g)
	}
	f.settle()
	for _, g := range f.groups {
		if !n.state[g].Owns {
			f.Fatalf("%s stood for election and is %+v in group %d", n.id, n.state[g], g)
		}
	}
	return n
}

// isolate cuts a node off.
func (f *fabric) isolate(id string) {
	f.drop = func(from, to string, _ wire.RaftMessage) bool { return from == id || to == id }
}

// another ticks until a node other than the given one owns a group.
func (f *fabric) another(group uint64, than *node) *node {
	f.Helper()
	for range 200 {
		f.tick()
		for _, n := range f.nodes {
			if n != than && n.state[group].Owns {
				return n
			}
		}
	}
	f.Fatal("nobody else was elected")
	return nil
}

// reply records what became of a proposal, read or transfer.
type reply struct {
	answer any
	err    error
	times  int
}

func (r *reply) done(answer any, err error) { r.answer, r.err, r.times = answer, err, r.times+1 }

func (r *reply) ended(err error) { r.done(nil, err) }

// propose gives a node's replica a text under an id that is the text's start.
func (n *node) propose(group uint64, text string) *reply {
	var id [16]byte
	copy(id[:], text)
	return n.proposeAs(group, id, text)
}

func (n *node) proposeAs(group uint64, id [16]byte, text string) *reply {
	r := &reply{}
	n.stepper.Propose(group, id, append(id[:], text...), r.done)
	return r
}

func (n *node) read(group uint64) *reply {
	r := &reply{}
	n.stepper.Read(group, r.ended)
	return r
}

func (n *node) transfer(group uint64, to *node) *reply {
	r := &reply{}
	n.stepper.Transfer(group, replica(group, to.at), r.ended)
	return r
}

// is holds that a reply came once, with an error (nil too).
func (f *fabric) is(what string, r *reply, want error) {
	f.Helper()
	//nolint:errorlint // the very error: it is not wrapped
	if r.times != 1 || r.err != want {
		f.Errorf("%s ended %d times, last with %v: want %v", what, r.times, r.err, want)
	}
}

func (f *fabric) open(what string, r *reply) {
	f.Helper()
	if r.times != 0 {
		f.Errorf("%s has ended already, with %v", what, r.err)
	}
}

// message is one as a peer would send it.
func message(t pb.MessageType, group, from, to, term uint64) wire.RaftMessage {
	return wire.RaftMessage{Group: group, Message: &pb.Message{Type: t.Enum(), From: &from, To: &to, Term: &term}}
}

package owner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/api"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/store"
	"tidal/node/internal/table"
	"tidal/node/internal/wire"
)

// Reach is how many entries a replica may lack to be given a table: the rest is
// sent while the table's requests wait.
const Reach = 1024

// ErrBehind says that the replica that should take a table over lacks too much
// of it, has not answered lately, or is fenced.
var ErrBehind = errors.New("the replica is not level")

// Options are what Tables need.
type Options struct {
	Node string // own id
	DB   *store.DB
	Host *rafthost.Host
	// MadeBytes and KeyedBytes bound what a table remembers of its answers; 0: as
	// table.Machine.Bound says. Those of NodeMadeBytes and NodeKeyedBytes bound all
	// tables together; 0: as the constants of package table.
	MadeBytes, KeyedBytes         int64
	NodeMadeBytes, NodeKeyedBytes int64
	// Spent returns another node with a replica of the table that remembers as many
	// answers of a lifetime as it may, "" for none; nil: there never is one.
	Spent func(id api.TableID, keyed bool) string
	// MayWrite returns an error if no row may be written to a table now, for want of
	// space on disks; nil: it always may.
	MayWrite func(api.TableID) error
	// OnFence is told of each table whose replica here is fenced; nil: nobody is.
	OnFence func(table string)
	// Sound reports whether a node says of its replica of a table that it is not fenced;
	// nil: none ever is.
	Sound func(id api.TableID, node string) bool
	// Hold keeps a table without an owner for so long before each hand-over: a
	// fault for tests.
	Hold time.Duration
	// AnyTarget hands tables over to whoever has a replica, level or not: a fault.
	AnyTarget bool
	// Defect breaks the tables' machines: a fault.
	Defect table.Defect
	// NoIDs has tables forget at once which writes they have done: a fault too.
	NoIDs bool
	// StaleReads answers reads without asking whether this node still owns the table:
	// another.
	StaleReads bool
}

// Tables are the replicas of tables on this node. Its methods may be called from
// any goroutine.
type Tables struct {
	o       Options
	made    time.Time
	watched atomic.Int32 // tables whose writes are counted
	swept   atomic.Int64 // span in which it was last looked which of them rest
	budget  *table.Budget
	fenced  atomic.Int64 // replicas that are
	mu      struct {
		sync.RWMutex
		open map[api.TableID]*replica
		// order has them in the order of the tables' ids; nil: to be made anew.
		order []*replica
	}
}

// replica is one table's replica on this node.
type replica struct {
	info  wire.Table // as it was when the replica was opened: its name and id
	id    uint64
	table atomic.Pointer[table.Machine]
	shape atomic.Pointer[shape]
	gauge rafthost.Gauge
	state atomic.Pointer[rafthost.State]
	held  atomic.Bool // by Hold
	looks looks
	late  atomic.Pointer[late] // nil while its writes are not counted
	// fenced: the replica differs from most others, and serves nothing.
	fenced atomic.Bool

	opened time.Duration // on the host's clock
	ticked atomic.Int64  // when the clock was last moved for a write that found no room
}

// shape is where the replicas of a table are. It never changes.
type shape struct {
	of    *wire.Table
	nodes map[uint64]string // of each replica
}

func newShape(info *wire.Table) *shape {
	s := &shape{of: info, nodes: map[uint64]string{}}
	for _, x := range info.Replicas {
		s.nodes[x.ID] = x.Node
	}
	return s
}

// node returns the node of a replica, "" if it is none of the table's.
func (r *replica) node(id uint64) string { return r.shape.Load().nodes[id] }

// New returns no tables.
func New(o Options) *Tables {
	t := &Tables{o: o, made: time.Now()}
	t.swept.Store(-1)
	t.budget = table.NewBudget(cmp.Or(o.NodeMadeBytes, table.NodeMadeBytes), cmp.Or(o.NodeKeyedBytes, table.NodeKeyedBytes))
	t.mu.open = map[api.TableID]*replica{}
	return t
}

// machine lets the host drive a table's state machine.
type machine struct {
	*table.Machine

	r  *replica
	db *store.DB
}

// Apply implements rafthost.Machine.
func (m machine) Apply(b *store.Batch, e rafthost.Entry) ([16]byte, any, error) {
	if len(e.Data) == 0 {
		m.r.looks.reach(e.Index)
	}
	return m.Machine.Apply(b, e.Index, e.Term, e.Elapsed, e.Data)
}

// Open opens this node's replica of a table, or makes it.
func (t *Tables) Open(ctx context.Context, info *wire.Table) error {
	own, ok := info.Replica(t.o.Node)
	if !ok {
		return fmt.Errorf("table %s: no replica belongs on %s", info.Name, t.o.Node)
	}
	m, err := t.machine(info.ID)
	if err != nil {
		return err
	}
	r := &replica{info: *info, id: own.ID, opened: t.o.Host.Clock()}
	r.table.Store(m)
	r.shape.Store(newShape(info))
	r.state.Store(&rafthost.State{Replica: own.ID})
	if err := t.readFence(r); err != nil {
		return err
	}
	g := rafthost.GroupOptions{
		Group: uint64(info.ID), Replica: own.ID, Nodes: r.shape.Load().nodes, Voters: info.First,
		Machine: machine{m, r, t.o.DB}, Gauge: &r.gauge,
		Arrive: func() rafthost.Arriving { return t.arrive(r) },
	}
	m.Join(t.budget)
	t.mu.Lock()
	t.mu.open[info.ID], t.mu.order = r, nil
	t.mu.Unlock()
	if err := t.o.Host.Add(ctx, g); err != nil {
		t.forget(info.ID)
		return fmt.Errorf("table %s: %w", info.Name, err)
	}
	return nil
}

// machine returns the machine of a table as the database has it.
func (t *Tables) machine(id api.TableID) (*table.Machine, error) {
	m, err := table.Open(t.o.DB, id)
	if err == nil {
		t.bound(m)
	}
	return m, err
}

func (t *Tables) bound(m *table.Machine) {
	m.Bound(t.o.MadeBytes, t.o.KeyedBytes)
	m.Break(t.o.Defect)
}

// Cut implements rafthost.Cutter.
func (m machine) Cut() bool { return m.r.looks.due != 0 }

// Committed implements rafthost.Machine.
func (m machine) Committed() {
	m.Machine.Committed()
	m.r.looks.take(m.db, m.r.info.ID)
}

// arriving is a table that comes as a snapshot.
type arriving struct {
	*table.Arrival

	t *Tables
	r *replica
}

func (t *Tables) arrive(r *replica) rafthost.Arriving {
	return arriving{table.Arrive(t.o.DB, r.info.ID), t, r}
}

// Done implements rafthost.Arriving.
func (a arriving) Done() error {
	a.t.bound(a.Arrival.Machine())
	return nil
}

// Machine implements rafthost.Arriving.
func (a arriving) Machine() (rafthost.Machine, error) {
	m := a.Arrival.Machine()
	a.r.table.Load().Leave()
	m.Join(a.t.budget)
	a.r.table.Store(m)
	return machine{m, a.r, a.t.o.DB}, a.t.unfence(a.r)
}

// Update takes over where the replicas of an open table are now. Errors: those of
// rafthost.Host.SetNodes.
func (t *Tables) Update(info *wire.Table) error {
	r := t.find(info.ID)
	if r == nil || r.shape.Load().of == info {
		return nil
	}
	s := newShape(info)
	if err := t.o.Host.SetNodes(uint64(info.ID), s.nodes); err != nil {
		return err
	}
	r.shape.Store(s)
	return nil
}

// Drop removes this node's replica of a table for ever.
func (t *Tables) Drop(ctx context.Context, id api.TableID) error {
	if err := t.o.Host.Remove(ctx, uint64(id)); err != nil && !errors.Is(err, rafthost.ErrNoGroup) {
		return fmt.Errorf("drop table %s: %w", id, err)
	}
	r := t.find(id)
	t.forget(id)
	if r == nil {
		return nil
	}
	return t.unfence(r)
}

// forget drops a replica that the host has not, or has no more.
func (t *Tables) forget(id api.TableID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := t.mu.open[id]; r != nil {
		r.table.Load().Leave()
	}
	delete(t.mu.open, id)
	t.mu.order = nil
}

func (t *Tables) find(id api.TableID) *replica {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.mu.open[id]
}

// Observe takes what the host tells of a group, and reports whether it is one of
// these.
func (t *Tables) Observe(e rafthost.Event) bool {
	r := t.find(api.TableID(e.Group))
	if r == nil {
		return false
	}
	s := e.State
	r.state.Store(&s)
	return true
}

// Local is what this node's replica of a table knows.
type Local struct {
	Name            string
	ID              api.TableID
	State           rafthost.State
	Leader          string // node that leads, as far as the replica knows
	Commit, Applied uint64
	Frontier        uint64        // highest commit that a leader has told this replica of
	Moved           time.Duration // when Applied last moved, on the host's clock
}

func (r *replica) local() Local {
	s := *r.state.Load()
	return Local{
		Name: r.info.Name, ID: r.info.ID, State: s, Leader: r.node(s.Lead),
		Applied: r.gauge.Applied.Load(), Commit: r.gauge.Commit.Load(),
		Frontier: r.gauge.Frontier.Load(), Moved: time.Duration(r.gauge.Moved.Load()),
	}
}

// Local returns what this node's replica of a table knows, and whether there is one.
func (t *Tables) Local(id api.TableID) (Local, bool) {
	r := t.find(id)
	if r == nil {
		return Local{}, false
	}
	return r.local(), true
}

// Len returns how many replicas are here.
func (t *Tables) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.mu.open)
}

// All returns what each replica here knows, in the order of the tables' ids.
func (t *Tables) All() []Local {
	order := t.ordered()
	out := make([]Local, len(order))
	for i, r := range order {
		out[i] = r.local()
	}
	return out
}

// ordered returns the replicas in the order of the tables' ids, not to be changed.
func (t *Tables) ordered() []*replica {
	t.mu.RLock()
	order := t.mu.order
	t.mu.RUnlock()
	if order != nil {
		return order
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.order = make([]*replica, 0, len(t.mu.open))
	for _, r := range t.mu.open {
		t.mu.order = append(t.mu.order, r)
	}
	slices.SortFunc(t.mu.order, func(a, b *replica) int { return cmp.Compare(a.info.ID, b.info.ID) })
	return t.mu.order
}

// Execute serves a request on this node's replica, as its owner or, for a local
// read, as it is. Its errors are *api.Error: stale-owner if this node does not
// own the table, no-owner if the owner could not be sure of it in time (nothing
// was done in both cases), outcome-unknown if it is not known what became of a
// write, and those of the table.
func (t *Tables) Execute(ctx context.Context, id api.TableID, req *api.Request) (*api.Response, error) {
	r := t.find(id)
	switch {
	case r == nil:
		return nil, &api.Error{Code: api.CodeStaleOwner, Message: "node " + t.o.Node + " holds no replica of the table"}
	case req.Local && r.fenced.Load():
		return nil, &api.Error{
			Code: api.CodeNotReady, Message: "the replica of table " + r.info.Name + " on node " + t.o.Node + " differs from the others, and answers nothing",
			Hint: "ask without consistency=local, or ask another node",
		}
	case req.Local:
		return t.read(r, req)
	case r.held.Load():
		return nil, &api.Error{Code: api.CodeNoOwner, Message: "the table is being handed over"}
	case r.fenced.Load() && r.state.Load().Leads:
		return nil, &api.Error{
			Code: api.CodeNoOwner, Message: "the replica of table " + r.info.Name + " on node " + t.o.Node + " differs from the others and answers nothing, and none of them has taken the table over yet",
		}
	}
	if s := r.state.Load(); !s.Leads {
		return nil, r.stale(t.o.Node, s)
	}
	if req.Op.Writes() {
		begun := time.Now()
		resp, err := t.write(ctx, r, req)
		if err == nil {
			t.took(r, begun)
		}
		return resp, err
	}
	if !t.o.StaleReads {
		if err := t.o.Host.ReadIndex(ctx, uint64(id)); err != nil {
			return nil, t.refusal(r, err)
		}
	}
	return t.read(r, req)
}

func (r *replica) stale(node string, s *rafthost.State) *api.Error {
	return &api.Error{
		Code: api.CodeStaleOwner, Owner: r.node(s.Lead),
		Message: "node " + node + " does not own table " + r.info.Name,
	}
}

func (t *Tables) read(r *replica, req *api.Request) (*api.Response, error) {
	resp := &api.Response{}
	if req.Local {
		known := max(r.gauge.Commit.Load(), r.gauge.Frontier.Load())
		applied := r.gauge.Applied.Load()
		resp.Lag = max(known, applied) - applied
	}
	if req.Op == api.OpScan {
		resp.Version.Table = r.info.ID
		var err error
		resp.Rows, resp.More, err = table.Page(t.o.DB, r.info.ID, req.Range)
		return resp, err
	}
	row, found, err := table.Get(t.o.DB, r.info.ID, req.Key)
	if err != nil {
		return nil, err
	}
	if found {
		resp.Found, resp.Size = true, len(row.Value)
		resp.Version = api.Version{Table: r.info.ID, Index: row.Version}
		if req.Op == api.OpGet {
			resp.Value = row.Value
		}
	}
	return resp, nil
}

func (t *Tables) write(ctx context.Context, r *replica, req *api.Request) (*api.Response, error) {
	if t.o.MayWrite != nil {
		if err := t.o.MayWrite(r.info.ID); err != nil {
			return nil, err
		}
	}
	if err := t.room(ctx, r, req); err != nil {
		return nil, err
	}
	c := wire.Command{
		Op: req.Op, ID: req.ID, Keyed: req.Keyed, Born: req.Born.Index,
		IfMatch: req.IfMatch, IfAbsent: req.IfNoneMatch, IfExists: req.IfExists, Key: req.Key, Value: req.Value,
	}
	if req.Op == api.OpBatch {
		c.Value = wire.AppendChanges(nil, req.Changes)
		if len(c.Value) > api.MaxBatch {
			return nil, &api.Error{Code: api.CodeTooLarge, Message: fmt.Sprintf("the batch is too large: the limit is %d bytes", api.MaxBatch)}
		}
	}
	if t.o.NoIDs {
		c.ID = api.RequestID{}
	}
	c.Hash = c.RequestHash(r.info.ID)
	answer, err := t.o.Host.Propose(ctx, uint64(r.info.ID), c.ID, wire.AppendCommand(nil, &c))
	if err != nil {
		return nil, t.refusal(r, err)
	}
	a, ok := answer.(*table.Answer)
	if !ok {
		return nil, fmt.Errorf("table %s: an answer of type %T", r.info.Name, answer)
	}
	if err := a.Err(r.info.ID); err != nil {
		return nil, err
	}
	return &api.Response{Found: true, Version: api.Version{Table: r.info.ID, Index: a.Version}}, nil
}

// refusal turns an error of the host into what the router understands.
func (t *Tables) refusal(r *replica, err error) error {
	switch {
	case errors.Is(err, rafthost.ErrUnknown):
		return &api.Error{Code: api.CodeOutcomeUnknown, Message: "the owner lost the table before it knew what became of the write"}
	case errors.Is(err, rafthost.ErrBusy):
		return &api.Error{
			Code: api.CodeTooMany, Message: "node " + t.o.Node + " has too many writes under way for table " + r.info.Name,
			RetryAfter: time.Second,
		}
	case errors.Is(err, rafthost.ErrSlowDisk):
		return &api.Error{
			Code: api.CodeTooMany, Message: "the disk of node " + t.o.Node + ", which owns table " + r.info.Name + ", does not keep up with the writes",
			RetryAfter: time.Second,
		}
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return &api.Error{Code: api.CodeNoOwner, Message: "node " + t.o.Node + " could not reach a quorum of table " + r.info.Name + " in time"}
	case errors.Is(err, rafthost.ErrStopped):
		return &api.Error{Code: api.CodeNoOwner, Message: "node " + t.o.Node + " is stopping"}
	}
	return r.stale(t.o.Node, r.state.Load())
}

// HandOver gives a table that this node owns to another node and returns once
// this one does not lead it any more. Errors: ErrBehind and those of
// rafthost.Host.Transfer.
func (t *Tables) HandOver(ctx context.Context, id api.TableID, node string) error {
	r := t.find(id)
	if r == nil {
		return rafthost.ErrNoGroup
	}
	to, err := t.target(ctx, r, node)
	if err != nil {
		return err
	}
	if t.o.Hold > 0 {
		r.held.Store(true)
		defer r.held.Store(false)
		select {
		case <-time.After(t.o.Hold):
		case <-ctx.Done():
		}
	}
	return t.o.Host.Transfer(ctx, uint64(id), to)
}

// target returns a node's replica of a table that this node owns, if it may be handed
// to it.
func (t *Tables) target(ctx context.Context, r *replica, node string) (uint64, error) {
	if t.o.AnyTarget {
		for id, n := range r.shape.Load().nodes {
			if n == node {
				return id, nil
			}
		}
	}
	if t.o.Sound != nil && !t.o.Sound(r.info.ID, node) {
		return 0, ErrBehind
	}
	to, err := t.o.Host.Level(ctx, uint64(r.info.ID), node, Reach)
	if err == nil && to == 0 {
		err = ErrBehind
	}
	return to, err
}

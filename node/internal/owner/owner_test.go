package owner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/api"
	"tidal/node/internal/owner"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// trio is three nodes' tables over real hosts; messages go from one host's loop
// into another's inbox.
type trio struct {
	*testing.T
	nodes map[string]*node
	mu    struct {
		sync.Mutex
		drop func(from, to string, m wire.RaftMessage) bool
	}
}

type node struct {
	trio   *trio
	id     string
	fs     *vfs.MemFS
	db     *store.DB
	host   *rafthost.Host
	tables *owner.Tables
	stop   func()
}

func newTrio(t *testing.T, hold time.Duration) *trio {
	t.Helper()
	return newTrioWith(t, owner.Options{Hold: hold})
}

func newTrioWith(t *testing.T, o owner.Options) *trio {
	t.Helper()
	c := &trio{T: t, nodes: map[string]*node{}}
	for _, id := range []string{"a", "b", "c"} {
		n := &node{trio: c, id: id, fs: vfs.NewCrashableMem()}
		c.nodes[id] = n
		var err error
		n.db, err = store.Open("db", store.Options{FS: n.fs})
		c.check(err)
		s, err := rafthost.NewStepper(rafthost.Options{DB: n.db, Sender: n, Events: func(e rafthost.Event) { n.tables.Observe(e) }})
		c.check(err)
		n.host = rafthost.NewHost(s, 20*time.Millisecond)
		o.Node, o.DB, o.Host = id, n.db, n.host
		n.tables = owner.New(o)
	}
	for _, n := range c.nodes {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- n.host.Run(ctx) }()
		n.stop = sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Errorf("node %s: %v", n.id, err)
			}
		})
	}
	t.Cleanup(func() {
		for _, n := range c.nodes {
			n.stop()
		}
		for _, n := range c.nodes {
			c.check(n.db.Close())
		}
	})
	return c
}

// Send implements rafthost.Sender.
func (n *node) Send(to string, batch []byte) {
	n.trio.mu.Lock()
	drop := n.trio.mu.drop
	n.trio.mu.Unlock()
	out := batch
	if drop != nil {
		out = wire.NewRaftBatch()
		if err := wire.DecodeRaft(batch, func(m wire.RaftMessage) {
			if !drop(n.id, to, m) {
				out = wire.AppendRaft(out, m.Group, m.Message)
			}
		}); err != nil {
			n.trio.Error(err)
		}
	}
	n.trio.nodes[to].host.Deliver(n.id, 1, out)
}

func (c *trio) cut(drop func(from, to string, m wire.RaftMessage) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.drop = drop
}

func (c *trio) isolate(id string) {
	c.cut(func(from, to string, _ wire.RaftMessage) bool { return from == id || to == id })
}

func (c *trio) check(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

func (c *trio) await(what string, f func() bool) {
	c.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	limit := time.After(20 * time.Second)
	for !f() {
		select {
		case <-tick.C:
		case <-limit:
			c.Fatalf("%s: not within 20 s", what)
		}
	}
}

const table = api.TableID(2)

func info(id api.TableID) *wire.Table {
	return &wire.Table{ID: id, Name: "orders", First: []uint64{11, 12, 13}, Replicas: []wire.Replica{
		{Node: "a", ID: 11, Voter: true}, {Node: "b", ID: 12, Voter: true}, {Node: "c", ID: 13, Voter: true},
	}}
}

// open opens the table everywhere and has a node own it.
func (c *trio) open(lead string) *node {
	c.Helper()
	for _, n := range c.nodes {
		c.check(n.tables.Open(c.Context(), info(table)))
	}
	n := c.nodes[lead]
	n.host.Campaign(uint64(table))
	c.await("node "+lead+" owns the table", n.owns)
	for _, o := range c.nodes {
		c.await("node "+o.id+" knows it", func() bool { l, _ := o.tables.Local(table); return l.Leader == lead })
	}
	return n
}

func (n *node) owns() bool {
	l, ok := n.tables.Local(table)
	return ok && l.State.Owns
}

func request(op api.Op, key, value string) *api.Request {
	r := &api.Request{Op: op, Key: key, Value: []byte(value)}
	copy(r.ID[:], fmt.Sprint(op, key, value))
	return r
}

// code holds that an error is an *api.Error with that code.
func (c *trio) code(what string, err error, want api.Code) *api.Error {
	c.Helper()
	var e *api.Error
	if !errors.As(err, &e) || e.Code != want {
		c.Errorf("%s: %v, want %s", what, err, want)
		return &api.Error{}
	}
	return e
}

func TestRows(t *testing.T) {
	c := newTrio(t, 0)
	n := c.open("a")
	do := func(r *api.Request) (*api.Response, error) { return n.tables.Execute(t.Context(), table, r) }
	put, err := do(request(api.OpPut, "k", "one"))
	c.check(err)
	if !put.Found || put.Version.Table != table || put.Version.Index == 0 {
		t.Errorf("put: %+v", put)
	}
	again, err := do(request(api.OpPut, "k", "one"))
	if err != nil || again.Version != put.Version {
		t.Errorf("sent again: %+v, %v", again, err)
	}
	get, err := do(request(api.OpGet, "k", ""))
	if err != nil || !get.Found || string(get.Value) != "one" || get.Size != 3 || get.Version != put.Version {
		t.Errorf("get: %+v, %v", get, err)
	}
	head, err := do(request(api.OpHead, "k", ""))
	if err != nil || !head.Found || head.Value != nil || head.Size != 3 || head.Version != put.Version {
		t.Errorf("head: %+v, %v", head, err)
	}
	if get, err = do(request(api.OpGet, "none", "")); err != nil || get.Found {
		t.Errorf("get of nothing: %+v, %v", get, err)
	}
	r := request(api.OpPut, "k", "two")
	r.IfMatch = []api.Version{{Table: table, Index: put.Version.Index + 1}}
	_, err = do(r)
	if e := c.code("another version is there", err, api.CodePreconditionFailed); e.At != put.Version {
		t.Errorf("the version that is there: %v, want %v", e.At, put.Version)
	}
	for i, v := range []api.Version{{Table: table + 1, Index: put.Version.Index}, {Table: table}} {
		r = request(api.OpPut, "k", fmt.Sprint("three", i))
		r.IfMatch = []api.Version{v}
		_, err = do(r)
		c.code("a tag of another table, or of none", err, api.CodePreconditionFailed)
	}
	r = request(api.OpPut, "k", "four")
	r.IfMatch = []api.Version{{Table: 9}, put.Version}
	_, err = do(r)
	c.check(err)
	r = request(api.OpPut, "k", "five")
	r.IfNoneMatch = true
	_, err = do(r)
	c.code("a row is there", err, api.CodePreconditionFailed)
	r = request(api.OpPut, "other", "x")
	r.ID = request(api.OpPut, "k", "one").ID
	_, err = do(r)
	c.code("an id of another request", err, api.CodeIDReused)
	_, err = do(request(api.OpDelete, "k", ""))
	c.check(err)
	if gone, err := do(request(api.OpGet, "k", "")); err != nil || gone.Found {
		t.Errorf("after the delete: %+v, %v", gone, err)
	}
}

// TestBatch writes rows together, and again, and what no replica would take.
func TestBatch(t *testing.T) {
	c := newTrio(t, 0)
	a := c.open("a")
	do := func(r *api.Request) (*api.Response, error) { return a.tables.Execute(t.Context(), table, r) }
	_, err := do(request(api.OpPut, "gone", "x"))
	c.check(err)
	batch := &api.Request{Op: api.OpBatch, ID: api.RequestID{7}, Changes: []api.Change{
		{Key: "one", Value: []byte("1")}, {Key: "gone", Delete: true}, {Key: "large", Value: make([]byte, api.MaxValue)},
	}}
	done, err := do(batch)
	c.check(err)
	for key, size := range map[string]int{"one": 1, "large": api.MaxValue} {
		if row, bad := do(request(api.OpGet, key, "")); bad != nil || row.Version != done.Version || row.Size != size {
			t.Errorf("row %s: version %v, want %v, %d bytes, %v", key, row.Version, done.Version, row.Size, bad)
		}
	}
	if row, bad := do(request(api.OpGet, "gone", "")); bad != nil || row.Found {
		t.Errorf("a row that the batch deleted: %+v, %v", row, bad)
	}
	if again, bad := do(batch); bad != nil || again.Version != done.Version {
		t.Errorf("sent again: %+v, %v", again, bad)
	}
	page, err := do(&api.Request{Op: api.OpScan, Range: api.Range{From: "m", Limit: 9}})
	if err != nil || len(page.Rows) != 1 || page.More || page.Rows[0].Key != "one" || page.Rows[0].Version != done.Version {
		t.Errorf("a scan: %+v, %v", page, err)
	}
	other := *batch
	other.Changes = batch.Changes[:2]
	_, err = do(&other)
	c.code("an id of another batch", err, api.CodeIDReused)
	full := &api.Request{Op: api.OpBatch, ID: api.RequestID{8}}
	for range api.MaxBatch / api.MaxValue {
		full.Changes = append(full.Changes, batch.Changes[2])
	}
	_, err = do(full)
	c.code("a batch past its limit", err, api.CodeTooLarge)
}

func TestNotTheOwner(t *testing.T) {
	c := newTrio(t, 0)
	a := c.open("a")
	for _, op := range []api.Op{api.OpGet, api.OpPut} {
		_, err := c.nodes["b"].tables.Execute(t.Context(), table, request(op, "k", "v"))
		if e := c.code("a follower", err, api.CodeStaleOwner); e.Owner != "a" {
			t.Errorf("a follower names %q as the owner", e.Owner)
		}
		_, err = a.tables.Execute(t.Context(), 99, request(op, "k", "v"))
		c.code("a table that is not here", err, api.CodeStaleOwner)
	}
	if err := a.tables.Open(t.Context(), &wire.Table{ID: 9, Name: "elsewhere", First: []uint64{1}, Replicas: []wire.Replica{{Node: "z", ID: 1, Voter: true}}}); err == nil ||
		!strings.Contains(err.Error(), "table elsewhere: no replica belongs on a") {
		t.Errorf("a table of other nodes was opened: %v", err)
	}
	if a.tables.Observe(rafthost.Event{Group: 9}) || !a.tables.Observe(rafthost.Event{Group: uint64(table)}) {
		t.Error("Observe does not tell its tables from others")
	}
}

// TestLocalReads read what the replica has, whoever leads or nobody.
func TestLocalReads(t *testing.T) {
	c := newTrio(t, 0)
	a := c.open("a")
	_, err := a.tables.Execute(t.Context(), table, request(api.OpPut, "k", "one"))
	c.check(err)
	local := request(api.OpGet, "k", "")
	local.Local = true
	scan := &api.Request{Op: api.OpScan, Local: true, Range: api.Range{Limit: 1}}
	for id, n := range c.nodes {
		c.await("a scan finds the row on "+id, func() bool {
			r, e := n.tables.Execute(t.Context(), table, scan)
			return e == nil && len(r.Rows) == 1 && string(r.Rows[0].Value) == "one" && r.Lag == 0
		})
		c.await("the row is on "+id, func() bool {
			r, e := n.tables.Execute(t.Context(), table, local)
			return e == nil && string(r.Value) == "one" && r.Lag == 0
		})
	}
	c.isolate("c")
	_, err = a.tables.Execute(t.Context(), table, request(api.OpPut, "k", "two"))
	c.check(err)
	r, err := c.nodes["c"].tables.Execute(t.Context(), table, local)
	if err != nil || string(r.Value) != "one" {
		t.Errorf("a node that is cut off reads %+v, %v", r, err)
	}
	c.cut(nil)
	c.await("the row is on c", func() bool {
		r, err := c.nodes["c"].tables.Execute(t.Context(), table, local)
		return err == nil && string(r.Value) == "two"
	})
}

// TestWithoutAQuorum cuts the owner off: a write that was appended is unknown,
// all else was not done.
func TestWithoutAQuorum(t *testing.T) {
	c := newTrio(t, 0)
	a := c.open("a")
	c.isolate("a")
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := a.tables.Execute(short, table, request(api.OpPut, "k", "v"))
	c.code("a write that ran out of time", err, api.CodeOutcomeUnknown)
	for _, op := range []api.Op{api.OpGet, api.OpScan} {
		_, err = a.tables.Execute(short, table, request(op, "k", ""))
		if code := api.CodeOf(err); code != api.CodeNoOwner && code != api.CodeStaleOwner {
			t.Errorf("a %s that ran out of time: %v", op, err)
		}
	}
	// Given time, check-quorum deposes the owner.
	_, err = a.tables.Execute(t.Context(), table, request(api.OpPut, "k", "w"))
	if code := api.CodeOf(err); code != api.CodeOutcomeUnknown && code != api.CodeStaleOwner {
		t.Errorf("a write to an owner that is deposed: %v", err)
	}
	c.await("the owner is deposed", func() bool { return !a.owns() })
	_, err = a.tables.Execute(t.Context(), table, request(api.OpPut, "k", "x"))
	c.code("a write to a former owner", err, api.CodeStaleOwner)
}

func TestBusyAndStopped(t *testing.T) {
	c := newTrio(t, 0)
	a := c.open("a")
	// A host that does not run takes in what it may.
	db, err := store.Open("db", store.Options{FS: vfs.NewMem()})
	c.check(err)
	s, err := rafthost.NewStepper(rafthost.Options{DB: db, Sender: a})
	c.check(err)
	still := owner.New(owner.Options{Node: "a", DB: db, Host: rafthost.NewHost(s, 0)})
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err = still.Open(over, info(table)); err == nil {
		t.Fatal("a host that does not run opened a table")
	}
	if _, open := still.Local(table); open {
		t.Error("a table that could not be opened is there")
	}
	c.check(db.Close())

	b := c.nodes["b"]
	b.stop()
	b.tables.Observe(rafthost.Event{Group: uint64(table), State: rafthost.State{Leads: true, Owns: true}})
	_, err = b.tables.Execute(t.Context(), table, request(api.OpPut, "k", "v"))
	c.code("a write to a node that stops", err, api.CodeNoOwner)
	_, err = b.tables.Execute(t.Context(), table, request(api.OpGet, "k", ""))
	c.code("a read from a node that stops", err, api.CodeNoOwner)
}

// blocked is a sender that stands still until it is let go, and the loop with it.
type blocked struct{ let chan struct{} }

func (b blocked) Send(string, []byte) { <-b.let }

func TestFullInboxIsTooMany(t *testing.T) {
	c := newTrio(t, 0)
	db, err := store.Open("db", store.Options{FS: vfs.NewMem()})
	c.check(err)
	let := make(chan struct{})
	s, err := rafthost.NewStepper(rafthost.Options{DB: db, Sender: blocked{let}})
	c.check(err)
	h := rafthost.NewHost(s, 0)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- h.Run(ctx) }()
	tables := owner.New(owner.Options{Node: "a", DB: db, Host: h})
	c.check(tables.Open(t.Context(), info(table)))
	tables.Observe(rafthost.Event{Group: uint64(table), State: rafthost.State{Leads: true, Owns: true}})
	h.Campaign(uint64(table)) // stops the loop in Send
	over, stop := context.WithCancel(t.Context())
	stop()
	var last error
	for range 1 << 18 {
		if _, last = tables.Execute(over, table, request(api.OpPut, "k", "v")); api.CodeOf(last) == api.CodeTooMany {
			break
		}
	}
	if e := c.code("a write to a full inbox", last, api.CodeTooMany); e.RetryAfter <= 0 {
		t.Error("it does not say when to try again")
	}
	cancel()
	close(let)
	c.check(<-done)
	c.check(db.Close())
}

func TestHandOver(t *testing.T) {
	c := newTrio(t, 0)
	a := c.open("a")
	if err := a.tables.HandOver(t.Context(), 99, "b"); !errors.Is(err, rafthost.ErrNoGroup) {
		t.Errorf("of a table that is not here: %v", err)
	}
	if err := a.tables.HandOver(t.Context(), table, "z"); !errors.Is(err, owner.ErrBehind) {
		t.Errorf("to a node without a replica: %v", err)
	}
	if err := c.nodes["b"].tables.HandOver(t.Context(), table, "c"); !errors.Is(err, owner.ErrBehind) {
		t.Errorf("by a node that does not own the table: %v", err)
	}
	// c answers heartbeats and gets no entries.
	c.cut(func(_, to string, m wire.RaftMessage) bool { return to == "c" && m.GetType() == pb.MsgApp })
	for i := range owner.Reach + 2 {
		_, err := a.tables.Execute(t.Context(), table, request(api.OpPut, fmt.Sprint("k", i), "v"))
		c.check(err)
	}
	if err := a.tables.HandOver(t.Context(), table, "c"); !errors.Is(err, owner.ErrBehind) {
		t.Errorf("to a replica that lacks too much: %v", err)
	}
	if !a.owns() {
		t.Fatal("a hand-over that was refused lost the table")
	}
	c.cut(nil)
	// It may be that b has not answered since the last check of the quorum.
	c.await("the hand-over to b", func() bool { return a.tables.HandOver(t.Context(), table, "b") == nil })
	c.await("b owns the table", c.nodes["b"].owns)
	r, err := c.nodes["b"].tables.Execute(t.Context(), table, request(api.OpGet, "k7", ""))
	if err != nil || string(r.Value) != "v" {
		t.Errorf("a row after the hand-over: %+v, %v", r, err)
	}
	_, err = a.tables.Execute(t.Context(), table, request(api.OpPut, "k", "v"))
	if e := c.code("the former owner", err, api.CodeStaleOwner); e.Owner != "b" && e.Owner != "" {
		t.Errorf("it names %q", e.Owner)
	}
}

// TestBehindIsNoTarget hands a table to a replica that gets no entries: nothing happens
// to the table. Without the look at how far the replica is, whoever writes waits until
// the hand-over has failed.
func TestBehindIsNoTarget(t *testing.T) {
	waited := func(anyTarget bool) (wait time.Duration, err error) {
		synctest.Test(t, func(t *testing.T) {
			c := newTrioWith(t, owner.Options{AnyTarget: anyTarget})
			a := c.open("a")
			c.cut(func(_, to string, m wire.RaftMessage) bool { return to == "c" && m.GetType() == pb.MsgApp })
			for i := range owner.Reach + 2 {
				_, e := a.tables.Execute(t.Context(), table, request(api.OpPut, fmt.Sprint("k", i), "v"))
				c.check(e)
			}
			over := make(chan error, 1)
			go func() { over <- a.tables.HandOver(t.Context(), table, "c") }()
			synctest.Wait()
			began := time.Now()
			_, e := a.tables.Execute(t.Context(), table, request(api.OpPut, "meanwhile", "v"))
			c.check(e)
			err, wait = <-over, time.Since(began)
		})
		return wait, err
	}
	if wait, err := waited(false); !errors.Is(err, owner.ErrBehind) || wait > 0 {
		t.Errorf("the hand-over ended with %v, and a write waited for %s", err, wait)
	}
	if wait, err := waited(true); errors.Is(err, owner.ErrBehind) || wait < 100*time.Millisecond {
		t.Errorf("with the fault the hand-over ended with %v, and a write waited for %s: this test cannot find it", err, wait)
	}
}

// TestHoldKeepsTheTableBack: the fault does what it is for.
func TestHoldKeepsTheTableBack(t *testing.T) {
	c := newTrio(t, time.Hour)
	a := c.open("a")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	c.await("b is level", func() bool { to, err := a.host.Level(t.Context(), uint64(table), "b", 0); return err == nil && to != 0 })
	go func() { done <- a.tables.HandOver(ctx, table, "b") }()
	c.await("the table is held", func() bool {
		_, err := a.tables.Execute(t.Context(), table, request(api.OpGet, "k", ""))
		return api.CodeOf(err) == api.CodeNoOwner
	})
	cancel()
	<-done
	c.await("the table is served again", func() bool {
		for _, n := range c.nodes {
			if _, err := n.tables.Execute(t.Context(), table, request(api.OpGet, "k", "")); err == nil {
				return true
			}
		}
		return false
	})
}

func TestDrop(t *testing.T) {
	c := newTrio(t, 0)
	a := c.open("a")
	_, err := a.tables.Execute(t.Context(), table, request(api.OpPut, "k", "v"))
	c.check(err)
	c.check(a.tables.Open(t.Context(), &wire.Table{ID: 7, Name: "late", First: []uint64{90}, Replicas: []wire.Replica{{Node: "a", ID: 90, Voter: true}}}))
	if all := a.tables.All(); len(all) != 2 || all[0].ID != table || all[1].ID != 7 {
		t.Errorf("%+v", all)
	}
	c.check(a.tables.Drop(t.Context(), table))
	c.check(a.tables.Drop(t.Context(), table)) // again
	if _, open := a.tables.Local(table); open {
		t.Error("a dropped table is open")
	}
	lo, hi := store.GroupRange(uint64(table))
	c.check(a.db.Scan(lo, hi, func(k, _ []byte) error {
		t.Errorf("a dropped table left %x", k)
		return nil
	}))
	_, err = a.tables.Execute(t.Context(), table, request(api.OpGet, "k", ""))
	c.code("a dropped table", err, api.CodeStaleOwner)
	if err := a.tables.Open(t.Context(), info(table)); err == nil || !strings.Contains(err.Error(), "was removed from this disk") {
		t.Errorf("a dropped replica came back: %v", err)
	}
	if _, open := a.tables.Local(table); open {
		t.Error("a table that could not be opened is open")
	}
}

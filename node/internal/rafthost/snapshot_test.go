package rafthost_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/raftlog"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// Ship implements rafthost.Shipper: it waits until the test carries it.
func (n *node) Ship(s rafthost.Shipment) { n.owed = append(n.owed, s) }

// arriving has applied what a snapshot brings.
type arriving struct {
	n     *node
	m     *machine
	whole bool
}

// Add implements rafthost.Arriving.
func (a *arriving) Add(key, value []byte) error {
	a.outside()
	a.m.applied = append(a.m.applied, rafthost.Entry{Index: binary.BigEndian.Uint64(key[1:]), Data: slices.Clone(value)})
	return nil
}

// Done implements rafthost.Arriving.
func (a *arriving) Done() error {
	a.outside()
	a.whole = true
	return nil
}

func (a *arriving) outside() {
	if a.n.passing || a.whole {
		a.n.f.Errorf("%s is given what a snapshot brings by the loop, or after its end", a.n.id)
	}
}

// Machine implements rafthost.Arriving.
func (a *arriving) Machine() (rafthost.Machine, error) {
	if !a.n.passing && !a.n.hosted || !a.whole {
		a.n.f.Errorf("%s takes over a snapshot outside the loop, or before it is whole", a.n.id)
	}
	a.n.machines[a.m.group] = a.m
	return a.m, nil
}

// texts are what a replica has in its database, in order.
func (n *node) texts(group uint64) []string {
	n.f.Helper()
	var out []string
	n.f.check(n.db.Scan(store.GroupKey(group, store.SubState), store.GroupEnd(group, store.SubState), func(_, v []byte) error {
		out = append(out, string(v[16:]))
		return nil
	}))
	return out
}

// log returns the bounds of a replica's log on the disk: of the entry before its
// first, and of its last.
func (n *node) log(group uint64) (start, last uint64) {
	n.f.Helper()
	l, err := raftlog.Open(n.db, group, raftlog.NewCache(0))
	n.f.check(err)
	return l.Start(), l.Last()
}

// parts returns a shipment in its parts, as the database has it now.
func (n *node) parts(s rafthost.Shipment, defect rafthost.Defect) [][]byte {
	n.f.Helper()
	e, err := rafthost.NewExport(n.db, s, defect)
	n.f.check(err)
	defer func() { n.f.check(e.Close()) }()
	var out [][]byte
	for {
		part, err := e.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		n.f.check(err)
		out = append(out, part)
	}
}

// stage puts a snapshot beside a node's database.
func (n *node) stage(parts [][]byte) *rafthost.Stage {
	n.f.Helper()
	return n.stageIn(parts, n.stepper.Arrive)
}

// stageIn is stage with what takes the pairs in.
func (n *node) stageIn(parts [][]byte, arrive func(group, replica uint64) (rafthost.Arriving, error)) *rafthost.Stage {
	n.f.Helper()
	st, err := rafthost.NewStage(n.db, "staging/1", parts[0], arrive)
	n.f.check(err)
	whole := false
	for _, p := range parts[1:] {
		whole, err = st.Take(p)
		n.f.check(err)
	}
	if !whole {
		n.f.Fatal("the snapshot has no end")
	}
	return st
}

// carry brings the one shipment that a node owes, and says how it ended.
func (f *fabric) carry(from *node) (rafthost.Shipment, *reply) {
	f.Helper()
	if len(from.owed) != 1 {
		f.Fatalf("%s owes %d snapshots, want 1", from.id, len(from.owed))
	}
	s := from.owed[0]
	from.owed = nil
	to := f.node(s.Node)
	st := to.stage(from.parts(s, f.defect))
	r := &reply{}
	to.stepper.Install(st, r.ended)
	f.settle()
	f.check(st.Drop())
	from.stepper.ReportSnapshot(s, r.err == nil)
	f.settle()
	return s, r
}

// ticks moves the clocks far enough for logs to be looked at, and told of, twice.
func (f *fabric) ticks() {
	f.Helper()
	for range 40 {
		f.tick()
	}
}

// behind makes the third node lack what the log of the first, which leads, no
// longer has, and returns what was written.
func (f *fabric) behind(group uint64) (lead, follower *node, want []string) {
	f.Helper()
	lead, follower = f.elect(1), f.nodes[2]
	write := func(text string) {
		f.Helper()
		r := lead.propose(group, text)
		f.settle()
		f.is("a write", r, nil)
		want = append(want, text)
	}
	write("before")
	f.tick()
	f.isolate(follower.id)
	for i := range 40 {
		write(fmt.Sprintf("%02d %s", i, strings.Repeat("x", 8<<10)))
	}
	f.ticks()
	f.drop = nil
	return lead, follower, want
}

// TestLogsAreCut writes and then rests: what all replicas have goes from all logs,
// with nobody writing. What a dead one lacks stays, up to the bound.
func TestLogsAreCut(t *testing.T) {
	f := newFabric(t, 1)
	f.logBytes = 128 << 10
	for _, n := range f.nodes {
		n.crash() // with the bound
	}
	lead, follower, _ := f.behind(1)
	start, last := lead.log(1)
	if start < 10 || start > last-8 {
		t.Errorf("with 320 KiB of entries that a dead replica lacks and a bound of 128 the log of the leader has (%d, %d]", start, last)
	}
	if start, last := f.nodes[1].log(1); start < 10 || start > last-8 {
		t.Errorf("and that of a follower has (%d, %d]", start, last)
	}
	for range 30 { // the clocks go on until raft asks
		if f.tick(); len(lead.owed) > 0 {
			break
		}
	}
	_, r := f.carry(lead)
	f.is("the install", r, nil)
	f.ticks()
	for _, n := range f.nodes {
		if start, last := n.log(1); start != last || last != 42 {
			t.Errorf("all have all, and the log of %s has (%d, %d]", n.id, start, last)
		}
		n.crash()
	}
	next := f.elect(3)
	if next != follower {
		t.Fatal("not the follower")
	}
	w := next.propose(1, "after")
	f.settle()
	f.is("a write on empty logs", w, nil)
}

// TestShortBoundKeepsAll holds that entries which a replica lacks stay while the
// log is within its bound.
func TestShortBoundKeepsAll(t *testing.T) {
	f := newFabric(t, 1)
	lead, follower, want := f.behind(1)
	if start, _ := lead.log(1); start > 2 {
		t.Errorf("the log begins behind entry %d, and a dead replica has 2", start)
	}
	f.ticks()
	if len(lead.owed) > 0 {
		t.Error("a snapshot is owed to a replica that the log can serve")
	}
	if got := follower.texts(1); !slices.Equal(got, want) {
		t.Errorf("the follower has %d texts, want %d", len(got), len(want))
	}
}

// TestSnapshot brings a replica that is behind the start of the log to the
// leader's state, and checks that it goes on from there, also after a crash right
// behind the answer.
func TestSnapshot(t *testing.T) {
	f := newFabric(t, 1, 2)
	f.logBytes = 64 << 10
	for _, n := range f.nodes {
		n.crash()
	}
	lead, follower, want := f.behind(1)
	other := lead.propose(2, "other")
	f.settle()
	f.is("a write of another group", other, nil)
	for len(lead.owed) == 0 {
		f.tick()
	}
	more := lead.propose(1, "while it waits")
	f.settle()
	f.is("a write while it waits", more, nil)
	want = append(want, "while it waits")
	s, r := f.carry(lead)
	f.is("the install", r, nil)
	if s.To != replica(1, 3) || s.Node != "n3" || s.From != replica(1, 1) {
		t.Errorf("shipped: %+v", s)
	}
	check := func(when string) {
		t.Helper()
		if got := follower.texts(1); !slices.Equal(got, want) {
			t.Errorf("%s the follower has %d texts, want %d", when, len(got), len(want))
		}
	}
	check("after the snapshot")
	follower.crash()
	check("after a crash")
	p, _ := follower.stepper.Progress(1)
	if p.Applied != 43 || p.Commit < 43 {
		t.Errorf("after a crash it is at %+v", p)
	}
	f.tick()
	after := lead.propose(1, "after")
	f.settle()
	f.tick()
	f.tick()
	f.is("a write after", after, nil)
	want = append(want, "after")
	check("in the end")
	if got := follower.texts(2); !slices.Equal(got, []string{"other"}) {
		t.Errorf("of the other group the follower has %q", got)
	}
	if len(lead.owed) > 0 {
		t.Error("it owes another snapshot")
	}
}

// TestSnapshotIsRefused offers what raft does not want, or what is for somebody
// else: the replica is as it was, and answers once.
func TestSnapshotIsRefused(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	w := lead.propose(1, "x")
	f.settle()
	f.tick()
	f.is("a write", w, nil)
	follower := f.nodes[1]
	for _, test := range []struct {
		name     string
		from, to uint64
		want     error
	}{
		{"it has all", replica(1, 1), replica(1, 2), rafthost.ErrUnwanted},
		{"of another replica", replica(1, 1), replica(1, 3), rafthost.ErrNoGroup},
		{"of a stranger", 99, replica(1, 2), rafthost.ErrNoGroup},
		{"of itself", replica(1, 2), replica(1, 2), rafthost.ErrNoGroup},
	} {
		s := rafthost.Shipment{Group: 1, From: test.from, To: test.to, Term: lead.state[1].Term, Node: follower.id}
		st := follower.stageIn(lead.parts(s, rafthost.Sound), func(group, _ uint64) (rafthost.Arriving, error) {
			return follower.stepper.Arrive(group, replica(1, 2)) // the replica was another one when it began
		})
		r := &reply{}
		follower.stepper.Install(st, r.ended)
		f.settle()
		f.is(test.name, r, test.want)
		f.check(st.Drop())
	}
	if got := follower.texts(1); !slices.Equal(got, []string{"x"}) {
		t.Errorf("the follower has %q", got)
	}
	_, err := rafthost.NewExport(lead.db, rafthost.Shipment{Group: 1, From: 1, To: 2}, rafthost.Sound)
	if err == nil {
		t.Error("a leader of an earlier term than the state's sends it")
	}
}

// TestUnsoundShipsNothing: a replica that differs from the others gives its state to
// nobody, also if that is found out while it leaves. One that takes its place does.
func TestUnsoundShipsNothing(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	w := lead.propose(1, "x")
	f.settle()
	f.is("a write", w, nil)
	s := rafthost.Shipment{Group: 1, From: replica(1, 1), To: replica(1, 2), Term: lead.state[1].Term, Node: "b"}
	e, err := rafthost.NewExport(lead.db, s, rafthost.Sound)
	f.check(err)
	defer func() { f.check(e.Close()) }()
	_, err = e.Next()
	f.check(err)
	mark := func(replica uint64) {
		b := lead.db.NewBatch()
		rafthost.MarkUnsound(b, 1, replica)
		f.check(b.Commit(true))
	}
	mark(s.From)
	for err == nil {
		_, err = e.Next()
	}
	if errors.Is(err, io.EOF) {
		t.Error("what it had begun to send has come to its end")
	}
	if _, err = rafthost.NewExport(lead.db, s, rafthost.Sound); err == nil {
		t.Error("it begins to send its state")
	}
	mark(s.From + 1)
	lead.parts(s, rafthost.Sound)
}

// TestStageChecks damages a snapshot on its way.
func TestStageChecks(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	for i := range 100 {
		lead.propose(1, fmt.Sprintf("%02d %s", i, strings.Repeat("x", 8<<10)))
	}
	f.settle()
	s := rafthost.Shipment{Group: 1, From: replica(1, 1), To: replica(1, 2), Term: lead.state[1].Term, Node: "n2"}
	parts := lead.parts(s, rafthost.Sound)
	if len(parts) < 5 {
		t.Fatalf("the snapshot has %d parts", len(parts))
	}
	end := len(parts) - 1
	damage := func(at, offset int) func([][]byte) [][]byte {
		return func(p [][]byte) [][]byte {
			p[at] = slices.Clone(p[at])
			p[at][offset] ^= 1
			return p
		}
	}
	for _, test := range []struct {
		name   string
		change func([][]byte) [][]byte
	}{
		{"a part is missing", func(p [][]byte) [][]byte { return slices.Delete(p, 2, 3) }},
		{"the first part with pairs is missing", func(p [][]byte) [][]byte { return slices.Delete(p, 1, 2) }},
		{"a part came twice", func(p [][]byte) [][]byte { return slices.Insert(p, 2, p[1]) }},
		{"parts are out of order", func(p [][]byte) [][]byte { p[1], p[2] = p[2], p[1]; return p }},
		{"a bit of a value", damage(1, 1000)},
		{"a bit of the checksum", damage(end, 3)},
		{"a part of a kind that nobody knows", damage(2, 0)},
		{"a part after the end", func(p [][]byte) [][]byte { return append(p, p[1]) }},
	} {
		st, err := rafthost.NewStage(f.nodes[1].db, "staging/1", parts[0], f.nodes[1].stepper.Arrive)
		f.check(err)
		whole := false
		for _, p := range test.change(slices.Clone(parts))[1:] {
			var w bool
			if w, err = st.Take(p); err != nil {
				break
			}
			whole = whole || w
		}
		if err == nil {
			t.Errorf("%s: it is taken, whole: %t", test.name, whole)
		}
		f.check(st.Drop())
		if _, err := f.nodes[1].fs.Stat("staging/1"); err == nil {
			t.Errorf("%s: the stage is still there", test.name)
		}
	}
	if _, err := rafthost.NewStage(f.nodes[1].db, "staging/1", parts[1], f.nodes[1].stepper.Arrive); err == nil {
		t.Error("a snapshot begins with pairs")
	}
	s.To = replica(1, 3) // of another node, as one that comes later would be
	if _, err := rafthost.NewStage(f.nodes[1].db, "staging/1", lead.parts(s, rafthost.Sound)[0], f.nodes[1].stepper.Arrive); !errors.Is(err, rafthost.ErrNoGroup) {
		t.Errorf("a snapshot for a replica that is not here: %v", err)
	}
}

// TestSnapshotDefects breaks what makes snapshots and short logs safe, one at a
// time. Each look must find its defect, and nothing in the engine as it is.
func TestSnapshotDefects(t *testing.T) {
	for _, test := range []struct {
		name   string
		defect rafthost.Defect
		look   func(f *fabric) string // what is wrong; "": nothing
	}{
		{"acknowledged before the ingest", rafthost.AckBeforeIngest, earlyAck},
		{"vote overwritten by an ingest", rafthost.VoteNotInIngest, lostVote},
		{"cut above applied", rafthost.CutAboveApplied, cutTooFar},
	} {
		for _, defect := range []rafthost.Defect{rafthost.Sound, test.defect} {
			t.Run(fmt.Sprintf("%s/%d", test.name, defect), func(t *testing.T) {
				f := newBroken(t, defect, 1)
				f.logBytes = 64 << 10
				for _, n := range f.nodes {
					n.crash()
				}
				switch found := test.look(f); {
				case defect == rafthost.Sound && found != "":
					t.Error(found)
				case defect != rafthost.Sound && found == "":
					t.Error("it was not found")
				default:
					t.Log(found)
				}
			})
		}
	}
}

// earlyAck looks at the disk when the follower's answer to a snapshot leaves it.
func earlyAck(f *fabric) string {
	f.Helper()
	lead, follower, _ := f.behind(1)
	for len(lead.owed) == 0 {
		f.tick()
	}
	var found []string
	looked := false
	f.sent = func(n *node, batch []byte) {
		if n == follower {
			found = append(found, broken(n, batch)...)
			f.check(wire.DecodeRaft(batch, func(m wire.RaftMessage) {
				looked = looked || m.GetType() == pb.MsgAppResp && m.GetIndex() >= 42
			}))
		}
	}
	f.carry(lead)
	f.sent = nil
	if !looked {
		f.Fatal("no answer to the snapshot was seen")
	}
	return strings.Join(found, "; ")
}

// lostVote has a follower vote in the term in which it then takes a snapshot, and
// asks it for another vote of that term after a crash.
func lostVote(f *fabric) string {
	f.Helper()
	lead, follower, _ := f.behind(1)
	for !lead.state[1].Owns || len(lead.owed) == 0 {
		f.tick()
	}
	// The leader goes on in a term in which the follower voted for it.
	lead.owed = nil
	term := lead.state[1].Term
	l, err := raftlog.Open(follower.db, 1, raftlog.NewCache(0))
	f.check(err)
	if h := l.Hard(); h.Term != term || h.Vote != replica(1, 1) {
		f.Fatalf("the follower's hard state is %+v, the leader's term %d", h, term)
	}
	s := rafthost.Shipment{Group: 1, From: replica(1, 1), To: replica(1, 3), Term: term, Node: follower.id}
	st := follower.stage(lead.parts(s, f.defect))
	r := &reply{}
	follower.stepper.Install(st, r.ended)
	for follower.stepper.Dirty() {
		follower.pass()
	}
	f.is("the install", r, nil)
	f.check(st.Drop())
	follower.crash()
	m := message(pb.MsgVote, 1, replica(1, 2), replica(1, 3), term)
	m.LogTerm, m.Index = new(uint64), new(uint64)
	*m.LogTerm, *m.Index = term, 1000
	m.Context = []byte("CampaignTransfer")
	follower.stepper.Receive("n2", m)
	for follower.stepper.Dirty() {
		follower.pass()
	}
	found := ""
	for _, p := range follower.out {
		f.check(wire.DecodeRaft(p.batch, func(m wire.RaftMessage) {
			if m.GetType() == pb.MsgVoteResp && !m.GetReject() {
				found = fmt.Sprintf("it votes twice in term %d", m.GetTerm())
			}
		}))
	}
	follower.out = nil
	return found
}

// cutTooFar keeps the news of a commit from a follower, tells it that all have its
// entries, and starts it again.
func cutTooFar(f *fabric) string {
	f.Helper()
	lead, follower := f.elect(1), f.nodes[2]
	w := lead.propose(1, "first")
	f.settle()
	f.tick()
	f.is("a write", w, nil)
	f.drop = func(_, to string, m wire.RaftMessage) bool {
		return to == follower.id && (m.GetType() == pb.MsgHeartbeat || m.GetType() == pb.MsgApp && len(m.GetEntries()) == 0)
	}
	w = lead.propose(1, "second")
	f.settle()
	f.is("a write", w, nil)
	if p, _ := follower.stepper.Progress(1); p.Last != 3 || p.Applied != 2 {
		f.Fatalf("the follower is at %+v", p)
	}
	word := message(wire.MsgCut, 1, replica(1, 1), replica(1, 3), 1)
	word.Index = new(uint64)
	*word.Index = 3
	f.isolate(follower.id)
	follower.stepper.Receive("n1", word)
	for range 20 {
		follower.stepper.Tick()
		for follower.stepper.Dirty() {
			follower.pass()
		}
	}
	b := follower.db.NewBatch()
	b.Set([]byte{0x01, 0x7f}, nil)
	f.check(b.Commit(true))
	db, err := store.Open("db", store.Options{FS: follower.fs.CrashClone(vfs.CrashCloneCfg{})})
	f.check(err)
	defer func() { f.check(db.Close()) }()
	l, err := raftlog.Open(db, 1, raftlog.NewCache(0))
	if err != nil {
		return err.Error()
	}
	if start := l.Start(); start != 2 {
		f.Errorf("its log begins behind entry %d, and all have 3, and 2 are applied", start)
	}
	return ""
}

package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/ready"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

func inc(node string, start uint64) api.Incarnation { return api.Incarnation{Node: node, Start: start} }

func founders() wire.Formation {
	f := wire.Formation{ClusterID: api.ClusterID{1}, Cluster: "prod"}
	for i, n := range []string{"a", "b", "c"} {
		f.Members = append(f.Members, wire.Founder{Node: n, Disk: api.DiskID{byte(i + 1)}, Address: "http://" + n})
	}
	return f
}

// world is the meta group's state of three members.
type world struct {
	t     *testing.T
	state *meta.State
	index uint64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	s, err := meta.Load(func(func(k, v []byte) bool) {})
	if err == nil {
		_, err = s.Genesis(founders())
	}
	if err != nil {
		t.Fatal(err)
	}
	return &world{t: t, state: s}
}

func (w *world) do(c wire.MetaCommand) {
	w.t.Helper()
	w.index++
	c.ID = newID()
	r, err := w.state.Apply(w.index, wire.AppendMetaCommand(nil, &c))
	if err == nil {
		err = r.Answer.Err()
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) lease(node string, start uint64) {
	w.t.Helper()
	m, _ := w.state.View().Member(node)
	w.do(wire.MetaCommand{Kind: wire.MetaGrantLease, Lease: wire.Lease{Disk: m.Disk, Incarnation: inc(node, start), Address: m.Address, Levels: wire.Levels()}})
}

// still is a cluster of node a that does not run.
func still(view *meta.View) *Cluster {
	f := founders()
	c := New(Options{
		Node: "a", Name: "prod", Members: map[string]string{"a": "http://a", "b": "http://b", "c": "http://c"}, Advertise: "http://a",
		Identity: Identity{Disk: api.DiskID{1}, Incarnation: inc("a", 5), Formation: &f}, Log: slog.New(slog.DiscardHandler),
		Host: rafthost.NewHost(&rafthost.Stepper{}, 0), // which takes calls and makes none
	})
	c.view.Store(view)
	return c
}

func TestAdmit(t *testing.T) {
	w := newWorld(t)
	w.lease("b", 7)
	w.do(wire.MetaCommand{Kind: wire.MetaNoteDisk, Seen: wire.Sighting{Disk: api.DiskID{2}, Incarnation: inc("b", 7), Pass: 50, At: time.Unix(1e9, 0)}})
	hello := func(set func(h *wire.Hello)) wire.Hello {
		h := wire.Hello{Kind: wire.ConnRaft, Cluster: "prod", ClusterID: api.ClusterID{1}, Disk: api.DiskID{2}, Incarnation: inc("b", 7), Pass: 40, Min: 1, Max: 1, Version: "v1"}
		set(&h)
		return h
	}
	for _, test := range []struct {
		name string
		set  func(h *wire.Hello)
		want string // "": admitted
	}{
		{"a member", func(*wire.Hello) {}, ""},
		{"a later start", func(h *wire.Hello) { h.Incarnation.Start, h.Pass = 8, 50 }, ""},
		{"a later start with an older pass", func(h *wire.Hello) { h.Incarnation.Start, h.Pass = 8, 49 }, "is older than the one that ran as node b until 2001-09-09T01:46:40Z: that had start 7 and pass 50, this comes with start 8 and pass 49"},
		{"an earlier start", func(h *wire.Hello) { h.Incarnation.Start, h.Pass = 6, 60 }, "is older than the one that ran as node b until 2001-09-09T01:46:40Z: that had start 7 and pass 50, this comes with start 6 and pass 60"},
		{"a copy", func(h *wire.Hello) { h.Incarnation.Suffix = 9 }, " ran as b.7.00000000, and comes as b.7.00000009 with the same start number: it is a copy of that one"},
		{"an older one without a cluster", func(h *wire.Hello) { h.ClusterID, h.Kind, h.Incarnation.Start = api.ClusterID{}, wire.ConnCall, 6 }, "is older than"},
		{"another disk", func(h *wire.Hello) { h.Disk = api.DiskID{9} }, "its data was replaced"},
		{"another cluster's name", func(h *wire.Hello) { h.Cluster = "test" }, `node b is of cluster "test", node a of cluster "prod"`},
		{"another cluster of the name", func(h *wire.Hello) { h.ClusterID = api.ClusterID{9} }, "one of the two data directories is another cluster's"},
		{"a stranger", func(h *wire.Hello) { h.Incarnation.Node = "d" }, `node d is not a member of cluster "prod"`},
		{"our id", func(h *wire.Hello) { h.Incarnation = inc("a", 6) }, "node id a is taken: a.5.00000000 runs here"},
		{"ourselves", func(h *wire.Hello) { h.Incarnation = inc("a", 5) }, ""},
		{"unformed, with raft", func(h *wire.Hello) { h.ClusterID = api.ClusterID{} }, "does not belong to a cluster yet"},
		{"unformed, with a call", func(h *wire.Hello) { h.ClusterID, h.Kind = api.ClusterID{}, wire.ConnCall }, ""},
	} {
		c := still(w.state.View())
		c.mu.meta.Lead() // it has missed nothing
		err := c.Admit(hello(test.set))
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
		if err == nil {
			continue
		}
		want := api.CodeForbidden
		for _, of := range []string{"is older than", "same start number"} {
			if strings.Contains(err.Error(), of) {
				want = api.CodeWrongDisk // the remote takes no part any more
			}
		}
		if api.CodeOf(err) != want {
			t.Errorf("%s: code %s, want %s", test.name, api.CodeOf(err), want)
		}
	}
	// A node that may have missed a change lets in whom it would refuse for that, but
	// no disk that it knows to be dead, and no disk that went back in time.
	b2 := wire.MetaCommand{Kind: wire.MetaAdmitNode, Joiner: wire.Founder{Node: "b", Disk: api.DiskID{9}, Address: "http://b"}}
	behind := still(w.state.View())
	for name, set := range map[string]func(h *wire.Hello){
		"another disk": func(h *wire.Hello) { h.Disk, h.Incarnation.Start = api.DiskID{9}, 1 },
		"a stranger":   func(h *wire.Hello) { h.Incarnation = inc("d", 1) },
	} {
		if err := behind.Admit(hello(set)); err != nil {
			t.Errorf("%s, by a node that is behind: %v", name, err)
		}
	}
	w.do(wire.MetaCommand{Kind: wire.MetaExpireLease, Incarnation: inc("b", 7)})
	w.do(wire.MetaCommand{Kind: wire.MetaReplaceDisk, Node: "b"})
	w.do(b2)
	dead := still(w.state.View())
	if err := dead.Admit(hello(func(h *wire.Hello) { h.Incarnation.Start = 8 })); err == nil || !strings.Contains(err.Error(), "dead for ever") {
		t.Errorf("a disk that was replaced: %v", err)
	}
	if err := dead.Admit(hello(func(h *wire.Hello) { h.Disk, h.Incarnation.Start = api.DiskID{9}, 1 })); err != nil {
		t.Errorf("the disk in its place: %v", err)
	}
	// A node that has not read the members yet knows no strangers.
	if err := still(&meta.View{}).Admit(hello(func(h *wire.Hello) { h.Incarnation.Node = "d" })); err != nil {
		t.Errorf("before the members are known: %v", err)
	}
}

// TestLeasesRunOut holds when the meta leader calls a lease dead.
func TestLeasesRunOut(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(d time.Duration) time.Time { return start.Add(d) }
	held := []wire.Lease{{Incarnation: inc("b", 1)}, {Incarnation: inc("c", 1)}}
	look := func(l *leases, from, to time.Duration) []api.Incarnation {
		for d := from; d <= to; d += 250 * time.Millisecond {
			if dead := l.dead(held, at(d)); dead != nil {
				return dead
			}
		}
		return nil
	}
	fresh := func() *leases {
		l := &leases{}
		l.reset()
		return l
	}

	l := &leases{}
	l.renew(inc("b", 1), start)
	if dead := look(l, 0, time.Hour); dead != nil {
		t.Errorf("before it leads, it calls %v dead", dead)
	}
	l = fresh()
	if dead := look(l, 0, leaseTTL+leaseSkew); dead != nil {
		t.Errorf("a new leader calls %v dead within ttl and skew", dead)
	}
	if dead := l.dead(held, at(leaseTTL+leaseSkew+time.Millisecond)); len(dead) != 2 {
		t.Errorf("after ttl and skew %v are dead, want both", dead)
	}

	l = fresh()
	for s := range 20 {
		l.renew(inc("b", 1), at(time.Duration(s)*time.Second))
		if dead := look(l, time.Duration(s)*time.Second, time.Duration(s)*time.Second+750*time.Millisecond); s < 3 && dead != nil || s > 4 && fmt.Sprint(dead) != fmt.Sprint([]api.Incarnation{inc("c", 1)}) {
			t.Fatalf("after %d s: %v are dead, and c alone does not renew", s, dead)
		}
	}

	// The leader stands still for a minute, and renewals wait in its sockets.
	l = fresh()
	look(l, 0, 2*time.Second)
	if dead := look(l, time.Minute, time.Minute+time.Second); dead != nil {
		t.Errorf("right after a stall %v are dead: nobody could have renewed", dead)
	}
	if dead := look(l, time.Minute+time.Second+250*time.Millisecond, 2*time.Minute); len(dead) != 2 {
		t.Errorf("long after a stall %v are dead, want both", dead)
	}

	l = fresh()
	look(l, 0, 3*time.Second)
	l.reset()
	if dead := look(l, 3250*time.Millisecond, 6500*time.Millisecond); dead != nil {
		t.Errorf("a leader that was elected again calls %v dead", dead)
	}
}

func TestDirectory(t *testing.T) {
	var d directory
	d.init()
	owned := func(table api.TableID, term, frontier uint64) wire.Owned {
		return wire.Owned{Table: table, Term: term, Frontier: frontier}
	}
	is := func(what string, table api.TableID, by api.Incarnation, term uint64) {
		t.Helper()
		if c := d.claim(table); c.by != by || c.term != term {
			t.Errorf("%s: table %d is owned by %v in term %d, want %v in %d", what, table, c.by, c.term, by, term)
		}
	}
	heard := func(from api.Incarnation, hb wire.Heartbeat, want bool) {
		t.Helper()
		if got := d.heard(from, &hb); got != want {
			t.Errorf("%+v of %v changed something: %t, want %t", hb, from, got, want)
		}
	}
	b1, b2, c1 := inc("b", 1), inc("b", 2), inc("c", 1)
	heard(b1, wire.Heartbeat{Full: true, Owned: []wire.Owned{owned(2, 5, 40), owned(3, 5, 41)}}, true)
	is("the first claim", 2, b1, 5)
	if c := d.claim(2); c.frontier != (ready.Frontier{Term: 5, Index: 40}) {
		t.Errorf("its frontier is %+v", c.frontier)
	}
	heard(b1, wire.Heartbeat{}, false)
	heard(b1, wire.Heartbeat{Owned: []wire.Owned{owned(2, 5, 99)}}, false)
	if c := d.claim(2); c.frontier.Index != 99 {
		t.Errorf("after a later word its frontier is %+v", c.frontier)
	}
	heard(c1, wire.Heartbeat{Owned: []wire.Owned{owned(2, 4, 50)}}, false)
	is("a lower term", 2, b1, 5)
	heard(c1, wire.Heartbeat{Owned: []wire.Owned{owned(2, 6, 50)}}, true)
	is("a higher term", 2, c1, 6)
	heard(b1, wire.Heartbeat{Gone: []api.TableID{2}}, false)
	is("the word of one who owns it no longer", 2, c1, 6)
	heard(b1, wire.Heartbeat{Full: true}, true)
	is("all of b's are gone", 3, api.Incarnation{}, 0)
	is("and c's is not", 2, c1, 6)
	heard(b1, wire.Heartbeat{Owned: []wire.Owned{owned(3, 7, 1)}}, true)
	if !d.dead("b", b2) {
		t.Error("a new incarnation did not end the older one's claims")
	}
	is("after a new incarnation", 3, api.Incarnation{}, 0)
	heard(b2, wire.Heartbeat{Owned: []wire.Owned{owned(3, 8, 1)}}, true)
	if d.dead("b", b2) || d.dead("z", inc("z", 1)) {
		t.Error("nothing died, and something changed")
	}
	is("its own", 3, b2, 8)
	heard(b1, wire.Heartbeat{Full: true, Owned: []wire.Owned{owned(9, 7, 1)}}, false) // late
	is("of a former life", 9, api.Incarnation{}, 0)
	heard(c1, wire.Heartbeat{Gone: []api.TableID{2, 99}}, true)
	is("given up", 2, api.Incarnation{}, 0)
}

// TestNewIncarnationEndsClaims: a node that says hello anew owns nothing of what
// it owned before.
func TestNewIncarnationEndsClaims(t *testing.T) {
	w := newWorld(t)
	w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "t", Nodes: []string{"b", "c"}})
	c := still(w.state.View())
	c.o.Tables = stuck{}
	owner := func() string { r, _ := c.Find("t"); return r.Owner }
	c.Heartbeat(inc("b", 1), &wire.Heartbeat{Full: true, Owned: []wire.Owned{{Table: 2, Term: 5, Frontier: 9}}})
	c.Up(wire.Hello{Incarnation: inc("b", 1)})
	if owner() != "b" {
		t.Fatalf("the owner is %q", owner())
	}
	change := c.Changed()
	c.Up(wire.Hello{Incarnation: inc("b", 2)})
	if owner() != "" {
		t.Errorf("after a new incarnation of b the owner is %q", owner())
	}
	select {
	case <-change:
	default:
		t.Error("nobody was woken")
	}
}

func TestBeatsAreDeltasForEachPeer(t *testing.T) {
	var d directory
	d.init()
	state := func(term uint64, owns bool) rafthost.State {
		return rafthost.State{Replica: 9, Term: term, Leads: owns, Owns: owns}
	}
	beat := func(peer string, full bool) wire.Heartbeat {
		hb := wire.Heartbeat{Full: full}
		d.beat(peer, &hb, func(id api.TableID) uint64 { return uint64(id) * 100 })
		return hb
	}
	is := func(what string, hb wire.Heartbeat, owned map[api.TableID]uint64, gone ...api.TableID) {
		t.Helper()
		got := map[api.TableID]uint64{}
		for _, o := range hb.Owned {
			got[o.Table] = o.Term
			if o.Frontier != uint64(o.Table)*100 || o.Replica != 9 {
				t.Errorf("%s: %+v", what, o)
			}
		}
		if owned == nil {
			owned = map[api.TableID]uint64{}
		}
		if !reflect.DeepEqual(got, owned) || fmt.Sprint(hb.Gone) != fmt.Sprint(gone) {
			t.Errorf("%s: owned %v, gone %v, want %v and %v", what, got, hb.Gone, owned, gone)
		}
	}
	if d.own(2, state(1, false)) {
		t.Error("a follower's news is a change of ownership")
	}
	if !d.own(2, state(3, true)) || !d.own(4, state(3, true)) || d.own(4, state(3, true)) {
		t.Error("own does not tell a change from none")
	}
	is("b connects", beat("b", true), map[api.TableID]uint64{2: 3, 4: 3})
	is("nothing is new", beat("b", false), nil)
	d.own(6, state(1, true))
	is("one is new", beat("b", false), map[api.TableID]uint64{6: 1})
	is("c connects later", beat("c", true), map[api.TableID]uint64{2: 3, 4: 3, 6: 1})
	d.own(2, state(4, false))
	d.own(4, state(5, true))
	is("lost, and won again in a later term", beat("b", false), map[api.TableID]uint64{4: 5}, 2)
	is("the same for the other peer", beat("c", false), map[api.TableID]uint64{4: 5}, 2)
	is("once", beat("c", false), nil)
	d.own(6, state(2, false))
	is("b connects again", beat("b", true), map[api.TableID]uint64{4: 5})
	is("and needs no more", beat("b", false), nil)
	if got := d.owns(); len(got) != 1 || got[0] != 4 {
		t.Errorf("owned %v", got)
	}
}

func TestPlaces(t *testing.T) {
	w := newWorld(t)
	for _, n := range []string{"a", "b", "c"} {
		w.lease(n, 1)
	}
	for i := range 6 {
		w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: fmt.Sprint("t", i), Nodes: []string{"a", "b", "c"}})
	}
	c := still(w.state.View())
	count := func() map[string]int {
		n := map[string]int{}
		for _, node := range c.places() {
			n[node]++
		}
		return n
	}
	if got := count(); got["a"] != 2 || got["b"] != 2 || got["c"] != 2 {
		t.Errorf("six tables lie at %v", got)
	}
	w.do(wire.MetaCommand{Kind: wire.MetaDrainLease, Incarnation: inc("b", 1), Draining: true})
	c.view.Store(w.state.View())
	if got := count(); got["a"] != 3 || got["b"] != 0 || got["c"] != 3 {
		t.Errorf("while b drains they lie at %v", got)
	}
	c.drain.Store(true) // the others do not know yet
	if got := count(); got["c"] != 6 {
		t.Errorf("while this node drains too they lie at %v", got)
	}
	w.do(wire.MetaCommand{Kind: wire.MetaExpireLease, Incarnation: inc("c", 1)})
	c.view.Store(w.state.View())
	if got := count(); len(got) != 0 {
		t.Errorf("with nobody left they lie at %v", got)
	}
}

// TestBorn: the position that a write carries is the highest that is known here,
// by the replica or, without one, by the owner's word. Without any the table could
// not tell a write that was sent again too late.
func TestBorn(t *testing.T) {
	w := newWorld(t)
	w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "t", Nodes: []string{"a", "b", "c"}})
	c := still(w.state.View())
	table, _ := c.TableID(t.Context(), "t")
	here := &holder{}
	c.o.Tables = here
	c.directory.heard(inc("b", 1), &wire.Heartbeat{Full: true, Owned: []wire.Owned{{Table: table, Term: 2, Frontier: 70}}})
	for _, tt := range []struct {
		open            bool
		commit, applied uint64
		want            uint64
	}{{false, 0, 0, 70}, {true, 5, 5, 70}, {true, 90, 80, 90}} {
		here.open, here.Replica = tt.open, Replica{ID: table, Commit: tt.commit, Applied: tt.applied}
		if r, ok := c.Find("t"); !ok || r.Born != (api.Position{Table: table, Index: tt.want}) {
			t.Errorf("%+v: born %+v", tt, r.Born)
		}
	}
}

// holder is Tables with at most one replica.
type holder struct {
	stuck
	Replica
	open bool
}

func (h *holder) Local(api.TableID) (Replica, bool) { return h.Replica, h.open }

func (h *holder) All() []Replica {
	if !h.open {
		return nil
	}
	return []Replica{h.Replica}
}

// TestDroppedIsForgotten: tables come and go for years, and their ids never again.
func TestDroppedIsForgotten(t *testing.T) {
	c := still(&meta.View{})
	c.o.Tables = &holder{Replica: Replica{ID: 9}}
	c.reconciled = &meta.View{Tables: []*wire.Table{{ID: 9, Name: "t"}}}
	c.expect(9)
	c.updateLevel()
	c.mu.moved[9] = time.Now()
	if err := c.reconcile(t.Context(), c.View()); err != nil {
		t.Fatal(err)
	}
	if len(c.mu.level)+len(c.mu.unlevel)+len(c.mu.moved) != 0 {
		t.Errorf("still kept: %v, %v, %v", c.mu.level, c.mu.unlevel, c.mu.moved)
	}
}

func TestMayMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := still(&meta.View{})
		if !c.mayMove(2) {
			t.Error("a table that never moved must rest")
		}
		c.mu.moved[2] = time.Now()
		<-time.After(moveRest - time.Millisecond)
		if c.mayMove(2) {
			t.Error("a table that moved a moment ago may move")
		}
		if !c.mayMove(3) {
			t.Error("another table must rest with it")
		}
		c.drain.Store(true)
		if !c.mayMove(2) {
			t.Error("a drain waits")
		}
		c.mu.moved[4] = time.Now().Add(-drainRest + time.Nanosecond)
		if c.mayMove(4) {
			t.Error("a draining node gives away at once what came back from another")
		}
		c.drain.Store(false)
		<-time.After(time.Millisecond)
		if !c.mayMove(2) {
			t.Error("a table that has rested may not move")
		}
	})
}

// peers is a Net with one answer for each node's calls.
type peers struct {
	calls map[string]func(ctx context.Context) error
	heard map[string]bool
	asked []string
}

func (p *peers) Call(ctx context.Context, node string, _ wire.Method, _ []byte) ([]byte, error) {
	p.asked = append(p.asked, node)
	return nil, p.calls[node](ctx)
}

func (p *peers) CallAddress(context.Context, string, wire.Method, []byte) (wire.Hello, []byte, error) {
	return wire.Hello{}, nil, errors.New("nobody")
}

func (p *peers) SetPeers(map[string]string) {}
func (p *peers) Nudge()                     {}

func (p *peers) Refusal(string) *api.Error { return nil }

func (p *peers) Heard(node string) (api.Incarnation, time.Time) {
	if p.heard[node] {
		return inc(node, 1), time.Now()
	}
	return api.Incarnation{}, time.Time{}
}

// TestOwnProofAsksWhoIsThere: the meta leader's own address is dialled by a peer,
// and one that is frozen must not use up the time to ask another.
func TestOwnProofAsksWhoIsThere(t *testing.T) {
	frozen := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	fine := func(context.Context) error { return nil }
	refused := func(context.Context) error { return &api.Error{Code: api.CodeNotReady, Message: "no answer there"} }
	broken := func(context.Context) error { return errors.New("broken") }
	for _, test := range []struct {
		name  string
		b, c  func(context.Context) error
		heard map[string]bool
		asked string
		want  string
	}{
		{"both answer", fine, fine, map[string]bool{"b": true, "c": true}, "[b]", ""},
		{"b is frozen", frozen, fine, map[string]bool{"c": true}, "[c]", ""},
		{"b's connection breaks", broken, fine, map[string]bool{"b": true, "c": true}, "[b c]", ""},
		{"b met nobody", refused, fine, map[string]bool{"b": true, "c": true}, "[b]", "no answer there"},
		{"both break", broken, broken, map[string]bool{"b": true, "c": true}, "[b c]", "no other node could be asked to dial http://a: broken"},
		{"nobody is heard", fine, fine, nil, "[]", "no other node could be asked to dial http://a: none was heard lately"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peers{calls: map[string]func(context.Context) error{"b": test.b, "c": test.c}, heard: test.heard}
				c := still(newWorld(t).state.View())
				c.o.Net = p
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				err := c.prove(ctx, c.wanted())
				if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v, want %q", err, test.want)
				}
				if got := fmt.Sprint(p.asked); got != test.asked {
					t.Errorf("asked %s, want %s", got, test.asked)
				}
			})
		})
	}
}

// stuck is Tables that cannot open one.
type stuck struct{ err error }

func (s stuck) Open(context.Context, *wire.Table) error             { return s.err }
func (s stuck) Update(*wire.Table) error                            { return s.err }
func (s stuck) Drop(context.Context, api.TableID) error             { return s.err }
func (s stuck) HandOver(context.Context, api.TableID, string) error { return s.err }
func (s stuck) Local(api.TableID) (r Replica, ok bool)              { return r, false }
func (s stuck) All() []Replica                                      { return nil }

// TestBusyHostEndsNoNode: a table that cannot be opened for load is opened later.
func TestBusyHostEndsNoNode(t *testing.T) {
	w := newWorld(t)
	w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "t", Nodes: []string{"a", "b", "c"}})
	c := still(w.state.View())
	errOther := errors.New("the disk holds another replica")
	for err, want := range map[error]error{rafthost.ErrBusy: nil, errOther: errOther} {
		c.o.Tables = stuck{fmt.Errorf("table t: %w", err)}
		if got := c.reconcile(t.Context(), c.View()); !errors.Is(got, want) || (got == nil) != (want == nil) {
			t.Errorf("opening failed with %v, and the node with %v", err, got)
		}
	}
}

func TestAcceptedOnce(t *testing.T) {
	fs := vfs.NewCrashableMem()
	db, err := store.Open("db", store.Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err = LoadIdentity(db, "prod", "a", api.DiskID{1}, 1); err != nil {
		t.Fatal(err)
	}
	unformed := func() *Cluster {
		c := still(&meta.View{})
		o := c.o
		o.Identity.Formation, o.DB = nil, db
		return New(o)
	}
	propose := func(c *Cluster, set func(f *wire.Formation)) error {
		f := founders()
		set(&f)
		lowest := wire.Hello{Disk: f.Members[0].Disk, Incarnation: api.Incarnation{Node: f.Members[0].Node, Start: 1}}
		return c.accept(lowest, wire.AppendFormation(nil, &f))
	}
	f := founders()
	second := wire.Hello{Disk: f.Members[1].Disk, Incarnation: api.Incarnation{Node: f.Members[1].Node, Start: 1}}
	if c := unformed(); api.CodeOf(c.accept(second, wire.AppendFormation(nil, &f))) != api.CodeForbidden || c.Formed() {
		t.Error("a member that has not the lowest id proposed the cluster")
	}
	for name, set := range map[string]func(f *wire.Formation){
		"another disk of this node": func(f *wire.Formation) { f.Members[0].Disk = api.DiskID{9} },
		"another address":           func(f *wire.Formation) { f.Members[2].Address = "http://elsewhere" },
		"a member less":             func(f *wire.Formation) { f.Members = f.Members[:2] },
		"another member":            func(f *wire.Formation) { f.Members[2].Node = "d" },
		"another name":              func(f *wire.Formation) { f.Cluster = "test" },
		"a level that is too high":  func(f *wire.Formation) { f.Level = 2 },
	} {
		c := unformed()
		if err = propose(c, set); api.CodeOf(err) != api.CodeForbidden || c.Formed() {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, found, _ := db.Get(store.NodeKey(store.NodeFormation)); found {
		t.Fatal("what was refused is on the disk")
	}
	c := unformed()
	if err = propose(c, func(*wire.Formation) {}); err != nil || !c.Formed() {
		t.Fatalf("%v, formed %t", err, c.Formed())
	}
	if err = propose(c, func(*wire.Formation) {}); err != nil {
		t.Errorf("the same again: %v", err)
	}
	other := func(f *wire.Formation) { f.ClusterID = api.ClusterID{2} }
	if err = propose(c, other); api.CodeOf(err) != api.CodeForbidden || !strings.Contains(err.Error(), "belongs to cluster id 01") {
		t.Errorf("a second cluster: %v", err)
	}
	if err = propose(c, func(f *wire.Formation) { f.ClusterID = api.ClusterID{} }); api.CodeOf(err) != api.CodeForbidden {
		t.Errorf("no cluster: %v", err)
	}
	// After a crash too: it was synced before it was answered.
	after, err := store.Open("db", store.Options{FS: fs.CrashClone(vfs.CrashCloneCfg{})})
	if err != nil {
		t.Fatal(err)
	}
	defer after.Close()
	who, err := LoadIdentity(after, "prod", "a", api.DiskID{1}, 1)
	if err != nil || who.Formation == nil || who.Formation.ClusterID != (api.ClusterID{1}) {
		t.Fatalf("on the disk: %+v, %v", who.Formation, err)
	}
	if _, err := LoadIdentity(after, "test", "a", api.DiskID{1}, 1); err == nil ||
		!strings.Contains(err.Error(), `belongs to cluster "prod" (id 01000000000000000000000000000000), and the configuration says "test"`) {
		t.Errorf("a directory of another cluster: %v", err)
	}
	c.o.Identity, c.o.DB = who, after
	if err := propose(New(c.o), other); api.CodeOf(err) != api.CodeForbidden {
		t.Errorf("a second cluster after a restart: %v", err)
	}
}

// TestNewcomerAsksForNoLeaseYet: a node that was admitted has no lease, and so
// answers for no table, before it has read what tables there are.
func TestNewcomerAsksForNoLeaseYet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := still(w.state.View())
		p := &peers{calls: map[string]func(context.Context) error{"b": func(context.Context) error { return errors.New("busy") }}}
		c.o.Net, c.mu.replica = p, 9
		c.metaNow.Store(&rafthost.State{Lead: 2, Term: 3})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.renewLease(ctx) }()
		<-time.After(5 * time.Second)
		synctest.Wait()
		if len(p.asked) > 0 || !strings.Contains(c.Waiting(), "the metadata is not here yet") {
			t.Errorf("it asked %v, and waits for %q", p.asked, c.Waiting())
		}
		c.mu.Lock()
		c.mu.meta.Lead()
		c.mu.Unlock()
		<-time.After(5 * time.Second)
		cancel()
		if err := <-done; err != nil || len(p.asked) == 0 {
			t.Errorf("level, it asked %v: %v", p.asked, err)
		}
	})
}

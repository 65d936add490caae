package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// joiner adds a node that is no founder.
func (b *bed) joiner(id string, join ...string) *node {
	b.ids = append(b.ids, id)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.at["http://"+id] = id
	n := &node{bed: b, id: id, advertise: "http://" + id, join: join, members: map[string]string{}, fs: vfs.NewCrashableMem()}
	b.nodes[id] = n
	return n
}

// wipe gives a node that does not run a new disk.
func (n *node) wipe() {
	n.wiped++
	n.fs = vfs.NewCrashableMem()
}

// holdsReplica returns the replica that a node is to hold of a table.
func (r *running) holdsReplica(table string) (id uint64, voter bool) {
	t, ok := r.cluster.View().TableNamed(table)
	if !ok {
		return 0, false
	}
	x, _ := t.Replica(r.n.id)
	return x.ID, x.Voter
}

// put writes a row on whichever node owns the table.
func (b *bed) put(table, key string) {
	b.Helper()
	b.within(20*time.Second, "a write of "+key, func() bool {
		for _, id := range b.ids {
			r := b.nodes[id].run
			if r == nil {
				continue
			}
			t, ok := r.cluster.View().TableNamed(table)
			if !ok {
				continue
			}
			req := &api.Request{Op: api.OpPut, Key: key, Value: []byte(key)}
			copy(req.ID[:], key)
			if _, err := r.tables.Execute(b.Context(), t.ID, req); err == nil {
				return true
			}
		}
		return false
	})
}

// has reports whether a node's own replica has a row.
func (r *running) has(table, key string) bool {
	t, ok := r.cluster.View().TableNamed(table)
	if !ok {
		return false
	}
	res, err := r.tables.Execute(r.ctx, t.ID, &api.Request{Op: api.OpGet, Key: key, Local: true})
	return err == nil && res.Found
}

func (b *bed) where(table string) string {
	b.Helper()
	t, err := b.at(b.ids[0]).cluster.Table(b.Context(), table)
	b.check(err)
	var nodes []string
	for _, r := range t.Replicas {
		w := r.Node
		if !r.Voter {
			w += " comes"
		}
		if r.Leaving {
			w += " goes"
		}
		nodes = append(nodes, w)
	}
	slices.Sort(nodes)
	return strings.Join(nodes, ", ")
}

func TestJoinAndMove(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(3)
		for i := range 3 {
			b.put(fmt.Sprint("t", i), "early")
		}
		d := b.joiner("d", "http://nowhere", "http://b")
		d.start()
		b.leased("d")
		b.within(5*time.Second, "d is level", func() bool { return len(d.run.reasons()) == 0 })
		if v := d.run.cluster.View(); len(v.Members) != 4 || len(v.Tables) != 3 {
			b.Errorf("d has its lease and knows %d members and %d tables", len(v.Members), len(v.Tables))
		}

		// It starts again as the member it is, and is asked for nothing.
		d.kill()
		d.start()
		b.leased("d")

		before, _ := b.at("a").holdsReplica("t0")
		_, err := b.at("c").cluster.MoveReplica(b.Context(), "t0", "a", "d")
		b.check(err)
		for i := range 30 {
			b.put("t0", fmt.Sprint("during ", i))
			if reasons := d.run.reasons(); len(reasons) > 0 {
				b.Fatalf("d was ready, is given a replica, and is not ready any more: %v", reasons)
			}
		}
		b.within(20*time.Second, "the replica is on d", func() bool { return b.where("t0") == "b, c, d" })
		b.within(5*time.Second, "a dropped its own", func() bool {
			tab, _ := b.at("a").cluster.View().TableNamed("t0")
			_, holds := b.at("a").tables.Local(tab.ID)
			return !holds
		})
		b.put("t0", "after")
		for _, key := range []string{"early", "during 0", "during 29", "after"} {
			b.within(5*time.Second, key+" on d", func() bool { return d.run.has("t0", key) })
		}

		// Back again: under another id, with all that was written meanwhile.
		_, err = b.at("a").cluster.MoveReplica(b.Context(), "t0", "d", "a")
		b.check(err)
		b.within(20*time.Second, "the replica is on a", func() bool { return b.where("t0") == "a, b, c" })
		b.within(5*time.Second, "the row on a", func() bool { return b.at("a").has("t0", "after") })
		if after, voter := b.at("a").holdsReplica("t0"); after <= before || !voter {
			b.Errorf("the replica on a had id %d, and has %d, voter %t", before, after, voter)
		}

		// What comes from now on may be placed on it.
		_, _, err = d.run.cluster.CreateTable(b.Context(), "t4", api.TableSettings{Replicas: 3})
		b.check(err)
		if w := b.where("t4"); !strings.Contains(w, "d") {
			b.Errorf("a new table is on %s: want the node that has none", w)
		}
	})
}

// TestSingleReplicaMoves moves the only copy of a table, owner and all.
func TestSingleReplicaMoves(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		_, _, err := b.at("a").cluster.CreateTable(b.Context(), "solo", api.TableSettings{Replicas: 1})
		b.check(err)
		from := b.where("solo")
		to := map[string]string{"a": "b", "b": "c", "c": "a"}[from]
		b.put("solo", "row")
		_, err = b.at("a").cluster.MoveReplica(b.Context(), "solo", from, to)
		b.check(err)
		b.within(20*time.Second, "the replica is on "+to, func() bool { return b.where("solo") == to })
		b.within(5*time.Second, "its row is there", func() bool { return b.at(to).has("solo", "row") })
		b.put("solo", "another")
	})
}

// TestMoveOutlivesItsOwner kills the owner in the middle of a move.
func TestMoveOutlivesItsOwner(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(1)
		b.put("t0", "row")
		d := b.joiner("d", "http://a")
		d.start()
		b.leased("d")
		tab, err := b.at("a").cluster.Table(b.Context(), "t0")
		b.check(err)
		from := map[string]string{"a": "b", "b": "c", "c": "a"}[tab.Owner]
		_, err = b.at(from).cluster.MoveReplica(b.Context(), "t0", from, "d")
		b.check(err)
		b.nodes[tab.Owner].kill()
		want := []string{"a", "b", "c", "d"}
		want = slices.DeleteFunc(want, func(s string) bool { return s == from })
		b.ids = slices.DeleteFunc(b.ids, func(s string) bool { return s == tab.Owner })
		b.within(30*time.Second, "the replica is on d", func() bool { return b.where("t0") == strings.Join(want, ", ") })
		b.ids = append(b.ids, tab.Owner)
		b.nodes[tab.Owner].start()
		b.put("t0", "another")
	})
}

func TestReplace(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(3)
		for i := range 3 {
			b.put(fmt.Sprint("t", i), "early")
		}
		lost := b.nodes["b"]
		for range 2 { // so that its new disk's first start is no later one
			lost.kill()
			lost.start()
			b.leased("b")
		}
		lost.kill()
		old := lost.fs
		was, _ := b.at("a").cluster.View().Member("b")
		b.within(10*time.Second, "the lease of b runs out", func() bool { return !b.at("a").holds("b") })
		b.put("t1", "meanwhile")
		lost.wipe()
		lost.start()
		b.within(10*time.Second, "b is told why it is not let in", func() bool {
			return strings.Contains(lost.run.cluster.Waiting(), "`tidal node replace b` lets it back in")
		})
		b.never(5*time.Second, "b belongs to the cluster", lost.run.cluster.Formed)
		b.check(b.at("c").cluster.ReplaceNode(b.Context(), "b"))
		b.leased("b")
		now, _ := b.at("a").cluster.View().Member("b")
		if now.Replica <= was.Replica || now.Disk == was.Disk {
			b.Errorf("b was %+v and is %+v", was, now)
		}
		b.within(30*time.Second, "all replicas are back", func() bool {
			for i := range 3 {
				if b.where(fmt.Sprint("t", i)) != "a, b, c" {
					return false
				}
			}
			m, _ := b.at("a").cluster.View().Member("b")
			return m.Voter
		})
		b.within(10*time.Second, "b has the rows", func() bool {
			return b.at("b").has("t0", "early") && b.at("b").has("t1", "meanwhile") && b.at("b").has("t2", "early")
		})
		b.within(10*time.Second, "b is ready", func() bool { return len(b.at("b").reasons()) == 0 })
		b.within(time.Minute, "each node owns a table", func() bool { return b.owned("a") == 1 && b.owned("b") == 1 && b.owned("c") == 1 })
		b.quiet(b.ids...)

		// The disk that was lost is found again, and is not let in.
		lost.kill()
		lost.fs, lost.wiped = old, 0
		lost.start()
		b.never(10*time.Second, "the dead disk has a lease", func() bool { return b.at("a").holds("b") && b.at("b").cluster.Leased() })
	})
}

// TestFindsALeaderItDoesNotKnow has a node miss that another was replaced, whose
// new replica then leads the meta group: it knows neither the disk nor the replica.
func TestFindsALeaderItDoesNotKnow(t *testing.T) {
	inBubbleOf(t, []string{"a", "b", "c", "d", "e"}, func(b *bed) {
		b.up()
		b.nodes["c"].kill()
		b.nodes["b"].kill()
		b.within(10*time.Second, "the lease of b runs out", func() bool { return !b.at("a").holds("b") })
		b.check(b.at("a").cluster.ReplaceNode(b.Context(), "b"))
		b.nodes["b"].wipe()
		b.nodes["b"].start()
		b.within(30*time.Second, "b is a voter", func() bool { m, _ := b.at("a").cluster.View().Member("b"); return m.Voter })
		if lead := b.metaLeader(); lead != "b" {
			to, err := b.at(lead).host.Level(b.Context(), uint64(api.MetaGroup), "b", 0)
			b.check(err)
			b.check(b.at(lead).host.Transfer(b.Context(), uint64(api.MetaGroup), to))
		}
		b.within(5*time.Second, "b leads the meta group", func() bool { return b.at("a").cluster.Status().MetaLeader == "b" })
		b.nodes["c"].start()
		b.leased("c")
		b.within(10*time.Second, "c is level", func() bool { return len(b.at("c").reasons()) == 0 })
		if lead := b.at("c").cluster.Status().MetaLeader; lead != "b" {
			b.Errorf("c sees %s lead the meta group", lead)
		}
	})
}

// TestJoinsTwice: the second answer to a node that asked twice comes when it runs as
// a member already. That is no refusal to tell of; a copy of its disk is.
func TestJoinsTwice(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		d := b.joiner("d", "http://a")
		d.start()
		b.leased("d")
		a := b.at("a")
		b.within(5*time.Second, "a knows that d runs", func() bool {
			_, runs := a.cluster.View().Lease("d")
			return runs
		})
		from := d.run.cluster.Hello(wire.ConnCall)
		again := wire.AppendJoinRequest(nil, &wire.JoinRequest{Address: "http://d"})
		ask := func() []api.Refusal {
			if _, err := a.serve(b.Context(), from, wire.MethodJoin, again); err == nil || !strings.Contains(err.Error(), "went back in time") {
				b.Fatalf("it is admitted again: %v", err)
			}
			return a.cluster.Status().Refusals
		}
		if told := ask(); len(told) > 0 {
			b.Errorf("a tells that it refuses the member: %v", told)
		}
		from.Incarnation.Suffix++ // of a copy of its disk
		if told := ask(); len(told) != 1 {
			b.Errorf("a tells of %d refusals, want the one of the copy: %v", len(told), told)
		}
	})
}

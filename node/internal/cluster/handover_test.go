package cluster_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

func admin() api.Principal { return api.Principal{Name: "ann", Role: api.RoleAdmin} }

// hand asks a node to hand a table over, again while the node that is to have it
// lacks what was just written.
func (b *bed) hand(at, table string, o api.HandOver, want api.Code) api.Table {
	b.Helper()
	t, err := b.at(at).cluster.HandTable(b.Context(), table, o, admin())
	for range 50 {
		if want == api.CodeNotReady || api.CodeOf(err) != api.CodeNotReady {
			break
		}
		<-time.After(20 * time.Millisecond)
		t, err = b.at(at).cluster.HandTable(b.Context(), table, o, admin())
	}
	if api.CodeOf(err) != want || want == "" && err != nil {
		b.Fatalf("asked at %s for %+v: %v, want %q", at, o, err, want)
	}
	return t
}

// ownerOf returns who owns a table, as all nodes agree; "" if they do not.
func (b *bed) ownerOf(table string) string {
	owner := ""
	for _, id := range b.ids {
		r, _ := b.at(id).cluster.Find(table)
		if r.Owner == "" || owner != "" && owner != r.Owner {
			return ""
		}
		owner = r.Owner
	}
	return owner
}

// atHome waits until a table is at its place, and returns that.
func (b *bed) atHome(table string) string {
	b.Helper()
	b.within(15*time.Second, table+" is at its place", func() bool {
		t, err := b.at("a").cluster.Table(b.Context(), table)
		return err == nil && t.Owner == t.Place && b.ownerOf(table) == t.Owner
	})
	return b.ownerOf(table)
}

// TestHandOverStays: a table goes where an operator wants it, through any node, stays
// there for as long as was said, and then goes to its place.
func TestHandOverStays(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(3)
		home := b.atHome("t0")
		for _, asked := range b.ids {
			to := b.others(b.ownerOf("t0"))[0]
			got := b.hand(asked, "t0", api.HandOver{To: to, TTL: "30s", By: "ann"}, "")
			if got.Owner != to {
				t.Errorf("asked at %s for %s: owned by %s", asked, to, got.Owner)
			}
			b.within(time.Second, "all know", func() bool { return b.ownerOf("t0") == to })
			b.write("t0", "k")
		}
		to := b.others(home)[1]
		b.hand("a", "t0", api.HandOver{To: to, TTL: "30s", By: "ann"}, "")
		b.hand("b", "t0", api.HandOver{To: to, TTL: "30s", By: "ann"}, "") // it is there: that is fine
		b.within(time.Second, "all know", func() bool { return b.ownerOf("t0") == to })
		b.never(28*time.Second, "it goes", func() bool { return b.ownerOf("t0") != to })
		b.within(15*time.Second, "it goes home", func() bool { return b.ownerOf("t0") == home })
		if !b.at(to).tells(0, "handed over by ann") {
			t.Error("the new owner does not tell why it owns the table")
		}
	})
}

// TestHandOverUnannounced is the broken variant: a node that was not told that the
// table stays gives it back at once.
func TestHandOverUnannounced(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(3)
		home := b.atHome("t0")
		to := b.others(home)[0]
		before, _ := b.at(home).cluster.Find("t0")
		b.check(b.at(home).tables.HandOver(b.Context(), before.Table, to))
		b.within(5*time.Second, "it was away and is back", func() bool {
			now, _ := b.at(home).cluster.Find("t0")
			return now.Owner == home && now.Term > before.Term+1
		})
	})
}

// TestHandOverToAny goes to another node, and not to one that drains.
func TestHandOverToAny(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(3)
		home := b.atHome("t0")
		drained := b.others(home)[0]
		b.check(b.at(drained).cluster.ClaimDrain(api.NodeOrder{By: "ann"}, time.Minute))
		b.within(3*time.Second, "all see the drain", func() bool {
			l, _ := b.at(home).cluster.View().Lease(drained)
			m, _ := b.at(drained).cluster.View().Lease(drained)
			return l.Draining && m.Draining
		})
		if got := b.hand(drained, "t0", api.HandOver{TTL: "30s"}, ""); got.Owner == home || got.Owner == drained {
			t.Errorf("owned by %s", got.Owner)
		}
		b.hand("a", "t0", api.HandOver{To: drained}, api.CodeConflict)
	})
}

// TestHandOverEndsWithADrain: a node that drains keeps nothing, whatever was said.
func TestHandOverEndsWithADrain(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(3)
		to := b.others(b.atHome("t0"))[0]
		b.hand("a", "t0", api.HandOver{To: to, TTL: "1h"}, "")
		b.check(b.at(to).cluster.ClaimDrain(api.NodeOrder{By: "ann"}, 20*time.Second))
		b.within(3*time.Second, "it owns nothing", func() bool { return b.at(to).cluster.Owned() == 0 })
	})
}

// TestHandOverRefusals: what is not to be is refused, with the reason, and nothing
// happens.
func TestHandOverRefusals(t *testing.T) {
	inBubbleOf(t, []string{"a", "b", "c", "d"}, func(b *bed) {
		b.up()
		b.create(1)
		home := b.atHome("t0")
		table, err := b.at("a").cluster.Table(b.Context(), "t0")
		b.check(err)
		holder, stranger := "", ""
		for _, id := range b.others(home) {
			if strings.Contains(holdersOf(table), id) {
				holder = id
			} else {
				stranger = id
			}
		}
		who, other := b.at(home).who.Incarnation, b.at(holder).who.Incarnation
		id, wrong := table.ID, table.ID+1
		for _, asked := range b.ids {
			b.hand(asked, "t9", api.HandOver{}, api.CodeTableNotFound)
			b.hand(asked, "t0", api.HandOver{To: "x"}, api.CodeNodeNotFound)
			b.hand(asked, "t0", api.HandOver{To: stranger}, api.CodeConflict)
			b.hand(asked, "t0", api.HandOver{To: holder, TTL: "soon"}, api.CodeBadRequest)
			b.hand(asked, "t0", api.HandOver{To: holder, ID: &wrong}, api.CodePreconditionFailed)
			b.hand(asked, "t0", api.HandOver{To: holder, Owner: &other}, api.CodePreconditionFailed)
		}
		_, err = b.at(holder).cluster.HandTable(b.Context(), "t0", api.HandOver{To: holder}, api.Principal{Name: "app", Role: api.RoleWriter})
		if api.CodeOf(err) != api.CodeForbidden {
			t.Errorf("a writer: %v", err)
		}
		b.block(func(_, to string, m wire.Method) bool { return to == holder && m == wire.MethodHandOver })
		b.hand(home, "t0", api.HandOver{To: holder}, api.CodeNotReady)
		b.block(nil)
		b.never(time.Second, "it moved", func() bool { return b.ownerOf("t0") != home })
		b.hand("a", "t0", api.HandOver{To: holder, ID: &id, Owner: &who}, "")
	})
}

// TestHandOverToFenced: who wants a table at a replica that is fenced is told so, at any
// node, and not that it is behind.
func TestHandOverToFenced(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(1)
		fenced := b.others(b.atHome("t0"))[0]
		table, err := b.at("a").cluster.Table(b.Context(), "t0")
		b.check(err)
		info, _ := b.at("a").cluster.View().Table(table.ID)
		replica, _ := info.Replica(fenced)
		b.check(b.at(fenced).tables.Fence(b.Context(), table.ID, replica.ID))
		b.within(time.Second, "all know", func() bool {
			return !slices.ContainsFunc(b.ids, func(id string) bool { return b.at(id).cluster.Sound(table.ID, fenced) })
		})
		for _, asked := range b.ids {
			_, err := b.at(asked).cluster.HandTable(b.Context(), "t0", api.HandOver{To: fenced}, admin())
			if api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), "is fenced") {
				t.Errorf("asked at %s: %v", asked, err)
			}
		}
	})
}

func holdersOf(t api.Table) string {
	s := ""
	for _, r := range t.Replicas {
		s += r.Node
	}
	return s
}

package cluster_test

import (
	"fmt"
	"testing"
	"time"
)

// idle makes six tables, two for each node, and waits until they are quiet.
func (b *bed) idle() {
	b.Helper()
	b.up()
	b.create(6)
	b.within(15*time.Second, "two tables on each node", func() bool { return b.at("c").cluster.Owned() == 2 })
	b.quiet(b.ids...)
}

// quiet waits until every group on some nodes but the meta group is quiet.
func (b *bed) quiet(ids ...string) {
	b.Helper()
	b.within(time.Minute, "all groups are quiet", func() bool {
		for _, id := range ids {
			if b.at(id).host.Awake() > 1 {
				return false
			}
		}
		return true
	})
}

func (b *bed) owned(by string) int { return b.at(by).cluster.Owned() }

// TestIdleTablesAreQuiet: and they stay so, while leases are renewed and nodes
// hear each other.
func TestIdleTablesAreQuiet(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.idle()
		b.never(time.Minute, "a group wakes", func() bool {
			return b.at("a").host.Awake()+b.at("b").host.Awake()+b.at("c").host.Awake() > 3
		})
	})
}

// TestSilentNodeIsMissed: a node that says nothing any more, whose connections
// stand, loses its quiet tables.
func TestSilentNodeIsMissed(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.idle()
		b.isolate("b")
		took := b.within(10*time.Second, "a and c own all tables", func() bool { return b.owned("a")+b.owned("c") == 6 })
		t.Logf("after %v", took)
		b.quiet("a", "c")
	})
}

// TestQuickRestartIsNoticed: a node that is back before anybody has missed it has
// lost what it led.
func TestQuickRestartIsNoticed(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.idle()
		b.nodes["b"].kill()
		b.start("b")
		took := b.within(10*time.Second, "all tables are owned", func() bool {
			return b.owned("a")+b.owned("b")+b.owned("c") == 6
		})
		t.Logf("after %v", took)
		b.quiet(b.ids...)
		b.within(10*time.Second, "b is ready", func() bool { return len(b.at("b").reasons()) == 0 })
	})
}

// TestForgettingIsOneEntry: tables that were written to forget what they have answered,
// with one entry each, and are quiet again.
func TestForgettingIsOneEntry(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.idle()
		remembered := func() (bytes int64, applied uint64) {
			for _, id := range b.ids {
				bytes += b.at(id).tables.Remembered(false)
				for _, l := range b.at(id).tables.All() {
					applied += l.Applied
				}
			}
			return bytes, applied
		}
		for i := range 6 {
			b.put(fmt.Sprint("t", i), "row")
		}
		b.quiet(b.ids...)
		bytes, wrote := remembered()
		if bytes == 0 {
			t.Fatal("nothing is remembered")
		}
		b.within(time.Minute, "all is forgotten", func() bool { bytes, _ := remembered(); return bytes == 0 })
		b.quiet(b.ids...)
		b.never(time.Minute, "there are more entries than one for each table", func() bool {
			_, applied := remembered()
			return applied != wrote+6*3 || b.at("a").host.Awake()+b.at("b").host.Awake()+b.at("c").host.Awake() > 3
		})
	})
}

package cluster_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/api"
	"tidal/node/internal/cluster"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// refused returns why a node is refused by another, as both say it; "" if one of
// them says nothing.
func (b *bed) refused(node, by string) string {
	b.Helper()
	for _, mine := range b.at(node).cluster.Status().Refusals {
		for _, theirs := range b.at(by).cluster.Status().Refusals {
			if mine.By == by && theirs.Node == node && theirs.Reason == mine.Reason && theirs.Incarnation == b.at(node).who.Incarnation {
				return mine.Reason + ": " + mine.Hint
			}
		}
	}
	return ""
}

// refuses waits until both sides say that a node is refused for a reason, by one of
// others, and holds that it gets no lease and reaches nobody.
func (b *bed) refuses(node string, reason string, others ...string) {
	b.Helper()
	by := ""
	b.within(10*time.Second, node+" is refused: "+reason, func() bool {
		for _, other := range others {
			if strings.Contains(b.refused(node, other), reason) {
				by = other
			}
		}
		return by != ""
	})
	if why := b.refused(node, by); !strings.Contains(why, "`tidal node replace "+node+"`") {
		b.Errorf("%s refuses %s, and says no way out: %s", by, node, why)
	}
	run := b.at(node)
	b.within(time.Second, node+" takes no part", func() bool { return run.cluster.Outcast() != nil })
	b.never(8*time.Second, node+" has a lease", run.cluster.Leased)
	if len(run.cluster.RefusedBy()) == 0 {
		b.Errorf("%s does not say that it is refused", node)
	}
}

// TestOlderDisk puts a disk back to a state that it had before: it is refused on
// both sides, by what the others heard and by what the meta group was told, and the
// node comes back with an empty one.
func TestOlderDisk(t *testing.T) {
	for _, test := range []struct {
		name   string
		forget bool // the others start anew, and know what the meta group knows
		runs   int  // that came after the state
		want   string
	}{
		{"of the same run", false, 0, "is older than the one that r"},
		{"of the run before", false, 1, "with the same start number: it is a copy of that one, or an older state"},
		{"of long before", false, 2, "is older than the one that r"},
		{"of the same run, after the others started anew", true, 0, "is older than the one that r"},
		{"of the run before, after the others started anew", true, 1, "with the same start number"},
		{"of long before, after the others started anew", true, 2, "is older than the one that r"},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.up()
				b.create(3)
				b.put("t1", "early")
				old := b.nodes["b"].fs.CrashClone(vfs.CrashCloneCfg{})
				for range test.runs {
					b.nodes["b"].kill()
					b.nodes["b"].start()
					b.leased("b")
				}
				for i := range 5 {
					b.put("t1", fmt.Sprint("later ", i))
				}
				b.within(5*time.Second, "b has heard", func() bool { return b.at("b").has("t1", "later 4") })
				<-time.After(300 * time.Millisecond) // and its heartbeats were heard
				last := b.at("b").who.Incarnation
				b.nodes["b"].kill()
				newest := b.nodes["b"].fs
				if test.forget {
					b.within(10*time.Second, "what b told last is noted", func() bool {
						v := b.at("a").cluster.View()
						s, _ := v.Seen("b")
						_, leased := v.Lease("b")
						return !leased && s.Incarnation == last && s.Pass > 0
					})
					for _, id := range []string{"a", "c"} {
						b.nodes[id].kill()
						b.nodes[id].start()
					}
					b.leased("a", "c")
				}
				b.nodes["b"].fs = old
				b.nodes["b"].start()
				b.refuses("b", test.want, "a", "c")
				b.nodes["b"].kill()

				// Its newest state is let in.
				b.nodes["b"].fs = newest
				b.nodes["b"].start()
				b.leased("b")
				b.within(10*time.Second, "b is level", func() bool { return len(b.at("b").reasons()) == 0 })

				// So is an empty disk, once its own is given up.
				b.nodes["b"].kill()
				b.within(10*time.Second, "the lease of b runs out", func() bool { return !b.at("a").holds("b") })
				b.check(b.at("a").cluster.ReplaceNode(b.Context(), "b"))
				b.nodes["b"].wipe()
				b.nodes["b"].start()
				b.leased("b")
				b.within(20*time.Second, "b has the rows again", func() bool { return b.at("b").has("t1", "later 4") })
			})
		})
	}
}

// TestTheLastAckIsRemembered: the others remember a pass that no heartbeat told: it
// came with the messages that promised what it wrote.
func TestTheLastAckIsRemembered(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(3)
		b.within(time.Minute, "a owns a table", func() bool { return b.owned("a") == 1 })
		follows := "" // a table of which b acknowledges entries
		for _, name := range []string{"t0", "t1", "t2"} {
			if t, err := b.at("a").cluster.Table(b.Context(), name); err == nil && t.Owner == "a" {
				follows = name
			}
		}
		b.put(follows, "early")
		b.quiet("a", "b", "c")
		old := b.nodes["b"].fs.CrashClone(vfs.CrashCloneCfg{})
		// From now on b sends no heartbeats, and the rest.
		b.nodes["b"].mute.Store(true)
		b.put(follows, "late")
		b.within(time.Second, "b has the row", func() bool { return b.at("b").has(follows, "late") })
		b.nodes["b"].mute.Store(false)
		b.nodes["b"].kill()
		b.nodes["b"].fs = old
		b.nodes["b"].start()
		// One that knows it is enough.
		b.refuses("b", "is older than the one that r", "a", "c")
	})
}

// TestNoWordOfAFormerRun: a word that comes late counts for nobody, and one of a
// pass that is not the newest takes nothing back.
func TestNoWordOfAFormerRun(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.within(5*time.Second, "a has heard of a pass of b", func() bool {
			h := b.at("b").cluster.Hello(wire.ConnRaft)
			h.Incarnation.Start, h.Pass = h.Incarnation.Start+1, 1
			return b.at("a").cluster.Admit(h) != nil
		})
		was := b.at("b").who.Incarnation
		b.nodes["b"].kill()
		b.nodes["b"].start()
		b.leased("b")
		b.within(5*time.Second, "a hears the new run", func() bool {
			inc, _ := network{b.at("a")}.Heard("b")
			return inc == b.at("b").who.Incarnation
		})
		b.at("a").cluster.Passed(was, 1<<40) // of the run that is over
		b.at("a").cluster.Passed(b.at("b").who.Incarnation, 0)
		b.nodes["b"].kill()
		b.nodes["b"].start()
		b.leased("b")
	})
}

// putBack has all nodes end at once, with what was synced, and b come back with a
// state of its disk of before: what it has acknowledged since, others rely on.
func (b *bed) putBack() {
	b.Helper()
	b.up()
	b.create(3)
	b.put("t1", "early")
	b.quiet("a", "b", "c")
	old := b.nodes["b"].fs.CrashClone(vfs.CrashCloneCfg{})
	b.nodes["c"].kill() // or a and c may do without what b acknowledges
	for i := range 5 {
		b.put("t1", fmt.Sprint("later ", i))
	}
	b.within(5*time.Second, "b has heard", func() bool { return b.at("b").has("t1", "later 4") })
	b.nodes["a"].kill()
	b.nodes["b"].kill()
	b.nodes["b"].fs = old
	b.start(b.ids...)
}

// TestAllEndAtOnce: nobody was left to have what the disks told noted, and each has on
// its own disk what its state rests on.
func TestAllEndAtOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.putBack()
		b.leased("a", "c")
		b.refuses("b", "is older than the one that r", "a", "c")
		// Each start adds to what a disk has: in the end nobody could tell.
		b.nodes["b"].kill()
		db, err := store.Open("db", store.Options{FS: b.nodes["b"].fs})
		b.check(err)
		defer func() { b.check(db.Close()) }()
		who, err := cluster.LoadIdentity(db, "prod", "b", api.DiskID{}, 1)
		if e := new(api.Error); !errors.As(err, &e) || e.Code != api.CodeWrongDisk || !strings.Contains(e.Message, "node b takes no part in the cluster: ") ||
			!strings.Contains(e.Message, "is older than the one that r") || !strings.Contains(e.Hint, "`tidal node replace b`") {
			t.Errorf("the disk starts again as %+v, %v", who, err)
		}
	})
}

// TestOlderDiskAdmitted: the tests above can find a cluster that lets it in.
func TestOlderDiskAdmitted(t *testing.T) {
	inBubble(t, func(b *bed) {
		for _, n := range b.nodes {
			n.lenient = true
		}
		b.putBack()
		b.leased(b.ids...)
	})
}

package cluster_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/api"
	"tidal/node/internal/cluster"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

func TestIdentity(t *testing.T) {
	fs := vfs.NewCrashableMem()
	load := func(fs *vfs.MemFS, node string, disk api.DiskID) (cluster.Identity, error) {
		db, err := store.Open("db", store.Options{FS: fs})
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		return cluster.LoadIdentity(db, "prod", node, disk, 0xabc)
	}
	first, err := load(fs, "a", api.DiskID{1})
	if err != nil || first.Disk != (api.DiskID{1}) || first.Incarnation != (api.Incarnation{Node: "a", Start: 1, Suffix: 0xabc}) || first.Formation != nil {
		t.Errorf("the first start: %+v, %v", first, err)
	}
	for i := uint64(2); i < 5; i++ {
		fs = fs.CrashClone(vfs.CrashCloneCfg{}) // each start is synced before it is used
		var who cluster.Identity
		if who, err = load(fs, "a", api.DiskID{9}); err != nil || who.Disk != first.Disk || who.Incarnation.Start != i || who.Pass != i-1 {
			t.Errorf("start %d: %+v, %v", i, who, err)
		}
	}
	if _, err = load(fs, "b", api.DiskID{1}); err == nil || !strings.Contains(err.Error(), `the data directory belongs to node "a", and the configuration says "b"`) {
		t.Errorf("as another node: %v", err)
	}
	if first, err = load(fs, "a", api.DiskID{1}); err != nil || first.Incarnation.Start != 5 {
		t.Errorf("a start that was refused counted: %+v, %v", first, err)
	}
	db, err := store.Open("db", store.Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, damage := range [][]byte{{2}, {}, {1, 1, 'a', 0}} {
		b := db.NewBatch()
		b.Set(store.NodeKey(store.NodeIdentity), damage)
		if err := b.Commit(true); err != nil {
			t.Fatal(err)
		}
		if who, err := cluster.LoadIdentity(db, "prod", "a", api.DiskID{1}, 1); err == nil {
			t.Errorf("the identity %x was read as %+v", damage, who)
		}
	}
}

func TestForming(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		id := b.at("a").cluster.Status().ClusterID
		for _, n := range b.ids {
			s := b.at(n).cluster.Status()
			if s.ClusterID != id || id.IsZero() || len(s.Members) != 3 {
				t.Errorf("%s is in cluster %s of %d, a in %s", n, s.ClusterID, len(s.Members), id)
			}
			b.within(2*time.Second, n+" is ready", func() bool { return len(b.at(n).reasons()) == 0 })
		}
		// It is taken once, also by a node that is asked again.
		f := wire.Formation{ClusterID: api.ClusterID{9}, Cluster: "prod"}
		for _, n := range b.ids {
			f.Members = append(f.Members, wire.Founder{Node: n, Disk: api.DiskID{n[0]}, Address: "http://" + n})
		}
		_, err := network{b.at("a")}.Call(b.Context(), "b", wire.MethodFormAccept, wire.AppendFormation(nil, &f))
		if api.CodeOf(err) != api.CodeForbidden {
			t.Errorf("a second list: %v", err)
		}
	})
}

func TestFormingWaitsForAll(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.start("a", "b")
		b.never(30*time.Second, "a cluster formed without c", func() bool { return b.at("a").cluster.Formed() || b.at("b").cluster.Formed() })
		for _, n := range []string{"a", "b"} {
			if why := b.at(n).cluster.Waiting(); !strings.Contains(why, "member c at http://c") {
				t.Errorf("%s waits for %q", n, why)
			}
		}
		b.start("c")
		b.leased("a", "b", "c")
	})
}

func TestFormingRefusesOtherLists(t *testing.T) {
	for name, members := range map[string]map[string]string{
		"another address": {"a": "http://a", "b": "http://b", "c": "http://elsewhere"},
		"one more":        {"a": "http://a", "b": "http://b", "c": "http://c", "d": "http://d"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.nodes["b"].members = members
				b.start("a", "b", "c")
				b.never(20*time.Second, "a cluster formed", func() bool {
					return b.at("a").cluster.Formed() || b.at("b").cluster.Formed() || b.at("c").cluster.Formed()
				})
				if why := b.at("a").cluster.Waiting(); !strings.Contains(why, "node b has another member list") {
					t.Errorf("a waits for %q", why)
				}
			})
		})
	}
}

// TestFormingHeals crashes the proposer when one member has taken its list and
// the other has not.
func TestFormingHeals(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.block(func(_, to string, m wire.Method) bool { return to == "c" && m == wire.MethodFormAccept })
		b.start("a", "b", "c")
		b.within(10*time.Second, "b takes the list", func() bool { return b.at("b").cluster.Formed() })
		id := b.at("b").cluster.Status().ClusterID
		b.nodes["a"].kill()
		b.never(10*time.Second, "c formed by itself", func() bool { return b.at("c").cluster.Formed() })
		b.block(nil)
		b.never(10*time.Second, "c formed without the proposer", func() bool { return b.at("c").cluster.Formed() })
		b.start("a")
		b.leased("a", "b", "c")
		for _, n := range b.ids {
			if got := b.at(n).cluster.Status().ClusterID; got != id {
				t.Errorf("%s is in cluster %s, b took %s", n, got, id)
			}
		}
	})
}

func TestLeaseNeedsAnAddressThatAnswers(t *testing.T) {
	for _, test := range []struct {
		name, at string // who listens at c's advertised address
		want     string
	}{
		{"nobody", "", "the address http://moved of node c does not answer node"},
		{"another node", "b", "at the address http://moved of c.1.00000007, node"},
	} {
		t.Run(test.name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.nodes["c"].advertise = "http://moved"
				if test.at != "" {
					b.listen("http://moved", test.at)
				}
				b.start("a", "b", "c")
				b.leased("a", "b")
				leader := b.metaLeader()
				b.never(20*time.Second, "c got a lease", func() bool { return b.at("c").cluster.Leased() || b.at("a").holds("c") })
				if why := b.at("c").cluster.Waiting(); leader != "c" && !strings.Contains(why, test.want) {
					t.Errorf("c waits for %q, want %q", why, test.want)
				}
				if len(b.at("c").reasons()) == 0 {
					t.Error("c is ready without a lease")
				}
				b.listen("http://moved", "c")
				if took := b.within(5*time.Second, "the lease of c", b.at("c").cluster.Leased); took > 2*time.Second {
					t.Errorf("the lease came %v after the address answered", took)
				}
			})
		})
	}
	t.Run("control", func(t *testing.T) {
		inBubble(t, func(b *bed) {
			for _, n := range b.nodes {
				n.unproven = true
			}
			b.nodes["c"].advertise = "http://moved"
			b.up() // with the proof switched off, c gets its lease
		})
	})
}

func TestLeaseRunsOut(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		dead := "c"
		if b.metaLeader() == dead {
			dead = "b"
		}
		other := map[string]string{"b": "c", "c": "b"}[dead]
		<-time.After(5 * time.Second)
		b.nodes[dead].kill()
		b.never(2400*time.Millisecond, "the lease ended too early", func() bool { return !b.at("a").holds(dead) })
		b.within(2500*time.Millisecond, "the lease ends", func() bool { return !b.at("a").holds(dead) && !b.at(other).holds(dead) })
		b.never(20*time.Second, "a living node's lease ended", func() bool { return !b.at(other).holds("a") || !b.at(other).holds(other) })
		b.start(dead)
		b.leased(dead)
		if l, _ := b.at("a").cluster.View().Lease(dead); l.Incarnation.Start != 2 {
			t.Errorf("the new lease is of %s", l.Incarnation)
		}
	})
}

// TestLeasesOutliveTheirLeader: while the meta group has no leader nothing runs
// out, and the next one does not know better than that all were renewed.
func TestLeasesOutliveTheirLeader(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		lead := b.metaLeader()
		var rest []string
		for _, id := range b.ids {
			if id != lead {
				rest = append(rest, id)
			}
		}
		<-time.After(5 * time.Second)
		b.nodes[lead].kill()
		b.never(20*time.Second, "a living node's lease ended", func() bool {
			return !b.at(rest[0]).holds(rest[0]) || !b.at(rest[0]).holds(rest[1]) ||
				!b.at(rest[0]).cluster.Leased() || !b.at(rest[1]).cluster.Leased()
		})
		if b.at(rest[0]).holds(lead) {
			t.Error("20 s later the dead leader still has its lease")
		}
		b.nodes[rest[1]].kill() // no quorum any more
		b.never(20*time.Second, "a lease ended without a meta leader", func() bool {
			return !b.at(rest[0]).holds(rest[0]) || !b.at(rest[0]).holds(rest[1]) || !b.at(rest[0]).cluster.Leased()
		})
	})
}

func TestWithdraw(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.at("c").cluster.Withdraw(b.Context())
		b.within(500*time.Millisecond, "the lease of c is gone", func() bool { return !b.at("a").holds("c") })
		b.never(10*time.Second, "a stopped node got a lease again", func() bool { return b.at("a").holds("c") })
	})
}

// create makes tables and returns who owns each, once that is where they belong.
func (b *bed) create(n int) {
	b.Helper()
	for i := range n {
		table, created, err := b.at("a").cluster.CreateTable(b.Context(), fmt.Sprint("t", i), api.TableSettings{})
		if err != nil || !created || table.Owner == "" || len(table.Replicas) != 3 {
			b.Fatalf("create table t%d: %+v, %t, %v", i, table, created, err)
		}
		for _, id := range b.ids { // promised: every live node routes to it
			if r := b.nodes[id].run; r != nil {
				if route, ok := r.cluster.Find(table.Name); !ok || route.Owner == "" || route.Table != table.ID {
					b.Fatalf("table %s is made, and %s routes to %+v", table.Name, id, route)
				}
			}
		}
	}
}

// owners counts the tables of each owner as a node sees it.
func (r *running) owners() map[string]int {
	out := map[string]int{}
	for _, t := range r.cluster.Status().Tables {
		out[t.Owner]++
	}
	return out
}

func TestTables(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(6)
		for _, id := range b.ids {
			b.within(15*time.Second, id+" sees two tables on each node", func() bool {
				o := b.at(id).owners()
				return o["a"] == 2 && o["b"] == 2 && o["c"] == 2
			})
		}
		moves := 0
		was := fmt.Sprint(b.at("a").cluster.Status().Tables)
		b.never(30*time.Second, "the owners do not rest", func() bool {
			if now := fmt.Sprint(b.at("a").cluster.Status().Tables); now != was {
				was = now
				moves++
			}
			return moves > 0
		})
		table, created, err := b.at("b").cluster.CreateTable(b.Context(), "t0", api.TableSettings{})
		if err != nil || created || table.Name != "t0" {
			t.Errorf("a table that is there: %+v, %t, %v", table, created, err)
		}
		_, _, err = b.at("b").cluster.CreateTable(b.Context(), "t0", api.TableSettings{Replicas: 1})
		if api.CodeOf(err) != api.CodeTableExists {
			t.Errorf("with other settings: %v", err)
		}
		_, _, err = b.at("b").cluster.CreateTable(b.Context(), "big", api.TableSettings{Replicas: 4})
		if api.CodeOf(err) != api.CodeNotEnoughNodes {
			t.Errorf("more replicas than nodes: %v", err)
		}
		b.check(b.at("c").cluster.DropTable(b.Context(), "t0"))
		for _, id := range b.ids {
			if _, there := b.at(id).cluster.Find("t0"); there {
				t.Errorf("%s still routes to a dropped table", id)
			}
			b.within(2*time.Second, id+" drops its replica", func() bool { _, here := b.at(id).tables.Local(table.ID); return !here })
		}
		if err = b.at("c").cluster.DropTable(b.Context(), "t0"); api.CodeOf(err) != api.CodeTableNotFound {
			t.Errorf("dropped twice: %v", err)
		}
		again, created, err := b.at("a").cluster.CreateTable(b.Context(), "t0", api.TableSettings{})
		if err != nil || !created || again.ID == table.ID {
			t.Errorf("made again: %+v, %t, %v", again, created, err)
		}
		b.within(2*time.Second, "the replicas are level", func() bool {
			now, err := b.at("c").cluster.Table(b.Context(), "t0")
			for _, r := range now.Replicas {
				if err != nil || r.Lag == nil || *r.Lag != 0 {
					return false
				}
			}
			return len(now.Replicas) == 3
		})
	})
}

func TestDrain(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(6)
		b.within(15*time.Second, "two tables on each node", func() bool { return b.at("c").cluster.Owned() == 2 })
		lead := b.metaLeader()
		begun := time.Now()
		b.at(lead).cluster.Drain(b.Context())
		if took := time.Since(begun); took > 3*time.Second {
			t.Errorf("the drain took %v", took)
		}
		if n := b.at(lead).cluster.Owned(); n != 0 || !b.at(lead).cluster.Draining() {
			t.Errorf("after the drain %d tables are owned", n)
		}
		if now := b.metaLeader(); now == lead {
			t.Error("the meta group was not handed over")
		}
		for _, id := range b.ids {
			b.within(time.Second, id+" sees the new owners", func() bool {
				o := b.at(id).owners()
				return o[lead] == 0 && o[""] == 0
			})
			b.within(time.Second, id+" sees the drain", func() bool {
				l, _ := b.at(id).cluster.View().Lease(lead)
				return l.Draining
			})
		}
	})
}

// TestReturn kills a node and has it come back: its tables are served meanwhile,
// it becomes level by heartbeats alone, and gets its tables again.
func TestReturn(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(6)
		b.within(15*time.Second, "two tables on each node", func() bool { return b.at("c").cluster.Owned() == 2 })
		b.nodes["c"].kill()
		b.within(5*time.Second, "the others own all", func() bool { return b.at("a").cluster.Owned()+b.at("b").cluster.Owned() == 6 })
		for i := range 20 {
			b.write(fmt.Sprint("t", i%6), fmt.Sprint("k", i))
		}
		b.start("c")
		b.leased("c")
		// Nobody writes, and nobody asks c anything until it must be level.
		<-time.After(300 * time.Millisecond)
		if why := b.at("c").reasons(); len(why) != 0 {
			t.Errorf("300 ms after its lease c is not ready: %+v", why)
		}
		b.never(55*time.Second, "c is given tables soon after a crash", func() bool { return b.at("c").cluster.Owned() > 0 })
		b.within(20*time.Second, "c owns two tables again", func() bool { return b.at("c").cluster.Owned() == 2 })
		for i := range 20 {
			b.write(fmt.Sprint("t", i%6), fmt.Sprint("k", i))
		}
	})
}

// write puts a row on the owner, wherever it is.
func (b *bed) write(name, key string) {
	b.Helper()
	b.within(10*time.Second, "a write of "+key, func() bool {
		up := slices.IndexFunc(b.ids, func(id string) bool { return b.nodes[id].run != nil })
		route, _ := b.at(b.ids[max(up, 0)]).cluster.Find(name)
		if route.Owner == "" || b.nodes[route.Owner].run == nil {
			return false
		}
		r := &api.Request{Op: api.OpPut, Key: key, Value: []byte("v"), Born: route.Born}
		copy(r.ID[:], key+time.Now().String())
		_, err := b.at(route.Owner).tables.Execute(b.Context(), route.Table, r)
		return err == nil
	})
}

// TestIsolatedNodeIsNotReady cuts a node off.
func TestIsolatedNodeIsNotReady(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.within(2*time.Second, "c is ready", func() bool { return len(b.at("c").reasons()) == 0 })
		b.isolate("c")
		b.within(3*time.Second, "c says that it is alone", func() bool {
			for _, r := range b.at("c").reasons() {
				if r.Code == "isolated" {
					return true
				}
			}
			return false
		})
		if why := b.at("a").reasons(); len(why) != 0 {
			t.Errorf("a is not ready: %+v", why)
		}
		b.block(nil)
		b.within(10*time.Second, "c is ready again", func() bool { return len(b.at("c").reasons()) == 0 })
	})
}

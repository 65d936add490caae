package cluster_test

import (
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// TestFound forms a cluster without a member, of the lowest id and of the highest. It
// gets in when it comes, and counts as a voter: the cluster can do without another
// then.
func TestFound(t *testing.T) {
	for _, away := range []string{"a", "c"} {
		t.Run(away, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				there := slices.DeleteFunc(slices.Clone(b.ids), func(id string) bool { return id == away })
				b.start(there...)
				b.within(10*time.Second, "it is said who is missing", func() bool {
					return strings.Contains(b.at(there[1]).cluster.Waiting(), "member "+away+" at http://"+away)
				})
				got, err := b.at(there[1]).cluster.Found(b.Context(), []string{there[1], there[0]})
				b.check(err)
				if got.Proposer != there[0] || !slices.Equal(got.Members, there) || !slices.Equal(got.Without, []string{away}) || got.ClusterID.IsZero() {
					b.Errorf("%+v", got)
				}
				b.leased(there...)
				if _, err = b.at(there[0]).cluster.Found(b.Context(), there); api.CodeOf(err) != api.CodeConflict {
					b.Errorf("again: %v", err)
				}
				b.start(away)
				b.leased(away)
				b.within(10*time.Second, away+" is ready", func() bool { return len(b.at(away).reasons()) == 0 })
				for _, id := range b.ids {
					if s := b.at(id).cluster.Status(); s.ClusterID != got.ClusterID || len(s.Members) != 3 || slices.ContainsFunc(s.Members, func(m api.Member) bool { return !m.Voter }) {
						b.Errorf("node %s: %+v", id, s)
					}
				}
				b.nodes[there[0]].kill()
				b.within(20*time.Second, "the lease of "+there[0]+" runs out", func() bool { return !b.at(away).holds(there[0]) })
				// Its first disk is bound to its name now.
				b.start(there[0])
				b.leased(there[0])
				b.nodes[away].kill()
				b.nodes[away].wipe()
				b.start(away)
				b.within(10*time.Second, away+" is told why it is not let in", func() bool {
					return strings.Contains(b.at(away).cluster.Waiting(), "`tidal node replace "+away+"` lets it back in")
				})
			})
		})
	}
}

func TestFoundRefuses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		start   []string
		members []string
		say     string
	}{
		{"no majority", []string{"a"}, []string{"a"}, "1 of the 3 listed members are named, and a cluster forms with 2 or more"},
		{"one that is away", []string{"a"}, []string{"a", "b"}, "not all members that are named can form a cluster: member b at http://b"},
		{"the lowest is away", []string{"b"}, []string{"a", "b"}, "node a has the lowest id of those named and is to propose the cluster: at http://a"},
		{"a stranger", []string{"a", "b"}, []string{"a", "z"}, "node z is not in the member list of node a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				b.start(tt.start...)
				_, err := b.at(tt.start[0]).cluster.Found(b.Context(), tt.members)
				if api.CodeOf(err) != api.CodeConflict || !strings.Contains(err.Error(), tt.say) {
					b.Errorf("%v, want %q", err, tt.say)
				}
				for _, id := range tt.start {
					if b.at(id).cluster.Formed() {
						b.Errorf("node %s belongs to a cluster", id)
					}
				}
			})
		})
	}
	t.Run("one that is there", func(t *testing.T) {
		inBubbleOf(t, []string{"a", "b", "c", "d", "e"}, func(b *bed) {
			b.start("b", "c", "d", "e")
			_, err := b.at("b").cluster.Found(b.Context(), []string{"b", "c", "d"})
			if err == nil || !strings.Contains(err.Error(), "member e, which is to be left out, is there and agrees") {
				b.Errorf("%v", err)
			}
		})
	})
}

// TestFoundLoses has two lists proposed at once: one of them is led, and who took the
// other says so and gets in with an empty disk.
func TestFoundLoses(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.block(func(_, to string, _ wire.Method) bool { return to == "c" })
		b.start("a", "b", "c")
		b.within(10*time.Second, "a waits for c", func() bool { return strings.Contains(b.at("a").cluster.Waiting(), "member c") })
		// a is cut off when b has answered that it could.
		b.block(func(from, to string, m wire.Method) bool {
			return to == "c" || from == "a" && m == wire.MethodFormAccept
		})
		lost, err := b.at("a").cluster.Found(b.Context(), []string{"a", "b"})
		b.check(err)
		b.block(func(from, to string, _ wire.Method) bool { return from == "a" || to == "a" })
		won, err := b.at("b").cluster.Found(b.Context(), []string{"b", "c"})
		b.check(err)
		b.leased("b", "c")
		b.block(nil)
		b.within(10*time.Second, "a says who has taken another list", func() bool {
			return strings.Contains(b.at("a").cluster.Waiting(), "member b at http://b has not taken the founding list: node a belongs to cluster id "+lost.ClusterID.String()+", node b to "+won.ClusterID.String())
		})
		b.never(10*time.Second, "a cluster that lost is led", func() bool { return b.at("a").cluster.Leased() || lost.ClusterID == won.ClusterID })
		b.nodes["a"].kill()
		b.nodes["a"].wipe()
		b.start("a")
		b.leased("a")
	})
}

// foundings has operators found clusters at once, with lists and a network of their
// own, while nodes crash and come back, and returns how many clusters are led in the
// end.
func foundings(t *testing.T, seed uint64) (led int) {
	t.Helper()
	inBubbleOf(t, []string{"a", "b", "c", "d", "e"}, func(b *bed) {
		r := rand.New(rand.NewPCG(seed, 1))
		side := map[string]int{}
		for _, id := range b.ids {
			side[id] = r.IntN(2)
		}
		cut, lost := r.IntN(3) > 0, r.IntN(60)
		losing := rand.New(rand.NewPCG(seed, 2)) // under the lock of the bed
		b.block(func(from, to string, m wire.Method) bool {
			return cut && side[from] != side[to] || m == wire.MethodFormAccept && losing.IntN(100) < lost
		})
		b.start(b.ids...)
		var operators sync.WaitGroup
		for range 3 {
			at := b.ids[r.IntN(len(b.ids))]
			named := slices.DeleteFunc(slices.Clone(b.ids), func(id string) bool { return cut && side[id] != side[at] || !cut && r.IntN(4) == 0 })
			late, run := time.Duration(r.IntN(50))*time.Millisecond, b.at(at)
			operators.Go(func() {
				<-time.After(late)
				_ = run.asked(func() error { // one may be refused, or its node is gone
					_, err := run.cluster.Found(run.ctx, named)
					return err
				})
			})
		}
		for range r.IntN(4) {
			<-time.After(time.Duration(r.IntN(60)) * time.Millisecond)
			n := b.nodes[b.ids[r.IntN(len(b.ids))]]
			n.kill()
			n.start()
		}
		operators.Wait()
		<-time.After(5 * time.Second)
		b.block(nil)
		<-time.After(20 * time.Second)
		led = b.led()
	})
	return led
}

// led returns how many clusters are led.
func (b *bed) led() int {
	ids := map[api.ClusterID]bool{}
	for _, id := range b.ids {
		if c := b.at(id).cluster; c.Leased() {
			ids[c.ID()] = true
		}
	}
	return len(ids)
}

// TestFoundOnce: however many operators found clusters at once, one is led and no more.
// TIDAL_FOUND_SEEDS is how many times it is tried.
func TestFoundOnce(t *testing.T) {
	seeds := uint64(3)
	if s := os.Getenv("TIDAL_FOUND_SEEDS"); s != "" {
		var err error
		if seeds, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	for seed := range seeds {
		if led := foundings(t, seed); led != 1 {
			t.Errorf("seed %d: %d clusters are led", seed, led)
		}
	}
}

// TestFoundApart has an operator on each side of a cut found a cluster. One of them
// has no majority; with the defect, which has a side alone as the voters, there are two.
func TestFoundApart(t *testing.T) {
	for _, part := range []bool{false, true} {
		want := map[bool]int{false: 1, true: 2}[part]
		inBubbleOf(t, []string{"a", "b", "c", "d", "e"}, func(b *bed) {
			for _, n := range b.nodes {
				n.part = part
			}
			b.block(func(from, to string, _ wire.Method) bool { return (from < "d") != (to < "d") })
			b.start(b.ids...)
			_, err := b.at("b").cluster.Found(b.Context(), []string{"a", "b", "c"})
			b.check(err)
			_, err = b.at("d").cluster.Found(b.Context(), []string{"d", "e"})
			if (err == nil) != part {
				b.Errorf("with the defect %t: the smaller side founds a cluster: %v", part, err)
			}
			<-time.After(10 * time.Second)
			b.block(nil)
			<-time.After(20 * time.Second)
			if led := b.led(); led != want {
				b.Errorf("with the defect %t: %d clusters are led, want %d; %s", part, led, want, b.say())
			}
		})
	}
}

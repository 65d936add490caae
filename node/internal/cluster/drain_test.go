package cluster_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// TestClaimEnds: an operator claims a node's drain and dies. The node owns nothing
// while the claim lasts, and takes its tables again by itself.
func TestClaimEnds(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(6)
		b.within(15*time.Second, "two tables on each node", func() bool { return b.at("c").cluster.Owned() == 2 })
		c := b.at("c").cluster
		if err := c.ClaimDrain(api.NodeOrder{By: "ann"}, 30*time.Second); err != nil {
			t.Fatal(err)
		}
		b.within(3*time.Second, "c owns nothing", func() bool { return c.Owned() == 0 })
		b.within(time.Second, "a sees the drain", func() bool { l, _ := b.at("a").cluster.View().Lease("c"); return l.Draining })
		b.never(20*time.Second, "c owns a table, or leads the metadata", func() bool { return c.Owned() > 0 || b.metaLeader() == "c" })
		b.within(10*time.Second, "the claim is over", func() bool { return c.Claim() == nil && !c.Draining() })
		b.within(2*time.Second, "a sees its end", func() bool { l, _ := b.at("a").cluster.View().Lease("c"); return !l.Draining })
		b.within(15*time.Second, "c owns two tables again", func() bool { return c.Owned() == 2 })
	})
}

// TestClaims: who may claim, renew and give up.
func TestClaims(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		c := b.at("c").cluster
		claim := func(by string, epoch uint64, want api.Code) {
			t.Helper()
			if err := c.ClaimDrain(api.NodeOrder{By: by, Epoch: epoch}, 10*time.Second); api.CodeOf(err) != want {
				t.Errorf("claim of %s with epoch %d: %v, want %q", by, epoch, err, want)
			}
		}
		release := func(epoch uint64, want api.Code) {
			t.Helper()
			if err := c.ReleaseDrain(api.NodeOrder{Epoch: epoch}); api.CodeOf(err) != want {
				t.Errorf("release of epoch %d: %v, want %q", epoch, err, want)
			}
		}
		claim("ann", 0, "")
		if now := c.Claim(); now == nil || now.By != "ann" || now.Epoch != 1 || now.EndsIn != "10s" {
			t.Errorf("claim: %+v", now)
		}
		claim("ann", 0, "") // she forgot the number
		claim("bob", 0, api.CodeClaimed)
		claim("bob", 1, api.CodeClaimed)
		if err := c.MayOrder(api.NodeOrder{}); api.CodeOf(err) != api.CodeClaimed {
			t.Errorf("an order without the claim's epoch: %v", err)
		}
		if err := c.MayOrder(api.NodeOrder{Epoch: 1}); err != nil {
			t.Errorf("an order with the claim's epoch: %v", err)
		}
		claim("bob", 5, "") // a later roll
		claim("ann", 1, api.CodeClaimed)
		release(1, api.CodeClaimed)
		<-time.After(6 * time.Second)
		claim("bob", 5, "") // renewed
		<-time.After(6 * time.Second)
		if !c.Draining() {
			t.Error("a claim that was renewed ran out")
		}
		<-time.After(5 * time.Second)
		if c.Draining() || c.Claim() != nil {
			t.Error("the claim did not run out")
		}
		claim("bob", 5, api.CodeClaimed) // it was asleep: its claim is over
		if err := c.MayOrder(api.NodeOrder{Epoch: 4}); api.CodeOf(err) != api.CodeClaimed {
			t.Errorf("an order of an old epoch: %v", err)
		}
		if err := c.MayOrder(api.NodeOrder{}); err != nil {
			t.Errorf("an order without an epoch when no claim lasts: %v", err)
		}
		claim("ann", 0, "")
		release(0, "")
		if c.Draining() {
			t.Error("draining after the release")
		}
		claim("ann", 6, api.CodeClaimed)
		claim("ann", 7, "")
	})
}

// leave drains a node and asks for it to be let go, for so long.
func (r *running) leave(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r.cluster.Drain(ctx)
	if missing := r.cluster.AwaitReleased(ctx); len(missing) > 0 {
		r.n.bed.Errorf("%s was not released by %v", r.n.id, missing)
	}
	return r.cluster.AwaitLeave(ctx)
}

// TestTwoLeaveAtOnce: of two nodes told to stop in the same instant one goes, and
// the other once the first is back.
func TestTwoLeaveAtOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(6)
		type end struct {
			id  string
			err error
		}
		ends := make(chan end, 2)
		for _, id := range []string{"a", "b"} {
			go func() { ends <- end{id, b.at(id).leave(b.Context(), 20*time.Second)} }()
		}
		first := <-ends
		if first.err != nil {
			t.Fatalf("%s: %v", first.id, first.err)
		}
		b.nodes[first.id].kill() // it has said all that it had to
		b.never(10*time.Second, "the second went too", func() bool { return len(ends) > 0 })
		b.write("t0", "k")
		b.start(first.id)
		b.leased(first.id)
		second := <-ends
		if second.err != nil || second.id == first.id {
			t.Errorf("%s after %s: %v", second.id, first.id, second.err)
		}
	})
}

// TestReadyNoMoreOnceItHasLeft: a node that was let go has no lease, whatever it goes on with.
func TestReadyNoMoreOnceItHasLeft(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		c := b.at("c")
		b.within(5*time.Second, "c is ready", func() bool { return len(c.reasons()) == 0 })
		b.check(c.leave(b.Context(), 10*time.Second))
		c.cluster.Stay()
		b.never(3*time.Second, "c is ready", func() bool {
			why := c.reasons()
			return c.cluster.Leased() || c.cluster.Waiting() == "" || len(why) != 1 || why[0].Code != "no-lease"
		})
	})
}

// TestLetGoWithoutAnAnswer: a node that is let go and does not hear of it learns that its
// lease is gone, and says so: it would wait for another for ever.
func TestLetGoWithoutAnAnswer(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		c := b.at("c").cluster
		if c.HasLeft(b.Context()) {
			t.Error("c has left before it was let go")
		}
		b.lose(func(from string, m wire.Method) bool { return from == "c" && m == wire.MethodWithdraw })
		if err := b.at("c").leave(b.Context(), 10*time.Second); err != nil {
			t.Errorf("not let go: %v", err)
		}
	})
}

// TestLetGoUnseen: the same, if the node is cut off before it learns it: it means to stay,
// and must end when it is back.
func TestLetGoUnseen(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		c := b.at("c").cluster
		c.Drain(b.Context())
		b.lose(func(string, wire.Method) bool { return true })
		b.block(func(from, to string, m wire.Method) bool {
			return (from == "c") != (to == "c") && m != wire.MethodWithdraw
		})
		ctx, cancel := context.WithTimeout(b.Context(), 300*time.Millisecond)
		defer cancel()
		if err := c.AwaitLeave(ctx); err == nil || c.HasLeft(b.Context()) {
			t.Fatalf("c knows of it: %v", err)
		}
		if b.at("a").holds("c") {
			t.Fatal("c was not let go")
		}
		c.Stay()
		b.lose(nil)
		b.block(nil)
		select {
		case <-c.Gone():
		case <-time.After(10 * time.Second):
			t.Errorf("c goes on: %s", b.say())
		}
	})
}

// TestLeaveEndsAtTheDeadline: whoever would take a quorum along is told what, and
// its own deadline decides.
func TestLeaveEndsAtTheDeadline(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(1)
		b.nodes["a"].kill()
		b.within(10*time.Second, "a's lease is gone", func() bool { return !b.at("b").holds("a") })
		err := b.at("b").leave(b.Context(), 10*time.Second)
		if api.CodeOf(err) != api.CodeNotReady {
			t.Errorf("let go: %v", err)
		}
	})
}

// TestAllLeaveAtOnce: when everybody stops, nobody waits for those who will not
// come back.
func TestAllLeaveAtOnce(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(6)
		begun := time.Now()
		var wg sync.WaitGroup
		for _, id := range b.ids {
			wg.Go(func() {
				if err := b.at(id).leave(b.Context(), 20*time.Second); err != nil {
					t.Errorf("%s: %v", id, err)
				}
			})
		}
		wg.Wait()
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestLastLeavesUnasked: the node that is left alone has no quorum that it could take
// with it, nor anybody who could let it go. It must not wait for that.
func TestLastLeavesUnasked(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(6)
		b.nodes["a"].kill()
		b.nodes["b"].kill()
		begun := time.Now()
		if err := b.at("c").leave(b.Context(), 20*time.Second); err != nil {
			t.Errorf("not let go: %v", err)
		}
		if took := time.Since(begun); took > 6*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// TestReleasedIsToldByEveryPeer: a peer that has not heard of the new owners has
// not released the node.
func TestReleasedIsToldByEveryPeer(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		b.create(6)
		b.within(15*time.Second, "two tables on each node", func() bool { return b.at("c").cluster.Owned() == 2 })
		ctx, cancel := context.WithTimeout(b.Context(), 2*time.Second)
		defer cancel()
		// c still owns two tables, and keeps them.
		if missing := b.at("c").cluster.AwaitReleased(ctx); len(missing) > 0 {
			t.Errorf("not released by %v, though c keeps what it owns", missing)
		}
		b.block(func(_, to string, m wire.Method) bool { return to == "b" && m == wire.MethodReleased })
		if missing := b.at("c").cluster.AwaitReleased(ctx); !slices.Equal(missing, []string{"b"}) {
			t.Errorf("not released by %v, want b", missing)
		}
	})
}

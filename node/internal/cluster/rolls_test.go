package cluster_test

import (
	"testing"
	"time"

	"tidal/node/api"
)

// rolls is shorthand for what operators do at a node.
type rolls struct {
	b    *bed
	node string
}

func (r rolls) do(a api.RollAction, id uint64, c api.RollChange, want api.Code) api.Roll {
	r.b.Helper()
	got, err := r.b.at(r.node).cluster.ChangeRoll(r.b.Context(), a, id, c)
	if api.CodeOf(err) != want || want == "" && err != nil {
		r.b.Errorf("%s of roll %d at %s with %+v: %v, want %q", a, id, r.node, c, err, want)
	}
	return got
}

func (r rolls) holds(id, epoch uint64, want api.Code) {
	r.b.Helper()
	if err := r.b.at(r.node).cluster.HoldsRoll(r.b.Context(), id, epoch); api.CodeOf(err) != want {
		r.b.Errorf("epoch %d of roll %d at %s: %v, want %q", epoch, id, r.node, err, want)
	}
}

// TestRollLock: one roll at a time; its holder keeps it while it is heard, also over
// a change of the leader; then another may take it, and the old one is told.
func TestRollLock(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		ann, bob := rolls{b, "a"}, rolls{b, "b"}
		bob.holds(1, 1, api.CodeRollNotFound)
		r := ann.do(api.RollStart, 0, api.RollChange{By: "ann", Data: []byte(`{"k":1}`)}, "")
		if r.ID != 1 || r.Epoch != 1 || r.Status != api.RollRunning || string(r.Plan) != `{"k":1}` {
			t.Errorf("started %+v", r)
		}
		bob.do(api.RollStart, 0, api.RollChange{By: "bob"}, api.CodeRollLocked)
		ann.do(api.RollNote, 1, api.RollChange{Epoch: 1, Node: "c", State: "drain"}, "")
		for range 12 { // a minute, while the holder is heard
			<-time.After(5 * time.Second)
			ann.do(api.RollRenew, 1, api.RollChange{Epoch: 1}, "")
		}
		bob.do(api.RollTake, 1, api.RollChange{Epoch: 1, By: "bob"}, api.CodeRollLocked)
		bob.do(api.RollAsk, 0, api.RollChange{Ask: api.RollAskPause}, "")
		if r = ann.do(api.RollRenew, 1, api.RollChange{Epoch: 1}, ""); r.Ask != api.RollAskPause {
			t.Errorf("the holder is not told: %+v", r)
		}
		// Another leader has heard nobody, and must not take that for silence.
		leader := b.metaLeader()
		b.nodes[leader].kill()
		b.start(leader)
		b.within(20*time.Second, "there is a leader", func() bool { return b.metaLeader() != "" })
		<-time.After(5 * time.Second)
		bob.do(api.RollTake, 1, api.RollChange{Epoch: 1, By: "bob"}, api.CodeRollLocked)
		<-time.After(api.RollSilence)
		r = bob.do(api.RollTake, 1, api.RollChange{Epoch: 1, By: "bob"}, "")
		if r.Epoch != 2 || r.By != "bob" || r.Ask != "" || len(r.Nodes) != 1 || r.Nodes[0].State != "drain" {
			t.Errorf("taken %+v", r)
		}
		ann.do(api.RollRenew, 1, api.RollChange{Epoch: 1}, api.CodeStaleEpoch)
		ann.do(api.RollNote, 1, api.RollChange{Epoch: 1, Node: "c", State: "stop"}, api.CodeStaleEpoch)
		ann.holds(1, 1, api.CodeStaleEpoch)
		ann.holds(1, 2, "")
		bob.do(api.RollEnd, 1, api.RollChange{Epoch: 2, Status: api.RollPaused, Why: "so"}, "")
		bob.holds(1, 2, api.CodeStaleEpoch)
		ann.do(api.RollTake, 1, api.RollChange{Epoch: 2, By: "ann"}, "") // a paused one waits for nobody
		bob.do(api.RollTake, 1, api.RollChange{Epoch: 3, By: "bob", Force: true}, "")
	})
}

// TestHoldsIsLinearizable: a node that is cut off from the meta group does not say
// that an epoch holds, whatever its own replica knows.
func TestHoldsIsLinearizable(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		ann := rolls{b, "a"}
		ann.do(api.RollStart, 0, api.RollChange{By: "ann"}, "")
		for _, id := range b.ids {
			rolls{b, id}.holds(1, 1, "")
		}
		leader := b.metaLeader()
		for _, id := range b.ids {
			if id != leader {
				b.nodes[id].kill()
			}
		}
		rolls{b, leader}.holds(1, 1, api.CodeNotReady)
	})
}

// TestClaimsOfRolls: a later epoch takes the claim of an earlier one over; nobody
// takes it from a person; a roll that slept past its claim does not restart.
func TestClaimsOfRolls(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.up()
		c := b.at("c").cluster
		claim := func(epoch uint64, want api.Code) {
			t.Helper()
			if err := c.ClaimDrain(api.NodeOrder{Roll: 1, Epoch: epoch, By: "roll"}, 10*time.Second); api.CodeOf(err) != want {
				t.Errorf("claim of epoch %d: %v, want %q", epoch, err, want)
			}
		}
		order := func(epoch uint64, want api.Code) {
			t.Helper()
			if err := c.MayOrder(api.NodeOrder{Roll: 1, Epoch: epoch}); api.CodeOf(err) != want {
				t.Errorf("an order of epoch %d: %v, want %q", epoch, err, want)
			}
		}
		if err := c.ClaimDrain(api.NodeOrder{By: "ann"}, time.Second); err != nil {
			t.Fatal(err)
		}
		claim(3, api.CodeClaimed)
		order(3, api.CodeClaimed)
		<-time.After(2 * time.Second)
		order(3, api.CodeClaimed) // it claims nothing yet
		claim(3, "")
		order(3, "")
		if now := c.Claim(); now == nil || now.Roll != 1 || now.By != "roll" {
			t.Errorf("claim: %+v", now)
		}
		if err := c.ClaimDrain(api.NodeOrder{By: "ann"}, time.Second); api.CodeOf(err) != api.CodeClaimed {
			t.Errorf("ann claims during a roll: %v", err)
		}
		claim(4, "")
		claim(3, api.CodeStaleEpoch)
		order(3, api.CodeStaleEpoch)
		if err := c.ReleaseDrain(api.NodeOrder{Roll: 1, Epoch: 3}); api.CodeOf(err) != api.CodeStaleEpoch {
			t.Errorf("a stale release: %v", err)
		}
		<-time.After(11 * time.Second)
		order(4, api.CodeClaimed) // it slept: what it knows is old
		claim(4, "")
		order(4, "")
		if err := c.ReleaseDrain(api.NodeOrder{Roll: 1, Epoch: 4}); err != nil || c.Draining() {
			t.Errorf("release: %v, draining %t", err, c.Draining())
		}
	})
}

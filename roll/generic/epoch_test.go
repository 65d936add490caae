package generic_test

import (
	"testing"

	"tidal/node/api"
	"tidal/roll"
)

// TestOverIsOver: whoever held a roll that was taken or unlocked notes nothing in it any more.
func TestOverIsOver(t *testing.T) {
	t.Parallel()
	_, s := newPlayed(t)
	o := newOperator(t, s)
	o.begin(t, roll.Options{})
	first := o.runner.Roll
	note := func(epoch uint64) api.Code {
		_, err := o.journal.ChangeRoll(t.Context(), api.RollNote, first.ID, api.RollChange{Epoch: epoch, Node: "n1", State: string(roll.StateCheck)})
		return api.CodeOf(err)
	}
	if code := note(first.Epoch); code != "" {
		t.Fatalf("its holder is answered %s", code)
	}
	taken, err := o.journal.ChangeRoll(t.Context(), api.RollTake, first.ID, api.RollChange{Epoch: first.Epoch, By: "bob", Force: true})
	if err != nil || taken.Epoch != first.Epoch+1 {
		t.Fatalf("%+v, %v", taken, err)
	}
	if code := note(first.Epoch); code != api.CodeStaleEpoch {
		t.Errorf("who held it before is answered %q", code)
	}
	unlocked, err := o.journal.ChangeRoll(t.Context(), api.RollUnlock, first.ID, api.RollChange{By: "eve"})
	if err != nil || unlocked.Epoch != taken.Epoch+1 || unlocked.Status != api.RollAborted {
		t.Errorf("unlocked it is %+v, %v", unlocked, err)
	}
	if code := note(taken.Epoch); code != api.CodeStaleEpoch {
		t.Errorf("after it was unlocked its holder is answered %q", code)
	}
}

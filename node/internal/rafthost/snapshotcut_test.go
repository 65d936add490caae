package rafthost_test

import (
	"slices"
	"testing"

	"tidal/node/internal/wire"
)

// TestSnapshotOverACut: a replica that is about to cut its log is brought a snapshot,
// and the cut goes with the log that it was of. Else the log would begin where the
// old one was to be cut, and have a hole from there to the snapshot.
func TestSnapshotOverACut(t *testing.T) {
	f := newFabric(t, 1)
	f.logBytes = 64 << 10
	for _, n := range f.nodes {
		n.crash() // with the bound
	}
	lead, follower, want := f.behind(1)
	for len(lead.owed) == 0 {
		f.tick()
	}
	s := lead.owed[0]
	lead.owed = nil
	st := follower.stage(lead.parts(s, f.defect))
	if start, last := follower.log(1); start >= last {
		t.Fatalf("its log has (%d, %d]: nothing to cut", start, last)
	}
	word := message(wire.MsgCut, 1, replica(1, 1), replica(1, 3), lead.state[1].Term)
	word.Index = new(uint64)
	*word.Index = 2
	follower.stepper.Receive("n1", word)
	for follower.stepper.Dirty() {
		follower.pass()
	}
	for range 10 { // within which it looks at its logs
		follower.stepper.Tick()
	}
	r := &reply{}
	follower.stepper.Install(st, r.ended)
	f.settle()
	f.check(st.Drop())
	f.is("the install", r, nil)
	if start, last := follower.log(1); start != 42 || last != 42 {
		t.Errorf("its log has (%d, %d], want none behind 42", start, last)
	}
	follower.crash()
	if got := follower.texts(1); !slices.Equal(got, want) {
		t.Errorf("after a crash it has %d texts, want %d", len(got), len(want))
	}
}

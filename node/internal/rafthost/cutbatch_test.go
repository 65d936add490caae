package rafthost_test

import (
	"fmt"
	"slices"
	"testing"
)

// TestMachineLooks has a machine look at the database behind an entry in the middle
// of many that are applied in one pass: nothing later is there, also of other groups
// nothing is lost, and a crash after that leaves a prefix.
func TestMachineLooks(t *testing.T) {
	f := newFabric(t, 1, 2)
	lead := f.elect(1)
	seen := map[string][][]string{}
	for _, n := range f.nodes {
		n.machines[1].cut = "text 4"
		n.machines[1].look = func() { seen[n.id] = append(seen[n.id], n.texts(1)) }
	}
	var want []string
	for i := range 10 {
		text := fmt.Sprintf("text %d", i)
		lead.propose(1, text)
		want = append(want, text)
	}
	f.settle()
	f.tick()
	for _, n := range f.nodes {
		if !slices.ContainsFunc(seen[n.id], func(s []string) bool { return slices.Equal(s, want[:5]) }) {
			t.Errorf("%s looked and saw %q, never just what was applied up to the entry", n.id, seen[n.id])
		}
		if got := n.texts(1); !slices.Equal(got, want) {
			t.Errorf("%s has %q at the end", n.id, got)
		}
		if g := n.gauges[1].Applied.Load(); g != 11 {
			t.Errorf("%s has applied %d", n.id, g)
		}
	}
	follower := f.nodes[2]
	follower.crash()
	if got := follower.texts(1); !slices.Equal(got, want[:len(got)]) {
		t.Errorf("after a crash: %q", got)
	}
}

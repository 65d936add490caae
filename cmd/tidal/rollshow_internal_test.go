package main

import (
	"slices"
	"testing"
	"time"

	"tidal/node/api"
)

// TestWatchInOrder: who begins to watch a roll that goes on is shown what was noted in
// the order in which it was, of all nodes, and nothing twice.
func TestWatchInOrder(t *testing.T) {
	at := func(s int) api.RollStep { return api.RollStep{State: "done", At: time.Unix(int64(s), 0)} }
	r, seen := &api.Roll{Nodes: []api.RollNode{
		{Node: "a", Steps: []api.RollStep{at(3), at(4)}}, {Node: "b", Steps: []api.RollStep{at(1), at(2)}},
	}}, map[string]api.RollStep{}
	shown := func() (out []string) {
		for _, e := range newSteps(r, seen) {
			out = append(out, e.Node+e.Time.UTC().Format("05"))
		}
		return out
	}
	if got, want := shown(), []string{"b01", "b02", "a03", "a04"}; !slices.Equal(got, want) {
		t.Errorf("shown is %v, want %v", got, want)
	}
	r.Nodes[0].Steps = append(r.Nodes[0].Steps, at(5))
	if got, want := shown(), []string{"a05"}; !slices.Equal(got, want) {
		t.Errorf("shown next is %v, want %v", got, want)
	}
	r.Nodes[0].Steps = append(r.Nodes[0].Steps[1:], at(6)) // the journal keeps so many
	if got, want := shown(), []string{"a06"}; !slices.Equal(got, want) {
		t.Errorf("after the journal has dropped a step shown is %v, want %v", got, want)
	}
	r.Nodes[0].Steps = []api.RollStep{at(8), at(9)} // and may drop all that was seen
	if got, want := shown(), []string{"a08", "a09"}; !slices.Equal(got, want) {
		t.Errorf("after the journal has dropped all that was seen shown is %v, want %v", got, want)
	}
	if got := shown(); len(got) > 0 {
		t.Errorf("shown twice is %v", got)
	}
}

package roll_test

import (
	"fmt"
	"strings"
	"testing"

	"tidal/roll"
)

// TestAskOfNodesThatAreAway: of every node that does not answer it is said why, also when
// those without a lease come between others. Nodes are asked side by side: run with -race.
func TestAskOfNodesThatAreAway(t *testing.T) {
	v := &roll.View{}
	for i := range 100 {
		n := roll.Node{ID: fmt.Sprintf("n%02d", i)}
		if i%2 == 0 {
			n.Incarnation = n.ID + ".1" // it has a lease, and nobody knows where it is
		}
		v.Nodes = append(v.Nodes, n)
	}
	all, problems := (&roll.Tidal{}).Ask(t.Context(), v)
	if len(all) != 0 || len(problems) != len(v.Nodes) {
		t.Fatalf("%d answered, and of %d it is said why they did not", len(all), len(problems))
	}
	for id, want := range map[string]string{"n00": "address of node n00 is not known", "n01": "it has no lease"} {
		if got := problems[id].Error(); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
}

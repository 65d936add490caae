package node

import (
	"testing"

	"tidal/node/api"
)

// TestExplain: what a node waits for is said once, at the reason that is nearest.
func TestExplain(t *testing.T) {
	for _, test := range []struct {
		codes []string
		at    int
	}{
		{[]string{"starting"}, 0},
		{[]string{"starting", "forming"}, 1},
		{[]string{"no-lease", "isolated"}, 0},
		{[]string{"isolated"}, -1},
	} {
		var reasons []api.Reason
		for _, c := range test.codes {
			reasons = append(reasons, api.Reason{Code: c, Detail: "it is so"})
		}
		explain(reasons, "the reason")
		for i, r := range reasons {
			want := "it is so"
			if i == test.at {
				want += ": the reason"
			}
			if r.Detail != want {
				t.Errorf("%v: %s says %q", test.codes, r.Code, r.Detail)
			}
		}
	}
}

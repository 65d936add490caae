package roll_test

import (
	"strings"
	"testing"

	"tidal/roll"
)

// counted is world of a kind that only counts nodes.
func counted() *roll.View {
	v := world()
	v.Kind, v.Quorum, v.Tables = roll.KindGeneric, 2, nil
	return v
}

// TestCountedGate: of a cluster whose nodes are only counted, what can be known blocks
// as ever, by the same names, and what cannot is said to be unknown.
func TestCountedGate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(v *roll.View, q *roll.Question)
		check  string // "": all pass
		detail string
	}{
		{"all is well", func(*roll.View, *roll.Question) {}, "", ""},
		{"an empty view", func(v *roll.View, _ *roll.Question) { v.Nodes = nil }, "view", "lists no nodes"},
		{"a member is missing", func(v *roll.View, _ *roll.Question) { v.Nodes = v.Nodes[:2] }, "members", "incomplete: 2 of 3"},
		{"another is not ready", func(v *roll.View, _ *roll.Question) { v.Nodes[2].Wrong = []string{"503"} }, "budget", "c (503)"},
		{"two at once", func(v *roll.View, q *roll.Question) { q.Nodes, q.MaxUnavailable = []string{"b", "c"}, 2 }, "quorum", "without b, c 1 of 3 nodes would be ready (a), and 2 are needed"},
		{"another is silent, and that is allowed", func(v *roll.View, q *roll.Question) {
			v.Nodes[2].Silent, q.MaxUnavailable = "no answer", 2
		}, "quorum", "without b 1 of 3 nodes"},
		{"all must be ready", func(v *roll.View, _ *roll.Question) { v.Quorum = 3 }, "quorum", "2 of 3 nodes would be ready (a, c), and 3 are needed"},
		{"the canary failed", func(_ *roll.View, q *roll.Question) { q.Canary, q.Refused = true, 3 }, "refused", "3 attempts of the canary failed since the roll began; at most 0 may"},
		{"all are of one run", func(v *roll.View, _ *roll.Question) {
			for i := range v.Nodes {
				v.Nodes[i].Incarnation = "Start"
			}
		}, "", ""},
		{"that is allowed", func(_ *roll.View, q *roll.Question) { q.Canary, q.Refused, q.MaxRefusals = true, 3, 3 }, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := counted()
			q := roll.Question{Kind: roll.KindGeneric, Nodes: []string{"b"}, Expected: []string{"a", "b", "c"}, MaxUnavailable: 1}
			tc.change(v, &q)
			all := roll.Checks(v, q)
			unknown := 0
			var first roll.Check
			for _, c := range all {
				if c.Level == roll.Unknown {
					unknown++
				}
				if warned := c.Name == "view" && c.Level == roll.Warn; warned != (tc.name == "all are of one run") && c.Name == "view" {
					t.Errorf("%+v", c)
				}
				if c.Level == roll.Block && c.Name == tc.check {
					first = c
				}
			}
			if want := 6; q.Canary && unknown != want-1 || !q.Canary && unknown != want {
				t.Errorf("%d checks are unknown: %+v", unknown, all)
			}
			blocked := roll.Blocked(all)
			if tc.check == "" && len(blocked) > 0 || tc.check != "" && !strings.Contains(first.Detail, tc.detail) {
				t.Errorf("%+v", blocked)
			}
		})
	}
}

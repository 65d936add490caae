package roll_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/roll"
)

// TestNotCountedIsSaid: what a node counted that nobody could read, because it did not
// come back, or did not answer yet when the roll began, is named in the report. Of one
// that was away for a moment, and left its counts to its next run, nothing is missing.
func TestNotCountedIsSaid(t *testing.T) {
	for _, tc := range []struct {
		name   string
		happen func(s *stage)
		node   int
		want   string
		before bool // what it counted before the roll is known
	}{
		{"it does not come back", func(s *stage) {
			s.restarts = func(s *stage, id string) error { s.away[id] = time.Time{}; return nil }
		}, 1, "what b.1.00000001 counted since 2000-01-01T00:00:0", true},
		{
			"it does not answer at first", func(s *stage) { s.away["c"] = time.Now().Add(5 * time.Second) }, 2,
			"what it counted from 2000-01-01T00:00:00Z to 2000-01-01T00:00:0", false,
		},
		{"it never answers", func(s *stage) {
			s.away["c"] = time.Time{}
			s.restarts = func(s *stage, _ string) error { s.away["c"] = time.Time{}; return nil }
		}, 2, "everything: it never answered", false},
		{"it is well", func(*stage) {}, 1, "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage()
				for _, id := range []string{"b", "c"} {
					s.recent[id] = counted100()
				}
				tc.happen(s)
				report, err := s.run(t, roll.Options{}, nil)
				if err != nil && !errors.As(err, new(*roll.TroubleError)) {
					t.Fatal(err)
				}
				n := report.Nodes[tc.node]
				if tc.want == "" && n.Unknown != "" || !strings.HasPrefix(n.Unknown, tc.want) {
					t.Errorf("of node %s not counted is %q, want %q", n.Node, n.Unknown, tc.want)
				}
				if (n.P99Before > 0) != tc.before {
					t.Errorf("of node %s p99 before is %v, known %t", n.Node, n.P99Before, tc.before)
				}
			})
		})
	}
}

// counted100 are a hundred requests that took 2 ms.
func counted100() api.RequestCounts {
	return api.RequestCounts{Answered: 100, LongestMicros: 2000, Buckets: []api.RequestBucket{{Bucket: api.BucketOf(2000), Count: 100}}}
}

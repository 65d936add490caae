package roll_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/roll"
)

// TestResumeRightAway: who mends a node and resumes at once is not told that it does not
// stay up: its peers hold the lease of the run that was ended for seconds, or it drains
// for its restart. One that comes and goes for ever pauses the roll all the same.
func TestResumeRightAway(t *testing.T) {
	for _, tc := range []struct {
		name  string
		views func(s *stage, since time.Duration)
		why   string
	}{
		{"it was killed and started", func(s *stage, since time.Duration) {
			n := s.nodeLocked("b")
			if n.Silent = ""; since < 3*time.Second {
				n.Silent = "at its address answers b.3.00000001"
				return
			}
			n.Incarnation = "b.3.00000001"
		}, ""},
		{"it restarts in place", func(s *stage, since time.Duration) {
			n := s.nodeLocked("b")
			n.Draining, n.Wrong = since < 2*time.Second, nil
			if n.Draining {
				n.Wrong = []string{"it drains"}
				return
			}
			n.Incarnation, n.Version = "b.3.00000001", "2.0"
		}, ""},
		{"it is ended for ever", func(s *stage, since time.Duration) {
			n := s.nodeLocked("b")
			n.Incarnation, n.Version = fmt.Sprintf("b.%d.00000001", 3+since/time.Second), "2.0"
			n.Wrong = []string{"it starts"}
		}, "node b does not stay up"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, began := newStage(), time.Now()
				data, err := json.Marshal(map[string]string{"before": "b.1.00000001", "after": "b.2.00000001"})
				if err != nil {
					t.Fatal(err)
				}
				n := s.nodeLocked("b")
				n.Incarnation, n.Version = "b.2.00000001", "1.0"
				o := roll.Options{Only: []string{"b"}, Version: "2.0", Stall: 30 * time.Second}
				if tc.name == "it was killed and started" {
					o.Version = ""
				}
				p, err := roll.NewPlan(s.view, o)
				if err != nil {
					t.Fatal(err)
				}
				s.roll.Nodes = []api.RollNode{{Node: "b", State: string(roll.StateStarted), Data: data}}
				s.views = func(s *stage) error { tc.views(s, time.Since(began)); return nil }
				_, err = s.run(t, o, func(r *roll.Runner) { r.Plan = p })
				trouble, paused := errors.AsType[*roll.TroubleError](err)
				if tc.why == "" && (err != nil || s.last() != "b done") || tc.why != "" && (!paused || !strings.Contains(trouble.Why, tc.why)) {
					t.Errorf("%v; the journal is %v", err, s.journal)
				}
				s.wantTouched(t)
			})
		})
	}
}

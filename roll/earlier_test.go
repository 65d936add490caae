package roll_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/roll"
)

// meets has clients of a stage send so many requests more to node c.
func (s *stage) meets(answered, refused uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	more := api.RequestCounts{Answered: answered}
	if refused > 0 {
		more.Refused = map[api.Code]uint64{api.CodeNoOwner: refused}
	}
	now := s.counts["c"]
	more.Add(&now)
	s.counts["c"] = more
}

// next is what the journal has for the next operator of the roll.
func (s *stage) next() {
	s.roll.Status = api.RollRunning
	s.roll.Epoch++
}

// dies has an operator begin, or go on with, the roll, and die when node b is at a state.
func (s *stage) dies(t *testing.T, o roll.Options, at roll.State) {
	t.Helper()
	ctx, die := context.WithCancel(t.Context())
	_, err := s.run(t, o, func(r *roll.Runner) {
		r.Cluster = mortalView{s, ctx}
		r.Say = func(e roll.Event) {
			if e.State == at {
				s.meets(50, 2) // which it had no time to count
				die()
			}
		}
		r.Driver, r.Journal = mortal{s, ctx}, mortalView{s, ctx}
	})
	if err == nil || s.roll.Status != api.RollRunning {
		t.Fatalf("it did not die: %v, and the roll is %s", err, s.roll.Status)
	}
}

// mortalView sees and notes nothing once its operator is dead.
type mortalView struct {
	*stage
	life context.Context //nolint:containedctx // that of the operator
}

func (m mortalView) View(ctx context.Context) (*roll.View, error) {
	if err := m.life.Err(); err != nil {
		return nil, err
	}
	return m.stage.View(ctx)
}

func (m mortalView) ChangeRoll(ctx context.Context, a api.RollAction, id uint64, c api.RollChange) (api.Roll, error) {
	if m.life.Err() != nil {
		return api.Roll{}, errors.New("no journal")
	}
	return m.stage.ChangeRoll(ctx, a, id, c)
}

// TestReportOverPauses: who was refused before a roll was paused stands in the report of
// its end, too, with all that was counted then. The check counts from zero again, and
// what is met between two runs is not of the roll.
func TestReportOverPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.recent["c"] = counted100()
		var first, second []roll.Event
		refuse := func(at roll.State, node string, n uint64, into *[]roll.Event) func(r *roll.Runner) {
			return func(r *roll.Runner) {
				r.Say = func(e roll.Event) {
					if *into = append(*into, e); e.State == at && e.Node == node {
						s.meets(40, n)
					}
				}
			}
		}
		report, err := s.run(t, roll.Options{}, refuse(roll.StateOwnersBack, "a", 3, &first))
		if !errors.As(err, new(*roll.TroubleError)) || report.Refused != 3 || report.Requests != 40 || report.Epoch != 1 {
			t.Fatalf("%+v, %v", report, err)
		}
		before := report.P99Before
		s.meets(1000, 9) // while it is paused
		s.next()
		s.recent["c"] = api.RequestCounts{}
		report, err = s.run(t, roll.Options{}, refuse(roll.StateSettled, "a", 0, &second))
		if err != nil || report.Status != "done" {
			t.Fatalf("%+v, %v", report, err)
		}
		c := report.Nodes[2]
		if report.Refused != 3 || report.ByReason[api.CodeNoOwner] != 3 || report.Requests != 80 || c.Refused != 3 || c.Requests != 80 || c.ByReason[api.CodeNoOwner] != 3 {
			t.Errorf("after it was resumed the report is %+v", report)
		}
		if before == 0 || report.P99Before != before || c.P99Before != before || report.Epoch != 2 {
			t.Errorf("p99 before is %v and of c %v, want %v; the epoch is %d", report.P99Before, c.P99Before, before, report.Epoch)
		}
		if report.Nodes[0].ShutMS != 70 || c.ShutMS != 70 || c.Unknown != "" {
			t.Errorf("the nodes are %+v", report.Nodes)
		}
		var stored roll.Report
		if err := json.Unmarshal(s.roll.Report, &stored); err != nil || stored.Refused != 3 {
			t.Errorf("the journal has %s, %v", s.roll.Report, err)
		}
	})
}

// TestReportOfTheDead: what an operator counted that died nobody knows, and the report of
// who goes on says so of every node; p99 before is not that of the roll's own first half.
func TestReportOfTheDead(t *testing.T) {
	for _, tc := range []struct {
		name   string
		paused bool // before it was taken by who died
		want   string
	}{
		{"at once", false, "what it counted before epoch 2 of the roll: who held it until then left no report"},
		{"after a pause", true, "what it counted from the last pause to epoch 3 of the roll: who held it then left no report"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage()
				s.recent["a"], s.recent["c"] = counted100(), counted100()
				if tc.paused {
					if _, err := s.run(t, roll.Options{PauseAfter: 1, MaxRefusals: 9}, func(r *roll.Runner) {
						r.Say = func(e roll.Event) {
							if e.State == roll.StateSettled {
								s.meets(10, 1)
							}
						}
					}); !errors.As(err, new(*roll.TroubleError)) {
						t.Fatal(err)
					}
					s.next()
				}
				s.dies(t, roll.Options{MaxRefusals: 9}, roll.StateStarted)
				s.next()
				<-time.After(time.Minute)
				s.claimed = map[string]bool{}
				report, err := s.run(t, roll.Options{MaxRefusals: 9}, nil)
				if err != nil {
					t.Fatal(err)
				}
				want := uint64(0)
				if tc.paused {
					want = 1
				}
				if report.Refused != want || (report.P99Before > 0) != tc.paused {
					t.Errorf("refused are %d, want %d; p99 before is %v", report.Refused, want, report.P99Before)
				}
				for _, n := range report.Nodes {
					if n.Unknown != tc.want {
						t.Errorf("of node %s not counted is %q, want %q", n.Node, n.Unknown, tc.want)
					}
				}
			})
		})
	}
}

// TestReportOfTheCanary: its attempts are added up over pauses, phase by phase, and what
// failed before stays refused.
func TestReportOfTheCanary(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		run := func(o roll.Options, how string) (*roll.Report, error) {
			failed := false
			return s.run(t, o, func(r *roll.Runner) {
				r.Canary = &roll.Canary{Every: 250 * time.Millisecond, Around: time.Second, Attempt: func(context.Context, uint64) string {
					s.mu.Lock()
					defer s.mu.Unlock()
					if strings.HasSuffix(s.last(), "owners-back") && !failed {
						failed = true
						return how
					}
					return ""
				}}
			})
		}
		first, err := run(roll.Options{PauseAfter: 1, MaxRefusals: 9}, "exit 1")
		if !errors.As(err, new(*roll.TroubleError)) || first.Refused != 1 {
			t.Fatalf("%+v, %v", first, err)
		}
		s.next()
		second, err := run(roll.Options{MaxRefusals: 9}, "exit 2")
		if err != nil {
			t.Fatal(err)
		}
		c, was := second.Canary, first.Canary
		if second.Refused != 2 || c.During.Failed != 2 || len(c.During.Failures) != 2 || c.During.Failures[0].How != "exit 1" {
			t.Errorf("refused are %d, and during the roll %+v", second.Refused, c.During)
		}
		if c.Before.Attempts <= was.Before.Attempts || c.During.Attempts <= was.During.Attempts || c.Unknown != "" {
			t.Errorf("it was %+v, and then %+v", was, c)
		}
	})
}

// TestReportOf: the report of a roll is one of what the roll is. One that runs has none;
// of one that somebody ended who counts nothing the figures stay, and what is missing
// from them is said.
func TestReportOf(t *testing.T) {
	paused, err := json.Marshal(roll.Report{Event: "report", Roll: 7, Epoch: 4, Status: "paused", Why: "refused", Refused: 3, Nodes: []roll.NodeReport{{Node: "a", Refused: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		roll    api.Roll
		refused uint64
		unknown string // "-": there is no report
	}{
		{"paused", api.Roll{Epoch: 4, Status: api.RollPaused, Why: "refused", Report: paused}, 3, ""},
		{"resumed", api.Roll{Epoch: 5, Status: api.RollRunning, Report: paused}, 0, "-"},
		{"aborted while it was paused", api.Roll{Epoch: 5, Status: api.RollAborted, Why: "asked for", Report: paused}, 3, ""},
		{"resumed, and unlocked", api.Roll{Epoch: 6, Status: api.RollAborted, Why: "unlocked", Report: paused}, 3, "from the last pause to epoch 6"},
		{"never ended", api.Roll{Epoch: 2, Status: api.RollAborted}, 0, "-"},
	} {
		report, err := roll.ReportOf(&tc.roll)
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
		}
		if report == nil || tc.unknown == "-" {
			if report != nil || tc.unknown != "-" {
				t.Errorf("%s: the report is %+v", tc.name, report)
			}
			continue
		}
		if n := report.Nodes[0]; report.Refused != tc.refused || n.Refused != tc.refused || !strings.Contains(n.Unknown, tc.unknown) || tc.unknown == "" && n.Unknown != "" {
			t.Errorf("%s: the report is %+v", tc.name, report)
		}
		if report.Status != string(tc.roll.Status) || report.Why != tc.roll.Why {
			t.Errorf("%s: the report says %s, %q", tc.name, report.Status, report.Why)
		}
	}
}

package roll_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/roll"
)

// sized is a stage of so many nodes, a to e, all of which vote, with a table on all.
func sized(n int) *stage {
	s := newStage()
	ids := []string{"a", "b", "c", "d", "e"}[:n]
	s.view.Nodes, s.view.Tables = nil, []roll.Table{table("all", "a", ids...)}
	for _, id := range ids {
		s.starts[id] = 1
		s.view.Nodes = append(s.view.Nodes, roll.Node{
			ID: id, Address: "https://" + id, Disk: "d" + id, Incarnation: id + ".1.00000001", Version: "1.0", MetaVoter: true,
		})
	}
	return s
}

// batches returns which nodes were stopped together, in order.
func (s *stage) batches() string {
	var out []string
	var now []string
	for _, line := range s.journal {
		node, state, _ := strings.Cut(line, " ")
		switch state {
		case string(roll.StateStop):
			now = append(now, node)
		case string(roll.StateDone):
			if now != nil {
				slices.Sort(now)
				out, now = append(out, strings.Join(now, "+")), nil
			}
		}
	}
	return strings.Join(out, " ")
}

// TestBatches: as many nodes as may be are stopped together, if every quorum survives all
// of them, and they are of one zone where that is asked for; never more.
func TestBatches(t *testing.T) {
	zones := func(s *stage) {
		for i, z := range []string{"y", "x", "y", "x", "y"} {
			s.view.Nodes[i].Zone = z
		}
	}
	for _, tc := range []struct {
		name    string
		options roll.Options
		change  func(s *stage)
		want    string
	}{
		{"one at a time", roll.Options{MaxUnavailable: 1}, nil, "b c d e a"},
		{"two", roll.Options{MaxUnavailable: 2}, nil, "b+c d+e a"},
		{"three, and the quorum is of five", roll.Options{MaxUnavailable: 3}, nil, "b+c d+e a"},
		{"two, and a table of three", roll.Options{MaxUnavailable: 2}, func(s *stage) {
			s.view.Tables = append(s.view.Tables, table("three", "a", "a", "b", "c"))
		}, "b+d c+e a"},
		{"of one zone", roll.Options{MaxUnavailable: 2, ByZone: true}, zones, "b+d c+e a"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := sized(5)
			if tc.change != nil {
				tc.change(s)
			}
			if _, err := s.run(t, tc.options, nil); err != nil {
				t.Fatalf("%s: %v", tc.name, err)
			}
			if got := s.batches(); got != tc.want || s.most > tc.options.MaxUnavailable || len(s.claimed) > 0 {
				t.Errorf("%s: %s, and %d were away at once; want %s", tc.name, got, s.most, tc.want)
			}
		})
	}
}

// TestResumeBatch: nodes that were stopped together are finished together, before others
// and without being told again.
func TestResumeBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sized(5)
		begun := func(id string, state roll.State, data map[string]string) {
			text, err := json.Marshal(data)
			if err != nil {
				t.Fatal(err)
			}
			s.roll.Nodes = append(s.roll.Nodes, api.RollNode{Node: id, State: string(state), Data: text})
		}
		begun("b", roll.StateStop, map[string]string{"before": "b.1.00000001"})
		s.nodeLocked("b").Incarnation, s.away["b"] = "", time.Now().Add(10*time.Second)
		begun("c", roll.StateStarted, map[string]string{"before": "c.1.00000001", "after": "c.2.00000001"})
		s.nodeLocked("c").Incarnation, s.nodeLocked("c").Owned, s.starts["c"] = "c.2.00000001", 9, 2 // the last by order
		if _, err := s.run(t, roll.Options{MaxUnavailable: 2}, nil); err != nil {
			t.Fatal(err)
		}
		if slices.Contains(s.touched, "b") || slices.Contains(s.touched, "c") || s.most > 2 {
			t.Errorf("told to restart were %v, and %d were away at once", s.touched, s.most)
		}
		others := slices.IndexFunc(s.journal, func(line string) bool { return strings.HasSuffix(line, " check") })
		for _, done := range []string{"b done", "c done"} {
			if at := slices.Index(s.journal, done); at < 0 || at > others {
				t.Errorf("%s comes %d., and others begin %d.", done, at, others)
			}
		}
	})
}

// TestPauseAfterBatch: it pauses after so many nodes, also when more could go together.
func TestPauseAfterBatch(t *testing.T) {
	for after, want := range map[int]string{1: "b", 3: "b+c d"} {
		synctest.Test(t, func(t *testing.T) {
			s := sized(5)
			_, err := s.run(t, roll.Options{MaxUnavailable: 2, PauseAfter: after}, nil)
			if trouble, ok := errors.AsType[*roll.TroubleError](err); !ok || !strings.Contains(trouble.Why, "--pause-after") {
				t.Errorf("after %d: %v", after, err)
			}
			if got := s.batches(); got != want {
				t.Errorf("after %d: %s, want %s", after, got, want)
			}
		})
	}
}

// TestAskedAtTheEnd: what is asked for during the last node comes too late: the roll is
// done, and says so.
func TestAskedAtTheEnd(t *testing.T) {
	for _, ask := range []string{api.RollAskPause, api.RollAskAbort} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			report, err := s.run(t, roll.Options{}, func(r *roll.Runner) {
				r.Say = func(e roll.Event) {
					s.say(e)
					if e.Node != "a" || e.State != roll.StateOwnersBack {
						return
					}
					s.mu.Lock()
					s.roll.Ask = ask
					s.mu.Unlock()
					<-time.After(3 * time.Second) // until it is heard
				}
			})
			if err != nil || report.Status != "done" || s.roll.Status != api.RollDone {
				t.Errorf("asked to %s: %+v, %v", ask, report, err)
			}
			if !slices.ContainsFunc(s.events, func(e roll.Event) bool {
				return e.Event == "note" && strings.Contains(e.Note, "asked to "+ask+" when no node was left")
			}) {
				t.Errorf("asked to %s: that it came too late is not said: %v", ask, s.events)
			}
			s.wantTouched(t, "b", "c", "a")
		})
	}
}

// TestSmallClusters: a node that is alone is rolled if that is accepted, and is not seen
// meanwhile; of two none is stopped.
func TestSmallClusters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := sized(1)
		s.views = func(s *stage) error {
			if len(s.away) > 0 {
				return &api.Error{Code: api.CodeNotReady, Message: "no node answers"}
			}
			return nil
		}
		report, err := s.run(t, roll.Options{AllowUnavailable: true}, nil)
		if err != nil || report.Status != "done" {
			t.Errorf("of one: %+v, %v", report, err)
		}
		s.wantTouched(t, "a")
	})
	synctest.Test(t, func(t *testing.T) {
		s := sized(2)
		_, err := s.run(t, roll.Options{AllowUnavailable: true}, nil)
		trouble, ok := errors.AsType[*roll.TroubleError](err)
		if !ok || !strings.Contains(trouble.Why, "of two none can be restarted without standing still") || !strings.Contains(trouble.Hint, "add a third node first") {
			t.Errorf("of two: %+v", err)
		}
		s.wantTouched(t)
	})
}

// TestManual: somebody is told which node to restart, once, and is waited for; a roll that
// paused meanwhile goes on when it was done.
func TestManual(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			var told []string
			by := func(r *roll.Runner) {
				r.Driver = &roll.Manual{Tell: func(text string) {
					told = append(told, text)
					var id string
					if _, err := fmt.Sscanf(text, "restart node %s", &id); err != nil {
						t.Errorf("told is %q", text)
					}
					after := 10 * time.Second
					if late && id == "b" {
						after = time.Minute
					}
					time.AfterFunc(after, func() {
						if err := s.Restart(context.Background(), roll.Node{ID: id}, roll.Hold{Epoch: 1}); err != nil {
							t.Error(err)
						}
					})
				}}
			}
			_, err := s.run(t, roll.Options{}, by)
			if late {
				if _, paused := errors.AsType[*roll.TroubleError](err); !paused || !strings.Contains(err.Error(), "waited for node b to come back") {
					t.Fatalf("nobody restarted it: %v", err)
				}
				<-time.After(time.Minute)
				s.roll.Status = api.RollRunning
				_, err = s.run(t, roll.Options{}, by)
			}
			if err != nil || len(told) != 3 || !strings.Contains(told[0], "node b now (https://b)") {
				t.Errorf("late: %t: told was %q: %v", late, told, err)
			}
			s.wantTouched(t, "b", "c", "a")
		})
	}
}

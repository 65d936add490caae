package roll_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/roll"
)

// altered is a stage some of whose answers are others.
type altered struct {
	*stage

	old   *roll.View // instead of what is seen now; nil: that
	leads int        // so often a node that drains leads on
}

func (a *altered) View(ctx context.Context) (*roll.View, error) {
	if a.old != nil {
		return a.old, nil
	}
	return a.stage.View(ctx)
}

func (a *altered) Drain(ctx context.Context, id string, h roll.Hold) (int, error) {
	led := a.view.MetaLeader
	n, err := a.stage.Drain(ctx, id, h)
	if a.leads > 0 {
		a.leads--
		a.view.MetaLeader = led
	}
	return n, err
}

// TestCheckedAgain: a node has handed over, and meanwhile something has happened, or
// nothing new is seen: it is not stopped, and gets back what it had.
func TestCheckedAgain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		happen func(a *altered, seen *roll.View)
		why    string
	}{
		{"another is not ready", func(a *altered, _ *roll.View) { a.view.Nodes[2].Wrong = []string{"behind"} }, "check budget blocks node b"},
		{"what is seen is of before", func(a *altered, seen *roll.View) { a.old = seen }, "check view blocks node b: what is known of the cluster is older"},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &altered{stage: newStage()}
			seen, err := a.stage.View(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Second)
			_, err = a.run(t, roll.Options{}, func(r *roll.Runner) {
				r.Cluster = a
				r.Say = func(e roll.Event) {
					if e.State == roll.StatePeersAcked {
						tc.happen(a, seen)
					}
				}
			})
			if trouble, ok := errors.AsType[*roll.TroubleError](err); !ok || !strings.Contains(trouble.Why, tc.why) {
				t.Errorf("%s: %v", tc.name, err)
			}
			a.wantTouched(t)
		})
	}
}

// TestNotStoppedIsGivenBack: a node that refuses to restart takes its tables back.
func TestNotStoppedIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		_, err := s.run(t, roll.Options{}, func(r *roll.Runner) { r.Driver = refusing{} })
		if trouble, ok := errors.AsType[*roll.TroubleError](err); !ok || !strings.Contains(trouble.Why, "node b was not restarted") {
			t.Errorf("%v", err)
		}
		s.wantTouched(t)
	})
}

type refusing struct{}

func (refusing) Restart(context.Context, roll.Node, roll.Hold) error {
	return &api.Error{Code: api.CodeCheckFailed, Message: "its configuration is wrong"}
}

// TestLeadMovesFirst: a node that leads the metadata is not stopped before another does.
func TestLeadMovesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &altered{stage: newStage(), leads: 5}
		led := ""
		a.restarts = func(s *stage, _ string) error { led = s.view.MetaLeader; return nil }
		if _, err := a.run(t, roll.Options{Only: []string{"a"}}, func(r *roll.Runner) { r.Cluster = a }); err != nil {
			t.Fatal(err)
		}
		a.wantTouched(t, "a")
		if led == "a" {
			t.Error("a was stopped, and led")
		}
	})
}

// TestTakenWhileItWaits: whose roll is taken over in the middle of a long wait ends soon.
func TestTakenWhileItWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		var taken time.Time
		_, err := s.run(t, roll.Options{Settle: time.Hour}, func(r *roll.Runner) {
			r.Say = func(e roll.Event) {
				if e.State == roll.StateOwnersBack {
					s.mu.Lock()
					s.roll.Epoch++
					s.mu.Unlock()
					taken = time.Now()
				}
			}
		})
		if took := time.Since(taken); !errors.Is(err, roll.ErrTaken) || took > 10*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

// TestRefusedWhileItSettles: somebody is refused while the last node settles: that is not
// found out at the end of a long watch.
func TestRefusedWhileItSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		var refused time.Time
		_, err := s.run(t, roll.Options{Only: []string{"b"}, Settle: time.Hour}, func(r *roll.Runner) {
			r.Say = func(e roll.Event) {
				if e.State == roll.StateOwnersBack {
					s.mu.Lock()
					s.counts["c"] = api.RequestCounts{Answered: 1, Refused: map[api.Code]uint64{api.CodeNoOwner: 1}}
					s.mu.Unlock()
					refused = time.Now()
				}
			}
		})
		trouble, ok := errors.AsType[*roll.TroubleError](err)
		if took := time.Since(refused); !ok || !strings.Contains(trouble.Why, "1 requests were refused") || took > 10*time.Second {
			t.Errorf("after %s: %v", took, err)
		}
	})
}

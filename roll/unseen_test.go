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

// TestOneLookMissed: a node that does not answer once is asked again, and not taken for one
// that is down: it hands over before it is stopped.
func TestOneLookMissed(t *testing.T) {
	for _, at := range []roll.State{roll.StateCheck, roll.StatePeersAcked} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			missed := 0
			s.views = func(s *stage) error {
				s.nodeLocked("c").Silent = ""
				if s.last() == "c "+string(at) && missed == 0 {
					missed++
					s.nodeLocked("c").Silent = "no route to host"
				}
				return nil
			}
			if _, err := s.run(t, roll.Options{}, func(r *roll.Runner) { r.Driver = careless{s} }); err != nil {
				t.Fatal(err)
			}
			if want := "c drain"; missed != 1 || !slices.Contains(s.journal, want) {
				t.Errorf("missed in %s %d times, the journal is %v", at, missed, s.journal)
			}
			s.wantTouched(t, "b", "c", "a")
		})
	}
}

// careless is a driver that asks nobody whose roll it is.
type careless struct{ *stage }

func (c careless) Restart(ctx context.Context, n roll.Node, _ roll.Hold) error {
	return c.stage.Restart(ctx, n, roll.Hold{Epoch: c.epoch()})
}

func (s *stage) epoch() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.roll.Epoch
}

// TestPassedLongAgo: what the checks have let through holds for seconds. Whatever keeps the
// roll waiting then, it is checked again before the node is stopped.
func TestPassedLongAgo(t *testing.T) {
	lose := func(s *stage) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.nodeLocked("c").Incarnation = ""
	}
	for _, tc := range []struct {
		name   string
		change func(s *stage, r *roll.Runner)
	}{
		{"the journal", func(s *stage, r *roll.Runner) { r.Journal = slowJournal{s, lose} }},
		{"the terminal", func(s *stage, r *roll.Runner) {
			r.Say = func(e roll.Event) {
				if e.State == roll.StateStop {
					lose(s)
					<-time.After(20 * time.Second)
				}
			}
		}},
		{"the node", func(s *stage, r *roll.Runner) { r.Driver = busy{s, lose} }},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			_, err := s.run(t, roll.Options{}, func(r *roll.Runner) {
				r.Driver = careless{s}
				tc.change(s, r)
			})
			if trouble, ok := errors.AsType[*roll.TroubleError](err); !ok || !strings.Contains(trouble.Why, "check budget blocks node b") {
				t.Errorf("%s: %v", tc.name, err)
			}
			s.wantTouched(t)
		})
	}
}

// slowJournal is a journal that takes its time for a node's stop, in which something happens.
type slowJournal struct {
	*stage

	happens func(s *stage)
}

func (j slowJournal) ChangeRoll(ctx context.Context, a api.RollAction, id uint64, c api.RollChange) (api.Roll, error) {
	if c.State == string(roll.StateStop) {
		j.happens(j.stage)
		<-time.After(7 * time.Second)
	}
	return j.stage.ChangeRoll(ctx, a, id, c)
}

// busy is a driver that is not ready for some seconds, in which something happens.
type busy struct {
	*stage

	happens func(s *stage)
}

func (b busy) Restart(ctx context.Context, n roll.Node, h roll.Hold) error {
	if s := b.stage; s.nodeLocked("c").Incarnation != "" {
		b.happens(s)
		<-time.After(6 * time.Second)
		return &api.Error{Code: api.CodeNotReady, Message: "not now"}
	}
	return b.stage.Restart(ctx, n, h)
}

// TestTakenOfADeadNode: nobody asks a node that is down whose roll it is: the roll does,
// right before the driver acts.
func TestTakenOfADeadNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.nodeLocked("b").Incarnation = ""
		_, err := s.run(t, roll.Options{Only: []string{"b"}}, func(r *roll.Runner) {
			r.Driver = careless{s}
			r.Say = func(e roll.Event) {
				if e.State == roll.StateStop {
					s.mu.Lock()
					s.roll.Epoch++
					s.mu.Unlock()
				}
			}
		})
		if !errors.Is(err, roll.ErrTaken) {
			t.Error(err)
		}
		s.wantTouched(t)
	})
}

// TestResumeOfADeadNode: a node that was down when it was to be restarted is restarted by
// whoever resumes: nobody can tell whether it was.
func TestResumeOfADeadNode(t *testing.T) {
	for _, up := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			if !up {
				s.nodeLocked("b").Incarnation = ""
			}
			data, err := json.Marshal(map[string]string{"before": ""})
			if err != nil {
				t.Fatal(err)
			}
			s.roll.Nodes = []api.RollNode{{Node: "b", State: string(roll.StateStop), Data: data}}
			if _, err := s.run(t, roll.Options{Only: []string{"b"}}, nil); err != nil {
				t.Error(err)
			}
			s.wantTouched(t, "b")
		})
	}
}

// TestCommandOfADeadNodeFails: nothing tells then whether it was restarted, and what comes
// up may be the run that was there before.
func TestCommandOfADeadNodeFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.nodeLocked("b").Incarnation = ""
		_, err := s.run(t, roll.Options{}, func(r *roll.Runner) { r.Driver = failing{s} })
		if trouble, ok := errors.AsType[*roll.TroubleError](err); !ok || !strings.Contains(trouble.Why, "the command for node b failed, and nobody saw before which run of it there was") {
			t.Error(err)
		}
		s.wantTouched(t, "b")
	})
}

// TestOthersInOtherWords: another node that is not well holds the roll up; that it says so
// in ever other words is no progress.
func TestOthersInOtherWords(t *testing.T) {
	for _, how := range []func(n *roll.Node, i int){
		func(n *roll.Node, i int) { n.Silent = fmt.Sprintf("reset, attempt %x", 1<<40-i) },
		func(n *roll.Node, i int) {
			n.Wrong = []string{fmt.Sprintf("its disk has stood still for %d.%d s", i/10, i%10)}
		},
		func(n *roll.Node, i int) { n.Wrong = []string{fmt.Sprintf("from port %d: no", 40000+i*7919%20000)} },
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			i := 0
			s.views = func(s *stage) error {
				if len(s.touched) == 1 && s.last() == "c check" {
					i++
					how(s.nodeLocked("a"), i)
				}
				return nil
			}
			began := time.Now()
			_, err := s.run(t, roll.Options{}, nil)
			trouble, ok := errors.AsType[*roll.TroubleError](err)
			if took := time.Since(began); !ok || !strings.Contains(trouble.Why, "check budget blocks node c") || took > 10*time.Minute {
				t.Errorf("after %s: %v", took, err)
			}
		})
	}
}

// TestNotToldInTheDark: while the journal does not say whose roll it is, no node is told.
func TestNotToldInTheDark(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		var dark, told time.Time
		s.notes = func(a api.RollAction, c api.RollChange) error {
			if c.State == string(roll.StateStop) && dark.IsZero() {
				dark = time.Now().Add(3 * time.Second)
			}
			if a == api.RollRenew && time.Now().Before(dark) {
				return &api.Error{Code: api.CodeOutcomeUnknown, Message: "no leader"}
			}
			return nil
		}
		s.restarts = func(*stage, string) error { told = time.Now(); return nil }
		if _, err := s.run(t, roll.Options{Only: []string{"b"}}, nil); err != nil {
			t.Fatal(err)
		}
		if told.Before(dark) {
			t.Errorf("it was told %s before the journal answered", dark.Sub(told))
		}
	})
}

package roll_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/roll"
)

// stage is a cluster, a journal and a driver that are played, in virtual time.
type stage struct {
	mu       sync.Mutex
	view     *roll.View
	starts   map[string]int
	away     map[string]time.Time // when a node that restarts is back; zero: never
	claimed  map[string]bool
	touched  []string // nodes that were told to restart
	most     int      // nodes away at once
	counts   map[string]api.RequestCounts
	recent   map[string]api.RequestCounts // of the last minute
	left     map[string]api.RequestCounts // of the run before
	roll     api.Roll
	journal  []string // "node state"
	events   []roll.Event
	restarts func(s *stage, id string) error                // nil: back after a second
	views    func(s *stage) error                           // nil: they come
	notes    func(a api.RollAction, c api.RollChange) error // nil: the journal takes all
}

func newStage() *stage {
	s := &stage{
		view: world(), starts: map[string]int{"a": 1, "b": 1, "c": 1}, away: map[string]time.Time{}, claimed: map[string]bool{},
		counts: map[string]api.RequestCounts{}, recent: map[string]api.RequestCounts{}, left: map[string]api.RequestCounts{},
		roll: api.Roll{ID: 1, Epoch: 1, Status: api.RollRunning},
	}
	return s
}

func (s *stage) nodeLocked(id string) *roll.Node {
	n, _ := s.view.Node(id)
	return n
}

// settleLocked lets what time brings happen.
func (s *stage) settleLocked() {
	for id, at := range s.away {
		if at.IsZero() || time.Now().Before(at) {
			continue
		}
		delete(s.away, id)
		s.starts[id]++
		s.left[id], s.counts[id] = s.counts[id], api.RequestCounts{}
		s.nodeLocked(id).Incarnation = fmt.Sprintf("%s.%d.00000001", id, s.starts[id])
	}
}

func (s *stage) View(context.Context) (*roll.View, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked()
	if s.views != nil {
		if err := s.views(s); err != nil {
			return nil, err
		}
	}
	v := *s.view
	v.At, v.Nodes, v.Tables = time.Now(), slices.Clone(v.Nodes), slices.Clone(v.Tables)
	for i := range v.Nodes {
		if s.claimed[v.Nodes[i].ID] {
			v.Nodes[i].Wrong, v.Nodes[i].Draining = []string{"draining"}, true
		}
	}
	return &v, nil
}

func (s *stage) Drain(_ context.Context, id string, h roll.Hold) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Epoch != s.roll.Epoch {
		return 0, &api.Error{Code: api.CodeStaleEpoch, Message: "stale"}
	}
	s.claimed[id] = true
	if s.view.MetaLeader == id {
		s.view.MetaLeader = map[string]string{"a": "b", "b": "c", "c": "a"}[id]
	}
	return 0, nil
}

func (s *stage) Undrain(_ context.Context, id string, _ roll.Hold) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claimed, id)
	return nil
}

func (s *stage) Routes(context.Context, string) ([]string, error) { return nil, nil }

func (s *stage) Requests(_ context.Context, id string) (api.RequestReport, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settleLocked()
	if _, away := s.away[id]; away {
		return api.RequestReport{}, errors.New("away")
	}
	r := api.RequestReport{Node: id, Incarnation: api.Incarnation{Node: id, Start: uint64(s.starts[id]), Suffix: 1}, Total: s.counts[id], Recent: s.recent[id]}
	if s.starts[id] > 1 {
		r.Before = &api.RequestsBefore{Incarnation: api.Incarnation{Node: id, Start: uint64(s.starts[id] - 1), Suffix: 1}, Total: s.left[id], ShutMillis: 70}
	}
	return r, nil
}

func (s *stage) Restart(_ context.Context, n roll.Node, h roll.Hold) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.Epoch != s.roll.Epoch {
		return &api.Error{Code: api.CodeStaleEpoch, Message: "stale"}
	}
	s.touched = append(s.touched, n.ID)
	delete(s.claimed, n.ID)
	s.nodeLocked(n.ID).Incarnation = ""
	s.away[n.ID] = time.Now().Add(time.Second)
	s.most = max(s.most, len(s.away))
	if s.restarts != nil {
		return s.restarts(s, n.ID)
	}
	return nil
}

func (s *stage) ChangeRoll(_ context.Context, a api.RollAction, _ uint64, c api.RollChange) (api.Roll, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.Epoch != s.roll.Epoch {
		return api.Roll{}, &api.Error{Code: api.CodeStaleEpoch, Message: "stale"}
	}
	if s.notes != nil {
		if err := s.notes(a, c); err != nil {
			return api.Roll{}, err
		}
	}
	switch a { //nolint:exhaustive // a runner does no more
	case api.RollNote:
		s.journal = append(s.journal, c.Node+" "+c.State)
		i := slices.IndexFunc(s.roll.Nodes, func(n api.RollNode) bool { return n.Node == c.Node })
		if i < 0 {
			s.roll.Nodes, i = append(s.roll.Nodes, api.RollNode{Node: c.Node}), len(s.roll.Nodes)
		}
		s.roll.Nodes[i].State, s.roll.Nodes[i].Data = c.State, c.Data
	case api.RollEnd:
		s.roll.Status, s.roll.Why, s.roll.Report = c.Status, c.Why, c.Data
	}
	return s.roll, nil
}

// last is what the journal noted last.
func (s *stage) last() string {
	if len(s.journal) == 0 {
		return ""
	}
	return s.journal[len(s.journal)-1]
}

func (s *stage) say(e roll.Event) { s.events = append(s.events, e) }

// run rolls the stage; stop may be nil.
func (s *stage) run(t *testing.T, o roll.Options, change func(r *roll.Runner)) (*roll.Report, error) {
	t.Helper()
	if o.Stall == 0 {
		o.Stall = 30 * time.Second
	}
	if o.Settle == 0 {
		o.Settle = 3 * time.Second
	}
	v, err := s.View(t.Context())
	if err != nil {
		v = s.view
	}
	p, err := roll.NewPlan(v, o)
	if err != nil {
		t.Fatal(err)
	}
	r := &roll.Runner{Cluster: s, Journal: s, Driver: s, Plan: p, Roll: s.roll, By: "ann", Say: s.say}
	if change != nil {
		change(r)
	}
	return r.Run(t.Context())
}

func (s *stage) wantTouched(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(s.touched, want) {
		t.Errorf("told to restart were %v, want %v", s.touched, want)
	}
	if s.most > 1 {
		t.Errorf("%d nodes were away at once", s.most)
	}
	if len(s.claimed) > 0 {
		t.Errorf("claims are left: %v", s.claimed)
	}
}

// TestRun: all nodes, one after the other, the leader last, each through every
// state, each state noted.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		report, err := s.run(t, roll.Options{}, nil)
		if err != nil || report.Status != "done" || s.roll.Status != api.RollDone {
			t.Fatalf("%+v, %v", report, err)
		}
		s.wantTouched(t, "b", "c", "a")
		var want []string
		for _, n := range []string{"b", "c", "a"} {
			for _, st := range roll.States() {
				want = append(want, n+" "+string(st))
			}
		}
		if !slices.Equal(s.journal, want) {
			t.Errorf("the journal is %v", s.journal)
		}
		if report.Nodes[0].ShutMS != 70 || report.LongestMS != 70 || report.Nodes[0].Unknown != "" {
			t.Errorf("the report is %+v", report)
		}
	})
}

// TestTrouble: whatever goes wrong with a node, the roll pauses, says why and what
// to do, and has touched no other.
func TestTrouble(t *testing.T) {
	back := func(after time.Duration, change func(n *roll.Node)) func(*stage, string) error {
		return func(s *stage, id string) error {
			s.away[id] = time.Now().Add(after)
			change(s.nodeLocked(id))
			return nil
		}
	}
	for _, tc := range []struct {
		name     string
		options  roll.Options
		restarts func(s *stage, id string) error
		views    func(s *stage) error
		why      string
	}{
		{name: "it does not come back", restarts: func(s *stage, id string) error { s.away[id] = time.Time{}; return nil }, why: "waited for node b to come back, and nothing moved for 30s: it has no lease"},
		{name: "it refuses", restarts: func(s *stage, id string) error {
			delete(s.away, id)
			s.nodeLocked(id).Incarnation = id + ".1.00000001"
			return &api.Error{Code: api.CodeCheckFailed, Message: "no such file"}
		}, why: "node b was not restarted: no such file"},
		{name: "it goes on as it was", restarts: func(s *stage, id string) error {
			delete(s.away, id)
			s.nodeLocked(id).Incarnation = id + ".1.00000001"
			return nil
		}, why: "its peers know it as b.1.00000001 still"},
		{name: "it has the wrong version", options: roll.Options{Version: "2.0"}, restarts: back(time.Second, func(*roll.Node) {}), why: "node b came back with version 1.0, and 2.0 is wanted"},
		{name: "it is never level", restarts: back(time.Second, func(n *roll.Node) { n.Wrong = []string{"table t: behind"} }), why: "nothing moved for 30s: table t: behind"},
		{name: "it flaps", views: func(s *stage) error {
			if s.starts["b"] == 2 && s.away["b"].IsZero() && len(s.touched) == 1 && strings.Contains(s.journal[len(s.journal)-1], "owners-back") {
				s.starts["b"]++
				s.nodeLocked("b").Incarnation = "b.3.00000001"
			}
			return nil
		}, why: "node b does not stay up"},
		{name: "the view is cut off", views: func(s *stage) error {
			if len(s.touched) == 1 {
				return &api.Error{Code: api.CodeNotReady, Message: "no quorum"}
			}
			return nil
		}, why: "incomplete view: no quorum"},
		{name: "the view is empty", views: func(s *stage) error {
			if len(s.touched) == 1 && s.starts["b"] == 2 {
				s.view.Nodes = nil
			}
			return nil
		}, why: "node b is no member any more"},
		{name: "the view is partial", views: func(s *stage) error {
			if len(s.touched) == 1 && len(s.view.Nodes) == 3 && s.journal[len(s.journal)-1] == "b done" {
				s.view.Nodes = slices.Delete(s.view.Nodes, 0, 1)
			}
			return nil
		}, why: "check members blocks node c: incomplete: 2 of 3"},
		{name: "it is ready by fits and starts", views: func(s *stage) error {
			if s.starts["b"] == 2 {
				s.nodeLocked("b").Wrong = nil
				if s.last() == "b owners-back" && time.Now().Second()%2 == 0 {
					s.nodeLocked("b").Wrong = []string{"its disk stalls"}
				}
			}
			return nil
		}, why: "node b does not stay ready: it was 4 times, and then was not; the last time: its disk stalls"},
		{name: "it goes to and fro", views: func(s *stage) error {
			if s.starts["b"] == 2 {
				s.nodeLocked("b").Wrong = []string{fmt.Sprintf("table t lacks %d entries", time.Now().Second()%2)}
			}
			return nil
		}, why: "waited for node b to be level and ready, and nothing moved for 30s: table t lacks"},
		{name: "the view comes and goes", views: func(s *stage) error {
			if s.starts["b"] == 2 {
				s.nodeLocked("b").Wrong = []string{"table t: behind"}
				if time.Now().Second()%2 == 0 {
					return &api.Error{Code: api.CodeNotReady, Message: "no quorum"}
				}
			}
			return nil
		}, why: "waited for node b to be level and ready, and nothing moved for 30s"},
		{name: "it is silent in ever other words", views: func(s *stage) error {
			if s.starts["b"] == 2 {
				s.nodeLocked("b").Silent = "read tcp 127.0.0.1: reset at " + time.Now().String()
			}
			return nil
		}, why: "nothing moved for 30s: read tcp 127.0.0.1"},
		{name: "the next one does not answer", views: func(s *stage) error {
			if s.last() == "c check" {
				s.nodeLocked("c").Silent = "no route to host"
			}
			return nil
		}, why: "node c has answered, and does not now: no route to host"},
		{name: "a request is refused", restarts: func(s *stage, _ string) error {
			s.counts["c"] = api.RequestCounts{Answered: 1, Refused: map[api.Code]uint64{api.CodeNoOwner: 1}}
			return nil
		}, why: "1 requests were refused"},
		{name: "the hook fails", why: "the hook before node b: no"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage()
				s.restarts, s.views = tc.restarts, tc.views
				report, err := s.run(t, tc.options, func(r *roll.Runner) {
					if tc.name == "the hook fails" {
						r.Before = func(context.Context, string) error { return errors.New("no") }
					}
				})
				trouble, ok := errors.AsType[*roll.TroubleError](err)
				if !ok || !strings.Contains(trouble.Why, tc.why) || trouble.Hint == "" {
					t.Fatalf("%v, want %q", err, tc.why)
				}
				if report.Status != "paused" || s.roll.Status != api.RollPaused || s.roll.Why != trouble.Why {
					t.Errorf("the journal says %s %q", s.roll.Status, s.roll.Why)
				}
				if len(s.touched) > 1 {
					t.Errorf("told to restart were %v", s.touched)
				}
			})
		})
	}
}

// TestPeersKnowBetter: the exit code of a command says nothing; what the peers of
// the node see does.
func TestPeersKnowBetter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		if _, err := s.run(t, roll.Options{}, func(r *roll.Runner) { r.Driver = failing{s} }); err != nil {
			t.Errorf("all nodes came back: %v", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.restarts = func(s *stage, id string) error { s.away[id] = time.Time{}; return nil }
		_, err := s.run(t, roll.Options{}, func(r *roll.Runner) { r.Driver = failing{s} })
		if err == nil || !strings.Contains(err.Error(), "broken pipe") || len(s.touched) != 1 {
			t.Errorf("told to restart were %v: %v", s.touched, err)
		}
	})
}

// TestSlowIsNotStuck: a node that catches up for longer than the stall, and moves,
// is waited for.
func TestSlowIsNotStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		lag := 100
		s.restarts = func(s *stage, id string) error {
			s.nodeLocked(id).Wrong = []string{"100"}
			return nil
		}
		next := time.Now()
		s.views = func(s *stage) error {
			if n := s.nodeLocked("b"); len(n.Wrong) > 0 && time.Now().After(next) {
				next = time.Now().Add(20 * time.Second)
				if lag--; lag > 90 {
					n.Wrong = []string{fmt.Sprint(lag)}
				} else {
					n.Wrong = nil
				}
			}
			return nil
		}
		if _, err := s.run(t, roll.Options{Only: []string{"b"}}, nil); err != nil {
			t.Error(err)
		}
	})
}

// TestTaken: a runner whose roll is taken over does nothing more, wherever it is.
func TestTaken(t *testing.T) {
	for _, at := range roll.States()[:11] {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			_, err := s.run(t, roll.Options{}, func(r *roll.Runner) {
				r.Say = func(e roll.Event) {
					if e.State == at && e.Node == "b" {
						s.mu.Lock()
						s.roll.Epoch++
						s.mu.Unlock()
					}
				}
			})
			if !errors.Is(err, roll.ErrTaken) {
				t.Errorf("taken in %s: %v", at, err)
			}
			if len(s.touched) > 1 || slices.Contains(roll.States()[:6], at) && len(s.touched) > 0 {
				t.Errorf("taken in %s: told to restart were %v", at, s.touched)
			}
			if s.roll.Status != api.RollRunning {
				t.Errorf("taken in %s: the roll is %s", at, s.roll.Status)
			}
		})
	}
}

// TestResume: a runner that dies in any state is followed by one that finishes, and
// restarts no node twice whose restart was begun.
func TestResume(t *testing.T) {
	for _, at := range roll.States() {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			ctx, die := context.WithCancel(t.Context())
			s.views = func(*stage) error { return ctx.Err() }
			p, err := roll.NewPlan(s.view, roll.Options{Stall: time.Minute, MaxUnavailable: 1})
			if err != nil {
				t.Fatal(err)
			}
			first := &roll.Runner{Cluster: s, Journal: s, Driver: s, Plan: p, Roll: s.roll, By: "ann", Say: func(e roll.Event) {
				if e.State == at && e.Node == "c" {
					die()
				}
			}}
			first.Driver = mortal{s, ctx}
			if _, err := first.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Fatalf("died in %s: %v", at, err)
			}
			s.views = nil
			s.mu.Lock()
			s.roll.Epoch++
			now, told := s.roll, slices.Clone(s.touched)
			s.mu.Unlock()
			<-time.After(time.Minute) // its claims have run out
			s.claimed = map[string]bool{}
			second := &roll.Runner{Cluster: s, Journal: s, Driver: s, Plan: p, Roll: now, By: "bob", Say: s.say}
			if _, err := second.Run(t.Context()); err != nil {
				t.Fatalf("resumed in %s: %v", at, err)
			}
			if want := []string{"b"}; at == roll.StateStop && !slices.Equal(told, want) { // it was noted, and not done
				t.Errorf("died in %s: told to restart were %v", at, told)
			}
			if want := []string{"b", "c", "a"}; !slices.Equal(s.touched, want) {
				t.Errorf("resumed in %s: told to restart were %v", at, s.touched)
			}
			if s.roll.Status != api.RollDone {
				t.Errorf("resumed in %s: the roll is %s", at, s.roll.Status)
			}
		})
	}
}

// mortal tells nobody anything once its operator is dead.
type mortal struct {
	*stage
	life context.Context //nolint:containedctx // that of the operator
}

func (m mortal) Restart(ctx context.Context, n roll.Node, h roll.Hold) error {
	if m.life.Err() != nil {
		return m.life.Err()
	}
	return m.stage.Restart(ctx, n, h)
}

// TestResumeTold: an operator that dies right after it told a node to restart is
// followed by one that does not tell it again; nor while it drains still.
func TestResumeTold(t *testing.T) {
	for _, away := range []time.Duration{time.Second, 20 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			data, err := json.Marshal(map[string]string{"before": s.nodeLocked("b").Incarnation})
			if err != nil {
				t.Fatal(err)
			}
			s.roll.Nodes = []api.RollNode{{Node: "b", State: string(roll.StateStop), Data: data}}
			s.claimed["b"] = true
			s.away["b"] = time.Now().Add(away)
			s.views = func(s *stage) error {
				if s.starts["b"] > 1 {
					delete(s.claimed, "b")
				}
				return nil
			}
			if _, err := s.run(t, roll.Options{Only: []string{"b"}}, nil); err != nil {
				t.Error(err)
			}
			s.wantTouched(t)
		})
	}
}

// TestResumeRefused: a node that refused to restart, or was told and went on as it
// was, is told again when the roll is resumed.
func TestResumeRefused(t *testing.T) {
	for _, answer := range []error{&api.Error{Code: api.CodeCheckFailed, Message: "no such file"}, nil} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			s.restarts = func(s *stage, id string) error {
				delete(s.away, id)
				s.nodeLocked(id).Incarnation = id + ".1.00000001"
				return answer
			}
			if _, err := s.run(t, roll.Options{}, nil); err == nil {
				t.Fatal("it did not restart, and the roll went on")
			}
			s.wantTouched(t, "b")
			if last := s.journal[len(s.journal)-1]; answer != nil && last != "b check" {
				t.Errorf("after a refusal the journal ends with %q", last)
			}
			s.restarts = nil // mended
			s.roll.Status = api.RollRunning
			if _, err := s.run(t, roll.Options{}, nil); err != nil {
				t.Fatal(err)
			}
			s.wantTouched(t, "b", "b", "c", "a")
		})
	}
}

// TestResumeWrongVersion: a node that came back with the wrong version is not done
// by resuming, and is when it has the right one.
func TestResumeWrongVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		o := roll.Options{Version: "2.0", Only: []string{"b"}, Stall: 30 * time.Second}
		p, err := roll.NewPlan(s.view, o)
		if err != nil {
			t.Fatal(err)
		}
		resume := func(r *roll.Runner) { r.Plan = p }
		for range 3 {
			_, err := s.run(t, o, resume)
			if trouble, ok := errors.AsType[*roll.TroubleError](err); !ok || !strings.Contains(trouble.Why, "came back with version 1.0, and 2.0 is wanted") {
				t.Fatalf("%v; the journal is %v", err, s.journal)
			}
			s.wantTouched(t, "b")
		}
		s.starts["b"]++ // somebody restarts it with the right one
		s.nodeLocked("b").Incarnation, s.nodeLocked("b").Version = "b.3.00000001", "2.0"
		if _, err := s.run(t, o, resume); err != nil || s.journal[len(s.journal)-1] != "b done" {
			t.Errorf("%v; the journal is %v", err, s.journal)
		}
		s.wantTouched(t, "b")
	})
}

// TestAsked: a roll that is asked to pause hands back a node that it has not
// stopped, and finishes one that it has; aborted, it says so.
func TestAsked(t *testing.T) {
	for _, tc := range []struct {
		at   roll.State
		ask  string
		told []string
		want error
	}{
		{roll.StateDrain, api.RollAskPause, nil, nil},
		{roll.StateDrain, api.RollAskAbort, nil, roll.ErrAborted},
		{roll.StateStarted, api.RollAskPause, []string{"b"}, nil},
		{roll.StateStarted, api.RollAskAbort, []string{"b"}, roll.ErrAborted},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			_, err := s.run(t, roll.Options{}, func(r *roll.Runner) {
				stop := make(chan struct{})
				r.Stop = stop
				r.Say = func(e roll.Event) {
					if e.State != tc.at || e.Node != "b" {
						return
					}
					if tc.ask == api.RollAskPause {
						close(stop)
						return
					}
					s.mu.Lock()
					s.roll.Ask = tc.ask
					s.mu.Unlock()
					<-time.After(3 * time.Second) // until it is heard
				}
			})
			s.wantTouched(t, tc.told...)
			_, paused := errors.AsType[*roll.TroubleError](err)
			if tc.want != nil && !errors.Is(err, tc.want) || tc.want == nil && !paused {
				t.Errorf("asked to %s in %s: %v", tc.ask, tc.at, err)
			}
		})
	}
}

// TestPauseAfter: and when it is resumed, what is done is left alone.
func TestPauseAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		var want []string
		for _, n := range []string{"b", "c"} {
			want = append(want, n)
			_, err := s.run(t, roll.Options{PauseAfter: 1}, nil)
			if trouble, ok := errors.AsType[*roll.TroubleError](err); !ok || !strings.Contains(trouble.Why, "--pause-after") {
				t.Fatalf("%v", err)
			}
			s.wantTouched(t, want...)
			s.roll.Status = api.RollRunning
		}
		if _, err := s.run(t, roll.Options{PauseAfter: 1}, nil); err != nil {
			t.Fatal(err)
		}
		var data map[string]string
		if err := json.Unmarshal(s.roll.Nodes[0].Data, &data); err != nil || data["before"] == "" || data["after"] == "" {
			t.Errorf("the journal holds %s, %v", s.roll.Nodes[0].Data, err)
		}
	})
}

// TestSettleLooksSeldom: most of a roll is spent watching nodes that are well. That has the
// nodes answer once a second, and not as often as where something is awaited.
func TestSettleLooksSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		looks := 0
		s.views = func(s *stage) error {
			if s.last() == "b owners-back" {
				looks++
			}
			return nil
		}
		if _, err := s.run(t, roll.Options{Only: []string{"b"}, Settle: 10 * time.Second}, nil); err != nil || looks < 9 || looks > 12 {
			t.Errorf("%d looks in ten seconds; %v", looks, err)
		}
	})
}

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

// TestNothingGoesOnUnnoted: in whichever state of a node the journal takes no more, the
// roll does not go on with it, and says so.
func TestNothingGoesOnUnnoted(t *testing.T) {
	for i, state := range roll.States() {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			s.notes = func(a api.RollAction, c api.RollChange) error {
				if a == api.RollNote && c.State == string(state) {
					return errors.New("no quorum")
				}
				return nil
			}
			_, err := s.run(t, roll.Options{}, nil)
			if err == nil || !strings.Contains(err.Error(), "the journal does not take the state "+string(state)+" of node b: no quorum") {
				t.Errorf("in state %s: %v", state, err)
			}
			if s.roll.Status != api.RollPaused {
				t.Errorf("in state %s the roll is %s", state, s.roll.Status)
			}
			if len(s.journal) != i {
				t.Errorf("noted before %s: %v", state, s.journal)
			}
		})
	}
}

// TestNotedWithoutAnAnswer: a note that may have been taken is told again, and a roll
// does not stop for it; for one that is never answered it does.
func TestNotedWithoutAnAnswer(t *testing.T) {
	lost := &api.Error{Code: api.CodeOutcomeUnknown, Message: "no answer came"}
	for _, c := range []struct {
		answer error
		lost   int
		paused bool
	}{{lost, 3, false}, {context.DeadlineExceeded, 3, false}, {lost, 4, true}, {context.DeadlineExceeded, 4, true}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			told := 0
			s.notes = func(a api.RollAction, n api.RollChange) error {
				if a == api.RollNote && n.Node == "c" && n.State == string(roll.StateDrain) {
					if told++; told <= c.lost {
						return c.answer
					}
				}
				return nil
			}
			_, err := s.run(t, roll.Options{}, nil)
			if paused := s.roll.Status == api.RollPaused; paused != c.paused || paused != (err != nil) {
				t.Errorf("%d times %v: %s, %v", c.lost, c.answer, s.roll.Status, err)
			}
			if !c.paused {
				s.wantTouched(t, "b", "c", "a")
			}
		})
	}
}

// TestPausedTooLate: an operator that slept, and finds that its own time is over before it
// hears that somebody has resumed the roll, or has ended it and begun others, is told just
// that, whatever it tells the journal first: `resume` would take a roll that is not its own.
func TestPausedTooLate(t *testing.T) {
	for _, code := range []api.Code{api.CodeStaleEpoch, api.CodeConflict, api.CodeRollNotFound} {
		for _, first := range []api.RollAction{api.RollEnd, api.RollNote, api.RollRenew} {
			synctest.Test(t, func(t *testing.T) {
				s := newStage()
				s.restarts = func(s *stage, id string) error {
					s.away[id] = time.Time{} // it does not come back
					return nil
				}
				over := false // from when on the journal answers so
				s.notes = func(a api.RollAction, _ api.RollChange) error {
					if a == first && len(s.touched) > 0 {
						over = true
					}
					if over {
						return &api.Error{Code: code, Message: "over"}
					}
					return nil
				}
				if first == api.RollNote {
					s.restarts = nil
				}
				began := time.Now()
				_, err := s.run(t, roll.Options{}, nil)
				if !errors.Is(err, roll.ErrTaken) || errors.As(err, new(*roll.TroubleError)) {
					t.Errorf("%s is answered %s: %v", first, code, err)
				}
				if took := time.Since(began); first != api.RollEnd && took > 10*time.Second {
					t.Errorf("%s is answered %s: it ended after %s", first, code, took)
				}
			})
		}
	}
}

// TestAnEndThatIsNotNoted is said, with what to do about it: else nobody knows why the next
// roll finds a lock.
func TestAnEndThatIsNotNoted(t *testing.T) {
	for _, tc := range []struct {
		ask  string
		hint string
	}{{"", "then `tidal roll resume`, which finds nothing left to do"}, {api.RollAskAbort, "then `tidal roll abort`"}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			s.roll.Ask = tc.ask
			s.notes = func(a api.RollAction, _ api.RollChange) error {
				if a == api.RollEnd {
					return errors.New("no quorum")
				}
				return nil
			}
			report, err := s.run(t, roll.Options{}, nil)
			if err == nil || !strings.Contains(err.Error(), "the journal could not be told, and says that the roll goes on: no quorum") || report == nil {
				t.Errorf("%+v, %v", report, err)
			}
			if untold, ok := errors.AsType[*roll.UntoldError](err); !ok || !strings.Contains(untold.Hint, tc.hint) {
				t.Errorf("%v has no hint that says: %s", err, tc.hint)
			}
			if aborted := errors.Is(err, roll.ErrAborted); aborted != (tc.ask != "") {
				t.Errorf("asked to %q: %v", tc.ask, err)
			}
			if tc.ask == "" {
				s.wantTouched(t, "b", "c", "a")
			}
		})
	}
}

package roll_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

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

// TestAnEndThatIsNotNoted is said: else nobody knows why the next roll finds a lock.
func TestAnEndThatIsNotNoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
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
		s.wantTouched(t, "b", "c", "a")
	})
}

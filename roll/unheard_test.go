package roll_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"

	"tidal/node/api"
	"tidal/roll"
)

// TestUnheard: a roll that nobody hears any more pauses as if that was asked for, and the
// journal says why. That it will pause is said at once, and not when it does.
func TestUnheard(t *testing.T) {
	for _, tc := range []struct {
		at   roll.State
		told []string
	}{
		{roll.StateDrain, nil},
		{roll.StateStarted, []string{"b"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newStage()
			var lost error
			var said []string
			_, err := s.run(t, roll.Options{}, func(r *roll.Runner) {
				r.Unheard = func() error { return lost }
				r.Say = func(e roll.Event) {
					if e.State == tc.at {
						lost = errors.New("its terminal was closed")
					}
					said = append(said, string(e.State)+e.Note)
				}
			})
			s.wantTouched(t, tc.told...)
			if trouble, ok := errors.AsType[*roll.TroubleError](err); !ok || trouble.Why != "its terminal was closed" || !strings.Contains(trouble.Hint, "resume") {
				t.Errorf("lost in %s: %v", tc.at, err)
			}
			if s.roll.Status != api.RollPaused || s.roll.Why != "its terminal was closed" {
				t.Errorf("lost in %s, the journal says %s: %s", tc.at, s.roll.Status, s.roll.Why)
			}
			all := strings.Join(said, "\n")
			note, settled := strings.Index(all, "asked to pause: "), strings.Index(all, string(roll.StateSettled))
			if note < 0 || settled >= 0 && settled < note {
				t.Errorf("lost in %s, this was said:\n%s", tc.at, all)
			}
		})
	}
}

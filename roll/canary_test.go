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

// TestAskedWhileTheCanaryLooks: whoever asks for a pause waits for no canary. Before the
// first node nothing is begun then; after the last there is nothing left to pause.
func TestAskedWhileTheCanaryLooks(t *testing.T) {
	for _, tc := range []struct {
		name   string
		at     string // what the journal noted last, when the pause is asked for
		told   []string
		status string
	}{
		{"before the first node", "", nil, "paused"},
		{"after the last node", "a done", []string{"b", "c", "a"}, "done"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, stop := newStage(), make(chan struct{})
				var asked time.Time
				report, err := s.run(t, roll.Options{}, func(r *roll.Runner) {
					r.Stop = stop
					r.Canary = &roll.Canary{Every: 250 * time.Millisecond, Around: time.Minute, Attempt: func(context.Context, uint64) string {
						s.mu.Lock()
						defer s.mu.Unlock()
						if s.last() == tc.at && asked.IsZero() {
							asked = time.Now()
							close(stop)
						}
						return ""
					}}
				})
				s.wantTouched(t, tc.told...)
				if took := time.Since(asked); asked.IsZero() || took > time.Second {
					t.Errorf("it ended %v after it was asked to pause", took)
				}
				if report.Status != tc.status || s.roll.Status != api.RollStatus(tc.status) {
					t.Errorf("it is %s, and the journal says %s: %v", report.Status, s.roll.Status, err)
				}
				trouble, paused := errors.AsType[*roll.TroubleError](err)
				if tc.status == "paused" && (!paused || trouble.Why != "asked to pause") || tc.status == "done" && err != nil {
					t.Errorf("%v", err)
				}
				if tc.status == "done" && !strings.Contains(s.events[len(s.events)-1].Note, "and not for 1m0s: asked to stop") {
					t.Errorf("that the canary did not look for as long as it was to is not said: %+v", s.events)
				}
			})
		})
	}
}

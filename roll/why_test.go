package roll_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"tidal/node/api"
	"tidal/roll"
)

// TestLongWhy: why a roll paused reaches the journal, also when it is longer than that
// takes, is cut in the middle of a character, or is none at all.
func TestLongWhy(t *testing.T) {
	for _, long := range []string{"ä", "…", "\U0001F525", "\xff"} {
		for begin := range len(long) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage()
				_, err := s.run(t, roll.Options{}, func(r *roll.Runner) {
					r.Before = func(context.Context, string) error {
						return errors.New(strings.Repeat("x", begin) + strings.Repeat(long, api.MaxRollText/len(long)))
					}
				})
				if err == nil || s.roll.Status != api.RollPaused {
					t.Fatalf("%+v, %v", s.roll, err)
				}
				sent, err := json.Marshal(api.RollChange{Status: s.roll.Status, Why: s.roll.Why})
				if err != nil {
					t.Fatal(err)
				}
				var came api.RollChange
				if err = json.Unmarshal(sent, &came); err != nil {
					t.Fatal(err)
				}
				if err = came.Check(api.RollEnd); err != nil || utf8.ValidString(long) && len(came.Why) < api.MaxRollText-3 {
					t.Errorf("%q from %d: the journal has %d bytes of why, %v", long, begin, len(came.Why), err)
				}
			})
		}
	}
}

// TestWhyIsItsOwn: a command that failed at one node, which came back all the same, is no
// reason why another does not.
func TestWhyIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage()
		s.restarts = func(s *stage, id string) error {
			if id == "b" {
				return &roll.CommandError{Command: "ssh", Output: "broken pipe", Err: errors.New("exit status 255")}
			}
			s.away[id] = time.Time{}
			return nil
		}
		_, err := s.run(t, roll.Options{}, nil)
		if err == nil || !strings.Contains(err.Error(), "node c to come back") || strings.Contains(err.Error(), "broken pipe") {
			t.Errorf("told to restart were %v: %v", s.touched, err)
		}
	})
}

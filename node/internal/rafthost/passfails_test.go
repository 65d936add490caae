package rafthost_test

import (
	"errors"
	"testing"
	"testing/synctest"

	"tidal/node/internal/rafthost"
)

// TestFailedPassEndsTheHost: a pass that failed is the last one. What it had not answered
// is of unknown outcome, and Run says why.
func TestFailedPassEndsTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLone(t, nowhere{})
		h := rafthost.NewHost(l.stepper, 0)
		ended := make(chan error, 1)
		go func() { ended <- h.Run(t.Context()) }()
		synctest.Wait()
		broken := errors.New("it cannot be applied")
		l.machine.err = broken
		r := propose(t.Context(), h, "one")
		synctest.Wait()
		select {
		case err := <-ended:
			if !errors.Is(err, broken) {
				t.Errorf("the host ended with %v", err)
			}
		default:
			t.Fatal("the host goes on after a pass that failed")
		}
		if got := <-r; !errors.Is(got.err, rafthost.ErrUnknown) {
			t.Errorf("what the pass was about is answered %v, %v", got.answer, got.err)
		}
		l.check(l.db.Close())
	})
}

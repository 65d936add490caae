package router_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
)

// forgetful lets the table refuse what was born before an index, and names one
// that is new enough.
func forgetful(forgotten, now uint64) func(context.Context, call) error {
	return func(_ context.Context, c call) error {
		if c.req.Born.Index < forgotten {
			return &api.Error{Code: api.CodeBehind, Message: "forgotten", At: api.Position{Table: 7, Index: now}}
		}
		return nil
	}
}

// TestAsksTheOwnerFirst: a node that knows too little of a table learns from its
// owner what it must know, at once, and does not ask again for the next write.
func TestAsksTheOwnerFirst(t *testing.T) {
	for _, known := range []uint64{0, 100} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t, nil)
			g.dir.put(routeTo("b", known))
			g.cluster.answer = forgetful(500, 900)
			start := time.Now()
			req := put()
			if _, err := g.Do(t.Context(), req); err != nil || req.Born.Index != 900 {
				t.Fatalf("%v, born %v", err, req.Born)
			}
			if _, err := g.Do(t.Context(), put()); err != nil {
				t.Fatal(err)
			}
			if c := g.cluster.calls(); len(c) != 3 || c[0].req.Born.Index != known || c[2].req.Born.Index != 900 || time.Since(start) != 0 {
				t.Errorf("after %s: %+v", time.Since(start), c)
			}
		})
	}
}

// TestAnswersTellPositions: what was written elsewhere is known here.
func TestAnswersTellPositions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.put(routeTo("b", 100))
		g.cluster.version = api.Version{Table: 7, Index: 300}
		for range 2 {
			if _, err := g.Do(t.Context(), put()); err != nil {
				t.Fatal(err)
			}
		}
		g.cluster.version = api.Version{Table: 6, Index: 400}
		for range 2 {
			if _, err := g.Do(t.Context(), put()); err != nil {
				t.Fatal(err)
			}
		}
		for i, want := range []uint64{100, 300, 300, 300} {
			if got := g.cluster.calls()[i].req.Born; got != (api.Position{Table: 7, Index: want}) {
				t.Errorf("write %d is born %v, want %d", i, got, want)
			}
		}
	})
}

// TestForgottenIsUnknown: when the table has forgotten whether an attempt that may
// have been applied was, waiting tells nothing more.
func TestForgottenIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.put(routeTo("b", 100))
		n := 0
		g.cluster.answer = func(ctx context.Context, c call) error {
			if n++; n == 1 {
				return &api.Error{Code: api.CodeOutcomeUnknown, Message: "it broke"}
			}
			return forgetful(500, 900)(ctx, c)
		}
		start := time.Now()
		_, err := g.Do(t.Context(), put())
		if api.CodeOf(err) != api.CodeOutcomeUnknown || time.Since(start) != ms(250) || len(g.cluster.calls()) != 2 {
			t.Errorf("%v after %s and %d attempts", err, time.Since(start), len(g.cluster.calls()))
		}
	})
}

// TestPositionOfTheClient: a write whose first copy may be on its way already is
// never made younger than its client says.
func TestPositionOfTheClient(t *testing.T) {
	for _, tt := range []struct {
		born uint64
		want api.Code
	}{{499, api.CodeOutcomeUnknown}, {500, ""}} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t, nil)
			g.dir.put(routeTo("b", 1000))
			g.cluster.answer = forgetful(500, 900)
			req := put()
			req.Born = api.Position{Table: 7, Index: tt.born}
			start := time.Now()
			_, err := g.Do(t.Context(), req)
			if api.CodeOf(err) != tt.want || len(g.cluster.calls()) != 1 || time.Since(start) != 0 {
				t.Errorf("born %d: %v after %s and %d attempts", tt.born, err, time.Since(start), len(g.cluster.calls()))
			}
			if got := g.cluster.calls()[0].req.Born.Index; got != tt.born {
				t.Errorf("it was sent as born %d, the client said %d", got, tt.born)
			}
		})
	}
}

// TestLearnsTogether: a request that is refused with less than another has learned
// meanwhile goes on at once too, and one that is refused however new it is does not
// ask without a pause.
func TestLearnsTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.put(routeTo("b", 100))
		g.cluster.answer = func(ctx context.Context, c call) error {
			if c.req.ID == (api.RequestID{2}) {
				return forgetful(500, 900)(ctx, c)
			}
			<-time.After(ms(10))
			return forgetful(500, 890)(ctx, c)
		}
		start := time.Now()
		go func() {
			other := put()
			other.ID = api.RequestID{2}
			if _, err := g.Do(t.Context(), other); err != nil {
				t.Error(err)
			}
		}()
		if _, err := g.Do(t.Context(), put()); err != nil || time.Since(start) > ms(20) {
			t.Errorf("%v after %s", err, time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.put(routeTo("b", 100))
		at := uint64(100)
		g.cluster.answer = func(ctx context.Context, c call) error {
			at++
			return forgetful(1<<40, at)(ctx, c)
		}
		req := put()
		req.Deadline = time.Now().Add(ms(600))
		if _, err := g.Do(t.Context(), req); api.CodeOf(err) != api.CodeBehind || len(g.cluster.calls()) > 6 {
			t.Errorf("%v after %d attempts", err, len(g.cluster.calls()))
		}
	})
}

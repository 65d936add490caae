package router_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/node/internal/router"
)

// ms are milliseconds.
func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

func TestServedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.own("a", 3)
		req := put()
		resp, err := g.Do(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Owner != "a" || resp.Hops != 0 {
			t.Errorf("owner %q, %d hops", resp.Owner, resp.Hops)
		}
		c := g.cluster.calls()
		if len(c) != 1 || c[0].table != 7 {
			t.Fatalf("calls %+v", c)
		}
		if want := (api.Position{Table: 7, Index: 300}); req.Born != want {
			t.Errorf("born %v, want %v", req.Born, want)
		}
		if got := time.Until(req.Deadline); got != api.Patience {
			t.Errorf("deadline in %v, want %v", got, api.Patience)
		}
		if len(g.events()) != 1 || g.events()[0].Code != "" || g.events()[0].Attempts != 1 {
			t.Errorf("events %+v", g.events())
		}
	})
}

func TestForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.own("b", 3)
		req := put()
		resp, err := g.Do(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		if resp.Owner != "b" || resp.Hops != 1 || string(resp.Value) != "b" {
			t.Errorf("answer %+v", resp)
		}
		if c := g.cluster.calls(); len(c) != 1 || c[0].req.Hops != 1 || c[0].req.ID != req.ID {
			t.Errorf("calls %+v", c)
		}
	})
}

// TestPatienceEnds has a row for each line of the table of routing errors.
func TestPatienceEnds(t *testing.T) {
	tests := []struct {
		name  string
		req   func() *api.Request
		owner string
		code  api.Code // of every attempt
		want  api.Code
		tries int
		after time.Duration // Retry-After
	}{
		{"stale owner", put, "b", api.CodeStaleOwner, api.CodeStaleOwner, 32, time.Second},
		{"no owner known", put, "", "", api.CodeNoOwner, 0, time.Second},
		{"no owner answered", read, "b", api.CodeNoOwner, api.CodeNoOwner, 32, time.Second},
		{"owner unreachable", put, "b", api.CodeOwnerUnreachable, api.CodeOwnerUnreachable, 32, time.Second},
		{"outcome of a write unknown", put, "b", api.CodeOutcomeUnknown, api.CodeOutcomeUnknown, 32, 0},
		{"outcome of a read unknown", read, "b", api.CodeOutcomeUnknown, api.CodeOutcomeUnknown, 32, 0},
		{"here no owner", put, "a", api.CodeNoOwner, api.CodeNoOwner, 32, time.Second},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, nil)
				g.dir.own(tt.owner, 1)
				g.cluster.answer = failing(tt.code)
				start := time.Now()
				_, err := g.Do(t.Context(), tt.req())
				if got := time.Since(start); got != api.Patience {
					t.Errorf("it took %v, want the patience", got)
				}
				var e *api.Error
				if !errors.As(err, &e) || e.Code != tt.want || e.RetryAfter != tt.after {
					t.Errorf("error %#v, want %s with Retry-After %v", err, tt.want, tt.after)
				}
				// A look each 250 ms: the last one falls together with the end.
				if got := len(g.cluster.calls()); got < tt.tries-1 || got > tt.tries+1 {
					t.Errorf("%d attempts, want about %d", got, tt.tries)
				}
				if len(g.events()) != 1 || g.events()[0].Code != tt.want || g.events()[0].Waited != api.Patience {
					t.Errorf("events %+v", g.events())
				}
			})
		})
	}
}

func TestFinalAtOnce(t *testing.T) {
	for _, code := range []api.Code{
		api.CodeTooMany, api.CodeIDReused, api.CodePreconditionFailed, api.CodeForbidden,
		api.CodeTooLarge, api.CodeInternal, api.CodeNotReady,
	} {
		t.Run(string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, nil)
				g.dir.own("b", 1)
				g.cluster.answer = failing(code)
				start := time.Now()
				_, err := g.Do(t.Context(), put())
				if api.CodeOf(err) != code || time.Since(start) != 0 || len(g.cluster.calls()) != 1 {
					t.Errorf("%v after %v and %d attempts", err, time.Since(start), len(g.cluster.calls()))
				}
			})
		})
	}
}

func TestUnknownTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		start := time.Now()
		_, err := g.Do(t.Context(), put())
		if api.CodeOf(err) != api.CodeTableNotFound || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if g.dir.mu.asked != 1 {
			t.Errorf("the meta group was asked %d times", g.dir.mu.asked)
		}
		g.dir.mu.unsure = &api.Error{Code: api.CodeNotReady}
		if _, err = g.Do(t.Context(), put()); api.CodeOf(err) != api.CodeNotReady {
			t.Errorf("nobody can say whether there is a table: %v", err)
		}
		local := put()
		local.Op, local.Local = api.OpGet, true
		if _, err = g.Do(t.Context(), local); api.CodeOf(err) != api.CodeTableNotFound {
			t.Errorf("a local read: %v", err)
		}
	})
}

// TestTableThatIsNewHere: a node that has not heard of a table yet, as after it stood
// still, does not say that there is none.
func TestTableThatIsNewHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		late := routeTo("a", 100)
		g.dir.mu.late = &late
		if _, err := g.Do(t.Context(), put()); err != nil {
			t.Error(err)
		}
	})
}

// TestSentAgain: the next try comes at the next look although nothing wakes it,
// and with the same id and birth.
func TestSentAgain(t *testing.T) {
	for _, code := range []api.Code{
		api.CodeStaleOwner, api.CodeNoOwner, api.CodeOwnerUnreachable, api.CodeBehind, api.CodeOutcomeUnknown,
	} {
		t.Run(string(code), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, nil)
				g.dir.own("b", 1)
				g.cluster.answer = firstly(code)
				// The position moves on; the birth must not, once the write may be done.
				born := uint64(999)
				if api.KindOf(code).Outcome == api.OutcomeUnknown {
					born = 100
				}
				go func() {
					<-time.After(ms(10))
					g.dir.put(router.Route{Table: 7, Owner: "b", Term: 1, Born: api.Position{Table: 7, Index: 999}})
				}()
				if _, err := g.Do(t.Context(), put()); err != nil {
					t.Fatal(err)
				}
				c := g.cluster.calls()
				if len(c) != 2 || c[1].at != ms(250) {
					t.Fatalf("calls %+v", c)
				}
				if c[0].req.ID != c[1].req.ID || c[1].req.Born.Index != born || c[1].req.Hops != 1 {
					t.Errorf("sent again as %+v", c[1].req)
				}
			})
		})
	}
}

// TestWokenByChange: a new owner is asked in the moment the directory knows it.
func TestWokenByChange(t *testing.T) {
	for _, first := range []string{"", "b"} {
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t, nil)
			g.dir.own(first, 1)
			g.cluster.answer = func(_ context.Context, c call) error {
				if c.node == "b" {
					return &api.Error{Code: api.CodeOwnerUnreachable, Message: "gone"}
				}
				return nil
			}
			go func() {
				<-time.After(ms(30))
				g.dir.wake() // something else changed
				<-time.After(ms(30))
				g.dir.own("c", 2)
				g.dir.wake()
			}()
			if _, err := g.Do(t.Context(), put()); err != nil {
				t.Fatal(err)
			}
			c := g.cluster.calls()
			if last := c[len(c)-1]; last.node != "c" || last.at != ms(60) {
				t.Errorf("first owner %q: calls %+v", first, c)
			}
			if got := g.cluster.nodes(); got != first+"c" {
				t.Errorf("asked %q: a change of something else must not ask again", got)
			}
		})
	}
}

// TestHints: each node is asked once per look, however the hints go round.
func TestHints(t *testing.T) {
	hints := map[string]string{"b": "c", "c": "d", "d": "b", "a": "b"}
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.own("b", 1)
		g.cluster.answer = func(_ context.Context, c call) error {
			return &api.Error{Code: api.CodeStaleOwner, Message: "not here", Owner: hints[c.node]}
		}
		req := put()
		req.Deadline = time.Now().Add(ms(400))
		_, err := g.Do(t.Context(), req)
		if api.CodeOf(err) != api.CodeStaleOwner {
			t.Errorf("error %v", err)
		}
		if got := g.cluster.nodes(); got != "bcdbcd" {
			t.Errorf("asked %q, want b, c and d once in each of two looks", got)
		}
	})
}

// TestHintBeatsDirectory: the owner that a node names is asked at once although
// this node's directory has not heard of it.
func TestHintBeatsDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.own("b", 1)
		g.cluster.answer = func(_ context.Context, c call) error {
			if c.node == "b" {
				return &api.Error{Code: api.CodeStaleOwner, Message: "not here", Owner: "a"}
			}
			return nil
		}
		resp, err := g.Do(t.Context(), put())
		if err != nil || resp.Owner != "a" || g.cluster.calls()[1].at != 0 {
			t.Errorf("%+v, %v", resp, err)
		}
	})
}

// TestUnknownStaysUnknown: an attempt that may have been applied is not
// forgotten because later ones did nothing.
func TestUnknownStaysUnknown(t *testing.T) {
	after := []struct {
		name string
		then func(g *rig)
		code api.Code // of later attempts
		want api.Code
	}{
		{"no owner", func(g *rig) { g.dir.own("", 2) }, "", api.CodeOutcomeUnknown},
		{"unreachable", nil, api.CodeOwnerUnreachable, api.CodeOutcomeUnknown},
		{"stale owner", nil, api.CodeStaleOwner, api.CodeOutcomeUnknown},
		{"too many", nil, api.CodeTooMany, api.CodeOutcomeUnknown},
		{"internal", nil, api.CodeInternal, api.CodeOutcomeUnknown},
		{"dropped", func(g *rig) { g.dir.drop() }, "", api.CodeOutcomeUnknown},
		{"made again", func(g *rig) { g.dir.put(router.Route{Table: 9, Owner: "b", Term: 1}) }, "", api.CodeOutcomeUnknown},
		{"decided", nil, api.CodePreconditionFailed, api.CodePreconditionFailed},
	}
	for _, tt := range after {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t, nil)
				g.dir.own("b", 1)
				first := true
				g.cluster.answer = func(context.Context, call) error {
					if first {
						first = false
						if tt.then != nil {
							tt.then(g)
						}
						return &api.Error{Code: api.CodeOutcomeUnknown, Message: "broke"}
					}
					return &api.Error{Code: tt.code, Message: "later"}
				}
				_, err := g.Do(t.Context(), put())
				if api.CodeOf(err) != tt.want {
					t.Errorf("error %v, want %s", err, tt.want)
				}
			})
		})
	}
}

// TestReadForgetsUnknown: a read does nothing, so only its last attempt counts.
func TestReadForgetsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.own("b", 1)
		first := firstly(api.CodeOutcomeUnknown)
		g.cluster.answer = func(ctx context.Context, c call) error {
			if err := first(ctx, c); err != nil {
				return err
			}
			return &api.Error{Code: api.CodeOwnerUnreachable, Message: "gone"}
		}
		if _, err := g.Do(t.Context(), read()); api.CodeOf(err) != api.CodeOwnerUnreachable {
			t.Errorf("error %v", err)
		}
	})
}

// TestPinned: a write never reaches another life of its table's name.
func TestPinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.own("b", 1)
		req := put()
		req.Born.Table = 5
		_, err := g.Do(t.Context(), req)
		if api.CodeOf(err) != api.CodeTableNotFound || len(g.cluster.calls()) != 0 {
			t.Errorf("%v, calls %v", err, g.cluster.calls())
		}
	})
}

// TestDeadlinePassed: what was not sent was not done, and the answer says so.
func TestDeadlinePassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.own("b", 1)
		req := put()
		req.Deadline = time.Now().Add(-time.Nanosecond)
		_, err := g.Do(t.Context(), req)
		if e := api.AsError(err); e.Code != api.CodeNoOwner || e.RetryAfter == 0 || len(g.cluster.calls()) != 0 {
			t.Errorf("%v after calls of %q", err, g.cluster.nodes())
		}
	})
}

func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.own("", 1)
		start := time.Now()
		req := put()
		req.Deadline = start.Add(ms(120))
		if _, err := g.Do(t.Context(), req); api.CodeOf(err) != api.CodeNoOwner {
			t.Errorf("error %v", err)
		}
		if got := time.Since(start); got != ms(120) {
			t.Errorf("it took %v, want the client's 120 ms", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.own("b", 1)
		g.cluster.answer = func(ctx context.Context, _ call) error { // a frozen owner
			<-ctx.Done()
			return &api.Error{Code: api.CodeOutcomeUnknown, Message: "no answer"}
		}
		start := time.Now()
		req := put()
		req.Deadline = start.Add(time.Hour)
		if _, err := g.Do(t.Context(), req); api.CodeOf(err) != api.CodeOutcomeUnknown {
			t.Errorf("error %v", err)
		}
		if got := time.Since(start); got != api.Patience {
			t.Errorf("it took %v: a far deadline must not stretch the patience", got)
		}
	})
}

func TestClientLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.own("", 1)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(ms(40), cancel)
		start := time.Now()
		_, err := g.Do(ctx, put())
		if !errors.Is(err, context.Canceled) || time.Since(start) != ms(40) {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if len(g.events()) != 1 || g.events()[0].Code != "" {
			t.Errorf("events %+v: a client that left was not refused", g.events())
		}
	})
}

func TestLocalRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.own("b", 1)
		req := read()
		req.Local = true
		if resp, err := g.Do(t.Context(), req); err != nil || resp.Owner != "a" {
			t.Errorf("%+v, %v", resp, err)
		}
		g.cluster.answer = failing(api.CodeStaleOwner)
		_, err := g.Do(t.Context(), req)
		var e *api.Error
		if !errors.As(err, &e) || e.Code != api.CodeStaleOwner || e.Owner != "b" {
			t.Errorf("error %#v, want stale-owner that names b", err)
		}
		if got := g.cluster.nodes(); got != "aa" {
			t.Errorf("asked %q", got)
		}
	})
}

func TestServe(t *testing.T) {
	tests := []struct {
		name   string
		route  *router.Route
		pinned api.TableID
		answer api.Code
		want   api.Code
		hint   string
		asked  string
	}{
		{"served", &router.Route{Table: 7, Owner: "a"}, 7, "", "", "", "a"},
		{"served although the directory lags", &router.Route{Table: 7, Owner: "b"}, 7, "", "", "", "a"},
		{"not here", &router.Route{Table: 7, Owner: "b"}, 7, api.CodeStaleOwner, api.CodeStaleOwner, "b", "a"},
		{"no hint to itself", &router.Route{Table: 7, Owner: "a"}, 7, api.CodeStaleOwner, api.CodeStaleOwner, "", "a"},
		{"unknown", &router.Route{Table: 7, Owner: "a"}, 7, api.CodeOutcomeUnknown, api.CodeOutcomeUnknown, "", "a"},
		{"table not here yet", nil, 7, "", api.CodeNoOwner, "", ""},
		{"newer table not here yet", &router.Route{Table: 7, Owner: "a"}, 8, "", api.CodeNoOwner, "", ""},
		{"older table", &router.Route{Table: 7, Owner: "a"}, 6, "", api.CodeTableNotFound, "", ""},
		{"not pinned", &router.Route{Table: 7, Owner: "a"}, 0, "", "", "", "a"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newRig(t, nil)
			if tt.route != nil {
				g.dir.put(*tt.route)
			}
			if tt.answer != "" {
				g.cluster.answer = failing(tt.answer)
			}
			req := put()
			req.Hops, req.Born.Table = 1, tt.pinned
			resp, err := g.Serve(t.Context(), req)
			if api.CodeOf(err) != tt.want || g.cluster.nodes() != tt.asked {
				t.Fatalf("error %v, asked %q", err, g.cluster.nodes())
			}
			if tt.want == "" {
				if resp.Owner != "a" || resp.Hops != 1 {
					t.Errorf("answer %+v", resp)
				}
				return
			}
			if got := api.AsError(err).Owner; got != tt.hint {
				t.Errorf("hint %q, want %q", got, tt.hint)
			}
		})
	}
}

func TestNoPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, owner := range []string{"", "b"} {
			g := newRig(t, func(o *router.Options) { o.NoPatience = true })
			g.dir.own(owner, 1)
			g.cluster.answer = firstly(api.CodeNoOwner)
			start := time.Now()
			_, err := g.Do(t.Context(), put())
			if api.CodeOf(err) != api.CodeNoOwner || time.Since(start) != 0 {
				t.Errorf("owner %q: %v after %v", owner, err, time.Since(start))
			}
		}
	})
}

// TestBound: what waits is bounded in bytes, and what is served is not.
func TestBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, func(o *router.Options) { o.MaxWaiting = 2 * (200 + 2) })
		g.dir.own("", 1)
		codes := make(chan api.Code, 5)
		for range 5 {
			go func() {
				_, err := g.Do(t.Context(), put())
				codes <- api.CodeOf(err)
			}()
		}
		synctest.Wait()
		if got := g.Waiting(); got != 2*202 {
			t.Errorf("%d bytes wait, want those of two requests", got)
		}
		<-time.After(ms(10))
		g.dir.own("b", 2)
		g.dir.wake()
		var got []api.Code
		for range 5 {
			got = append(got, <-codes)
		}
		slices.Sort(got)
		want := []api.Code{"", "", api.CodeTooMany, api.CodeTooMany, api.CodeTooMany}
		if !slices.Equal(got, want) {
			t.Errorf("answers %q, want %q", got, want)
		}
	})
}

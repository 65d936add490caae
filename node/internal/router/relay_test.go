package router_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
)

// unreachable lets a node be out of reach, and serves the others.
func unreachable(node string) func(context.Context, call) error {
	return func(_ context.Context, c call) error {
		if c.node == node {
			return &api.Error{Code: api.CodeOwnerUnreachable, Message: "out of reach"}
		}
		return nil
	}
}

// TestRelay: an owner that is not reached from here is reached through who hears it.
func TestRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.own("b", 3)
		g.dir.around("b", "c")
		g.cluster.answer = unreachable("b")
		began := time.Now()
		resp, err := g.Do(t.Context(), put())
		if err != nil {
			t.Fatal(err)
		}
		if time.Since(began) > 0 {
			t.Errorf("it took %v: nothing needed to be waited for", time.Since(began))
		}
		if g.cluster.nodes() != "bc" || resp.Owner != "z" || resp.Hops != 2 {
			t.Errorf("asked %q, answered by %q after %d hops", g.cluster.nodes(), resp.Owner, resp.Hops)
		}
		if c := g.cluster.calls()[1]; !c.relay || c.req.Hops != 1 {
			t.Errorf("the second call is %+v, want a relay of the first hop", c)
		}
	})
}

// TestRelayToWhoeverOwns: who hears somebody that is not heard here may know an owner
// that nobody has told this node of. With all heard, nobody is asked.
func TestRelayToWhoeverOwns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.own("", 3)
		req := put()
		req.Deadline = time.Now().Add(ms(600))
		if _, err := g.Do(t.Context(), req); api.CodeOf(err) != api.CodeNoOwner || g.cluster.nodes() != "" {
			t.Errorf("%v, asked %q", err, g.cluster.nodes())
		}
		g.dir.around("", "c")
		if _, err := g.Do(t.Context(), put()); err != nil || g.cluster.nodes() != "c" || !g.cluster.calls()[0].relay {
			t.Errorf("%v, asked %q", err, g.cluster.nodes())
		}
	})
}

// TestRelayOncePerLook: a way round that leads nowhere is tried as often as the owner.
func TestRelayOncePerLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t, nil)
		g.dir.own("b", 3)
		g.dir.around("b", "c")
		g.cluster.answer = failing(api.CodeOwnerUnreachable)
		req := put()
		req.Deadline = time.Now().Add(ms(600))
		if _, err := g.Do(t.Context(), req); api.CodeOf(err) != api.CodeOwnerUnreachable {
			t.Errorf("%v, want owner-unreachable", err)
		}
		if got := g.cluster.nodes(); got != "bcbcbc" {
			t.Errorf("asked %q in 600 ms, want bc at each of three looks", got)
		}
	})
}

// TestRelayed is the other end: the owner is asked once, and never by a second relay.
func TestRelayed(t *testing.T) {
	for _, c := range []struct {
		name, owner, detour string
		nodes               string
		hops                uint8
		code                api.Code
	}{
		{"to the owner", "b", "", "b", 2, ""},
		{"the owner itself", "a", "", "a", 1, ""},
		{"to nobody", "", "", "a", 0, api.CodeStaleOwner},
		{"to an owner out of reach", "x", "c", "x", 0, api.CodeOwnerUnreachable},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := newRig(t, nil)
			g.dir.own(c.owner, 3)
			g.dir.around(c.owner, c.detour)
			g.cluster.answer = func(_ context.Context, one call) error {
				if one.node == "x" || c.owner == "" {
					return &api.Error{Code: c.code, Message: string(c.code)}
				}
				return nil
			}
			req := put()
			req.Hops = 1
			resp, err := g.Relay(t.Context(), req)
			if api.CodeOf(err) != c.code || g.cluster.nodes() != c.nodes {
				t.Errorf("%v, asked %q; want %q, asked %q", err, g.cluster.nodes(), c.code, c.nodes)
			}
			if err == nil && (resp.Owner != c.nodes || resp.Hops != c.hops) {
				t.Errorf("answered by %q after %d hops", resp.Owner, resp.Hops)
			}
		})
	}
}

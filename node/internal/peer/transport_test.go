package peer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/node/internal/peer"
	"tidal/node/internal/wire"
)

// settle lets everything that needs no time happen, and the first pauses of
// dialling pass.
func settle() {
	advance(50 * time.Millisecond)
}

// advance lets the bubble's time pass.
func advance(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestRaftAndHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.start(t, "a", 1), f.start(t, "b", 7)
		defer a.stop()
		defer b.stop()
		join(a, b)
		settle()
		for i := range 3 {
			if !a.SendRaft("b", fmt.Appendf(nil, "frame%d", i)) {
				t.Fatal("a did not take a frame for b")
			}
		}
		if a.SendRaft("c", []byte("x")) {
			t.Error("a took a frame for a node that it does not know")
		}
		if a.SendRaft("b", make([]byte, wire.MaxFrame+1)) {
			t.Error("a took a frame that is larger than frames may be")
		}
		synctest.Wait()
		got := b.list("raft ")
		if len(got) != 3 {
			t.Fatalf("b got %d frames, want 3", len(got))
		}
		for i, e := range got {
			if want := fmt.Sprintf("raft a.1.00000abc frame%d", i); e.text != want {
				t.Errorf("frame %d is %q, want %q", i, e.text, want)
			}
		}
		// In one second: ten heartbeats a side, the first of them full.
		from := len(b.list("beat "))
		advance(time.Second)
		beats := b.list("beat a.1.00000abc")
		if n := len(beats) - from; n != 10 {
			t.Errorf("%d heartbeats in a second, want 10", n)
		}
		for i, e := range beats {
			if e.hb.Full != (i == 0) || e.hb.Seq != uint64(i+1) {
				t.Errorf("heartbeat %d: full %v, seq %d", i, e.hb.Full, e.hb.Seq)
			}
		}
		if len(a.list("up b.7.00000abc")) == 0 || len(b.list("up a.1.00000abc")) == 0 {
			t.Error("the handlers were not told that the connections stand")
		}
		// A nudge sends one at once.
		advance(30 * time.Millisecond)
		from = len(b.list("beat "))
		a.Nudge()
		synctest.Wait()
		if n := len(b.list("beat ")) - from; n != 1 {
			t.Errorf("%d heartbeats upon a nudge, want 1", n)
		}
		inc, when := a.Heard("b")
		if inc.String() != "b.7.00000abc" || time.Since(when) > 100*time.Millisecond {
			t.Errorf("heard %s %s ago", inc, time.Since(when))
		}
		if inc, when := a.Heard("c"); !inc.IsZero() || !when.IsZero() {
			t.Errorf("heard %s at %s of a node that never spoke", inc, when)
		}
	})
}

// TestHeartbeatsRideAlong: a heartbeat that is due soon goes out with a frame that
// goes out anyway, as do those for other nodes, and none is sent on its own then.
func TestHeartbeatsRideAlong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b, c := f.start(t, "a", 1), f.start(t, "b", 1), f.start(t, "c", 1)
		defer a.stop()
		defer b.stop()
		defer c.stop()
		a.SetPeers(map[string]string{"b": "http://b:1", "c": "http://c:1"})
		settle()
		a.Nudge() // from now on it is known when the next is due
		synctest.Wait()
		for range 20 {
			before, other := len(b.list("beat ")), len(c.list("beat "))
			advance(60 * time.Millisecond)
			if n := len(b.list("beat ")) + len(c.list("beat ")) - before - other; n != 0 {
				t.Fatalf("%d heartbeats within 60 ms", n)
			}
			a.SendRaft("b", []byte("x"))
			synctest.Wait()
			if n, m := len(b.list("beat "))-before, len(c.list("beat "))-other; n != 1 || m != 1 {
				t.Fatalf("%d and %d heartbeats with a frame to one of two, 60 ms after the last, want 1 each", n, m)
			}
		}
		before := len(b.list("beat "))
		for range 4 {
			a.SendRaft("b", []byte("x"))
			advance(10 * time.Millisecond)
		}
		if n := len(b.list("beat ")) - before; n != 0 {
			t.Errorf("%d heartbeats within 40 ms of frames", n)
		}
	})
}

func TestCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.start(t, "a", 1), f.start(t, "b", 1)
		defer a.stop()
		defer b.stop()
		b.call = func(ctx context.Context, from wire.Hello, method wire.Method, payload []byte) ([]byte, error) {
			switch method { //nolint:exhaustive // the others are answered below
			case wire.MethodForward:
				return nil, &api.Error{Code: api.CodeStaleOwner, Message: "not mine", Owner: "c", RetryAfter: time.Second}
			case wire.MethodPropose:
				return nil, errors.New("a secret cause")
			case wire.MethodRenew:
				deadline, ok := ctx.Deadline()
				return fmt.Appendf(nil, "%v %v", ok, time.Until(deadline)), nil
			case wire.MethodProve:
				<-ctx.Done()
				return nil, ctx.Err()
			}
			// The later a call was sent the sooner it is answered.
			var i int
			_, _ = fmt.Sscan(string(payload), &i)
			<-time.After(time.Duration(100-i) * time.Millisecond)
			return append([]byte(from.Incarnation.Node+" "), payload...), nil
		}
		join(a, b)
		ctx := t.Context()

		var wg sync.WaitGroup
		begin := time.Now()
		for i := range 100 {
			wg.Go(func() {
				got, err := a.Call(ctx, "b", wire.MethodStatus, fmt.Append(nil, i))
				if want := fmt.Sprint("a ", i); err != nil || string(got) != want {
					t.Errorf("call %d: %q, %v", i, got, err)
				}
			})
		}
		wg.Wait()
		if d := time.Since(begin); d > 200*time.Millisecond {
			t.Errorf("100 calls took %s: they wait for each other", d)
		}

		_, err := a.Call(ctx, "b", wire.MethodForward, nil)
		var e *api.Error
		if !errors.As(err, &e) || *e != (api.Error{Code: api.CodeStaleOwner, Message: "not mine", Owner: "c", RetryAfter: time.Second}) {
			t.Errorf("the error arrived as %#v", err)
		}
		if _, err = a.Call(ctx, "b", wire.MethodPropose, nil); api.CodeOf(err) != api.CodeInternal || strings.Contains(err.Error(), "secret") {
			t.Errorf("an unexpected error arrived as %v", err)
		}
		if !strings.Contains(b.log.String(), "a secret cause") {
			t.Error("the log of b does not have the cause")
		}

		limited, cancel := context.WithTimeout(ctx, 1500*time.Millisecond)
		defer cancel()
		if got, bad := a.Call(limited, "b", wire.MethodRenew, nil); bad != nil || string(got) != "true 1.5s" {
			t.Errorf("the deadline arrived as %q, %v", got, bad)
		}
		if got, bad := a.Call(ctx, "b", wire.MethodRenew, nil); bad != nil || !strings.HasPrefix(string(got), "false") {
			t.Errorf("no deadline arrived as %q, %v", got, bad)
		}
		_, err = a.Call(limited, "b", wire.MethodProve, nil)
		if !errors.Is(err, peer.ErrBroken) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call that ran out of time: %v", err)
		}
		if _, err = a.Call(ctx, "b", wire.MethodStatus, make([]byte, wire.MaxFrame)); api.CodeOf(err) != api.CodeTooLarge {
			t.Errorf("a call larger than a frame: %v", err)
		}
	})
}

func TestTooManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.start(t, "a", 1), f.start(t, "b", 1)
		defer a.stop()
		defer b.stop()
		release := make(chan struct{})
		b.call = func(context.Context, wire.Hello, wire.Method, []byte) ([]byte, error) {
			<-release
			return nil, nil
		}
		join(a, b)
		settle()
		var mu sync.Mutex
		refused, well := 0, 0
		var wg sync.WaitGroup
		for range 4100 {
			wg.Go(func() {
				_, err := a.Call(t.Context(), "b", wire.MethodStatus, nil)
				mu.Lock()
				defer mu.Unlock()
				switch {
				case api.CodeOf(err) == api.CodeTooMany:
					refused++
				case err == nil:
					well++
				default:
					t.Errorf("call: %v", err)
				}
			})
		}
		settle()
		close(release)
		wg.Wait()
		if refused != 4 || well != 4096 {
			t.Errorf("%d refused, %d went well", refused, well)
		}
	})
}

func TestRestartIsReachedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.start(t, "a", 1), f.start(t, "b", 1)
		defer a.stop()
		join(a, b)
		settle()
		b.stop()
		synctest.Wait()
		down := a.list("down b b.1.00000abc")
		if len(down) != 1 || !errors.Is(down[0].err, peer.ErrRefused) {
			t.Fatalf("a was told %v of the end of b, want one loss with a refused redial", down)
		}
		if _, err := a.Call(t.Context(), "b", wire.MethodStatus, nil); !errors.Is(err, peer.ErrUnreachable) || !errors.Is(err, peer.ErrRefused) {
			t.Errorf("a call while b is down: %v", err)
		}
		// Let a's pauses grow to their longest.
		advance(20 * time.Second)
		if n := f.countDials(); n > 150 {
			t.Errorf("%d attempts to dial in 20 s: the pauses do not grow", n)
		}
		b = f.start(t, "b", 2)
		defer b.stop()
		born := time.Now()
		b.SetPeers(map[string]string{"a": "http://a:1"})
		synctest.Wait()
		if !a.SendRaft("b", []byte("hello")) {
			t.Fatal("a has no connection to b although b said hello")
		}
		if _, err := a.Call(t.Context(), "b", wire.MethodStatus, nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if d := time.Since(born); d > 5*time.Millisecond {
			t.Errorf("b was reached %s after its start", d)
		}
		if len(b.list("raft a.1.00000abc hello")) != 1 {
			t.Error("b did not get the frame")
		}
		if inc, _ := a.Heard("b"); inc.Start != 2 {
			t.Errorf("a heard %s last", inc)
		}
	})
}

func TestBreakIsDialledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.start(t, "a", 1), f.start(t, "b", 1)
		defer a.stop()
		defer b.stop()
		a.SetPeers(map[string]string{"b": "http://b:1"})
		advance(2 * time.Second)
		begin := time.Now()
		f.each("b:1", func(n *line) {
			for _, c := range n.ends {
				_ = c.Close()
			}
		})
		synctest.Wait()
		if !a.SendRaft("b", nil) {
			t.Error("the connection was not made again at once")
		}
		if d := time.Since(begin); d != 0 {
			t.Errorf("it took %s", d)
		}
		if down := a.list("down"); len(down) != 1 || errors.Is(down[0].err, peer.ErrRefused) {
			t.Errorf("a was told %v, want one loss that was not refused", down)
		}
		if up := a.list("up b"); len(up) != 2 {
			t.Errorf("a was told %d times that the connection stands, want 2", len(up))
		}
	})
}

func TestNewIncarnationEndsOldConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.start(t, "a", 1), f.start(t, "b", 1)
		defer a.stop()
		defer b.stop()
		join(a, b)
		settle()
		// The old b keeps running, at an address of its own.
		f.mu.Lock()
		delete(f.listeners, "b:1")
		f.mu.Unlock()
		next := f.start(t, "b", 2)
		defer next.stop()
		next.SetPeers(map[string]string{"a": "http://a:1"})
		settle()
		a.SendRaft("b", []byte("for the new one"))
		b.SendRaft("a", []byte("from the old one"))
		settle()
		if len(next.list("raft a.1.00000abc for the new one")) != 1 {
			t.Error("a still talks to the old incarnation")
		}
		if got := a.list("raft"); len(got) != 0 {
			t.Errorf("a still listens to the old incarnation: %v", got)
		}
		if !strings.Contains(b.log.String(), "incarnation b.1.00000abc is over: b.2.00000abc has said hello") {
			t.Error("the old incarnation was not told why it is refused")
		}
		<-time.After(90 * time.Second)
		if n := strings.Count(a.log.String(), "refused a peer's connection"); n != 2 {
			t.Errorf("a told %d times in 90 s that it refuses the old one, want 2", n)
		}
	})
}

// TestStranger: a process without a cluster that has a member's id and
// certificate, as one that was started a second time on another directory, may
// ask what it must do. It does not cut off the member, which runs.
func TestStranger(t *testing.T) {
	belongs := func(o *peer.Options) {
		hello := o.Hello
		o.Hello = func(k wire.ConnKind) wire.Hello {
			h := hello(k)
			h.ClusterID = api.ClusterID{1}
			return h
		}
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.start(t, "a", 1, belongs), f.start(t, "b", 7, belongs)
		defer a.stop()
		defer b.stop()
		join(a, b)
		settle()
		second := newNode("b", 1, func(o *peer.Options) {
			o.Dial = f.dial
			hello := o.Hello
			o.Hello = func(k wire.ConnKind) wire.Hello {
				h := hello(k)
				h.Disk = diskOf("other")
				return h
			}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if who, _, err := second.CallAddress(ctx, "http://a:1", wire.MethodFormProbe, nil); err != nil || who.Incarnation.Node != "a" {
			t.Errorf("the stranger got no answer: %v", err)
		}
		settle()
		if inc, _ := a.Heard("b"); inc.Start != 7 {
			t.Errorf("a takes %s for b", inc)
		}
		for _, n := range []*node{a, b} {
			if text := n.log.String(); strings.Contains(text, "ended") {
				t.Errorf("a connection of %s was cut: %s", n.id, text)
			}
		}
	})
}

func TestRefusals(t *testing.T) {
	elsewhere := func(o *peer.Options) {
		o.Hello = func(wire.ConnKind) wire.Hello {
			return wire.Hello{Incarnation: api.Incarnation{Node: "x", Start: 1}, Disk: diskOf("x")}
		}
	}
	tests := []struct {
		name   string
		change func(*peer.Options) // of b
		want   string              // in what a says of it
	}{
		{"not admitted", func(o *peer.Options) {
			o.Admit = func(h wire.Hello) error {
				return &api.Error{Code: api.CodeForbidden, Message: "disk " + h.Disk.String()[:4] + " is retired", Hint: "wipe it"}
			}
		}, "b.1.00000abc refuses this node: disk 6100 is retired (forbidden): wipe it"},
		{"a plain error", func(o *peer.Options) {
			o.Admit = func(wire.Hello) error { return errors.New("not of this cluster") }
		}, "not of this cluster"},
		{"protocol", func(o *peer.Options) {
			hello := o.Hello
			o.Hello = func(k wire.ConnKind) wire.Hello {
				h := hello(k)
				h.Min, h.Max, h.Version = 3, 4, "9.0"
				return h
			}
		}, "the releases are too far apart: node b runs 9.0 and speaks levels 3 to 4, node a runs 1.0 and speaks level 1"},
		{"another node", elsewhere, "this is the address of node b, and node x answers there"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				a, b := f.start(t, "a", 1), f.start(t, "b", 1, test.change)
				defer a.stop()
				defer b.stop()
				a.SetPeers(map[string]string{"b": "http://b:1"})
				settle()
				_, err := a.Call(t.Context(), "b", wire.MethodStatus, nil)
				if !errors.Is(err, peer.ErrUnreachable) {
					t.Fatalf("a call to a node that refuses: %v", err)
				}
				want := strings.ReplaceAll(test.want, `\"`, `"`)
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the error %q does not have %q", err, want)
				}
				if code := api.CodeOf(err); code != "" {
					t.Errorf("the refusal looks like the answer %s", code)
				}
				if !strings.Contains(a.log.String(), test.want) {
					t.Errorf("the log does not have %q:\n%s", test.want, a.log)
				}
				advance(20 * time.Second)
				if n := strings.Count(a.log.String(), "cannot connect"); n != 2 {
					t.Errorf("%d lines in the log of two connections that fail for one reason, want 2", n)
				}
				if n := f.countDials(); n > 100 {
					t.Errorf("%d attempts in 20 s", n)
				}
				if len(b.list("up"))+len(a.list("up")) > 0 {
					t.Error("a connection that was refused was reported as up")
				}
			})
		})
	}
}

func TestDiallingSideRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a := f.start(t, "a", 1, func(o *peer.Options) {
			o.Admit = func(wire.Hello) error { return errors.New("this disk is older than the one that ran as b") }
		})
		b := f.start(t, "b", 1)
		defer a.stop()
		defer b.stop()
		a.SetPeers(map[string]string{"b": "http://b:1"})
		settle()
		_, err := a.Call(t.Context(), "b", wire.MethodStatus, nil)
		if !errors.Is(err, peer.ErrUnreachable) || !strings.Contains(err.Error(), "this node refuses b.1.00000abc: this disk is older") {
			t.Errorf("call: %v", err)
		}
		if api.CodeOf(err) != "" {
			t.Errorf("the refusal looks like the answer %s", api.CodeOf(err))
		}
		if !strings.Contains(b.log.String(), "a.1.00000abc refuses this node: this disk is older") {
			t.Errorf("b was not told:\n%s", b.log)
		}
		if len(b.list("up")) > 0 {
			t.Error("b took the connection for one that stands")
		}
	})
}

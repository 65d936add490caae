package peer_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/internal/peer"
	"tidal/node/internal/wire"
)

func TestUnreachableOrBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.start(t, "a", 1), f.start(t, "b", 1)
		defer a.stop()
		defer b.stop()
		causes := make(chan error, 1)
		b.call = func(ctx context.Context, _ wire.Hello, _ wire.Method, _ []byte) ([]byte, error) {
			f.each("b:1", func(n *line) {
				for _, c := range n.ends {
					_ = c.Close()
				}
			})
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, ctx.Err()
		}
		check := func(what string, err, want, not error) {
			t.Helper()
			if !errors.Is(err, want) || errors.Is(err, not) {
				t.Errorf("%s: %v", what, err)
			}
		}
		_, err := a.Call(t.Context(), "b", wire.MethodStatus, nil)
		check("no peer", err, peer.ErrUnreachable, peer.ErrBroken)

		a.SetPeers(map[string]string{"b": "http://b:1", "c": "http://c:1"})
		settle()
		_, err = a.Call(t.Context(), "c", wire.MethodStatus, nil)
		check("nothing listens", err, peer.ErrUnreachable, peer.ErrBroken)

		_, err = a.Call(t.Context(), "b", wire.MethodStatus, nil)
		check("closed after the request was read", err, peer.ErrBroken, peer.ErrUnreachable)
		if cause := <-causes; cause == nil || errors.Is(cause, context.Canceled) {
			t.Errorf("the handler's ctx ended with %v, want the reason why the connection broke", cause)
		}

		done, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = a.Call(done, "c", wire.MethodStatus, nil)
		check("given up", err, peer.ErrUnreachable, peer.ErrBroken)
	})
}

// TestUnsentCallIsUnreachable holds the line so that a call stays in the queue.
func TestUnsentCallIsUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, a, b := connected(t)
		held := make(chan struct{})
		f.each("b:1", func(n *line) { n.held = held })
		var wg sync.WaitGroup
		results := make([]error, 40)
		for i := range results {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				_, results[i] = a.Call(ctx, "b", wire.MethodStatus, make([]byte, 1<<20))
			})
			synctest.Wait()
		}
		wg.Wait()
		unsent := 0
		for i, err := range results {
			switch {
			case !errors.Is(err, context.DeadlineExceeded):
				t.Errorf("call %d: %v", i, err)
			case errors.Is(err, peer.ErrUnreachable):
				unsent++
			case !errors.Is(err, peer.ErrBroken):
				t.Errorf("call %d: %v", i, err)
			}
		}
		// The writer holds one; the others wait in the queue or for room in it.
		if unsent < 37 {
			t.Errorf("%d of 40 calls count as not sent, want 37 or more", unsent)
		}
		var served atomic.Int64
		b.call = func(context.Context, wire.Hello, wire.Method, []byte) ([]byte, error) {
			served.Add(1)
			return nil, nil
		}
		close(held)
		settle()
		if n := served.Load(); n > int64(40-unsent) {
			t.Errorf("%d calls arrived: some that count as not sent were sent after all", n)
		}
		if _, err := a.Call(t.Context(), "b", wire.MethodStatus, nil); err != nil {
			t.Fatal(err)
		}
	})
}

// TestCallEndsWithItsContext: a peer that is frozen reads nothing, and the buffers of
// the systems between fill up. No caller waits for longer than it wants to.
func TestCallEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, a, _ := connected(t)
		held := make(chan struct{})
		f.each("b:1", func(n *line) { n.held, n.room = held, 96<<10 })
		if _, err := a.Call(t.Context(), "b", wire.MethodStatus, nil); err != nil { // from here on it reads nothing
			t.Fatal(err)
		}
		const patience = 100 * time.Millisecond
		var wg sync.WaitGroup
		for i := range 100 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				begun := time.Now()
				_, err := a.Call(ctx, "b", wire.MethodStatus, make([]byte, 8<<10))
				if took := time.Since(begun); took != patience || !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("call %d ends after %s, want %s: %v", i, took, patience, err)
				}
			})
			if i%3 == 0 {
				synctest.Wait()
			}
		}
		wg.Wait()
		close(held)
	})
}

// TestCallsWaitForRoom holds the line for a while under more calls than the queue
// takes.
func TestCallsWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, a, _ := connected(t)
		held := make(chan struct{})
		f.each("b:1", func(n *line) { n.held = held })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		for i := range 40 {
			wg.Go(func() {
				if _, err := a.Call(ctx, "b", wire.MethodStatus, make([]byte, 1<<20)); err != nil {
					t.Errorf("call %d: %v", i, err)
				}
			})
		}
		advance(time.Second)
		close(held)
		wg.Wait()
	})
}

func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, a, b := connected(t)
		held := make(chan struct{})
		f.each("b:1", func(n *line) { n.held = held })
		const size = 1 << 20
		taken := 0
		for a.SendRaft("b", make([]byte, size)) {
			synctest.Wait()
			if taken++; taken > 100 {
				t.Fatal("a queue without a bound")
			}
		}
		if taken < 15 || taken > 20 {
			t.Errorf("%d MiB were taken, want about 16", taken)
		}
		close(held)
		settle()
		if n := len(b.list("raft ")); n != taken {
			t.Errorf("%d frames arrived of %d that were taken", n, taken)
		}
		if !a.SendRaft("b", []byte("x")) {
			t.Error("there is still no room")
		}
	})
}

// TestHeartbeatsOvertake shows that a heartbeat does not wait behind what is
// queued.
func TestHeartbeatsOvertake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, a, b := connected(t)
		held := make(chan struct{})
		f.each("b:1", func(n *line) { n.held = held })
		for range 100 {
			a.SendRaft("b", make([]byte, 100<<10))
		}
		synctest.Wait()
		a.Nudge()
		before := len(b.list("beat"))
		close(held)
		synctest.Wait()
		b.mu.Lock()
		defer b.mu.Unlock()
		frames, beats := 0, 0
		for _, e := range b.events {
			if strings.HasPrefix(e.text, "raft") {
				frames++
			}
			if strings.HasPrefix(e.text, "beat") {
				if beats++; beats == before+1 {
					break
				}
			}
		}
		if beats != before+1 || frames > 10 {
			t.Errorf("the heartbeat came after %d of 100 frames", frames)
		}
	})
}

func TestSilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.start(t, "a", 1), f.start(t, "b", 1)
		defer a.stop()
		defer b.stop()
		ended := make(chan time.Time, 1)
		b.call = func(ctx context.Context, _ wire.Hello, _ wire.Method, _ []byte) ([]byte, error) {
			<-ctx.Done()
			ended <- time.Now()
			return nil, ctx.Err()
		}
		a.SetPeers(map[string]string{"b": "http://b:1"})
		// Nothing but pings and heartbeats for a while.
		advance(time.Minute)
		if n := f.countDials(); n != 2 {
			t.Fatalf("%d connections in a quiet minute, want 2", n)
		}
		begin := time.Now()
		errs := make(chan error, 1)
		go func() {
			_, err := a.Call(t.Context(), "b", wire.MethodStatus, nil)
			errs <- err
		}()
		synctest.Wait()
		f.each("b:1", func(n *line) { n.cut = true })
		err := <-errs
		if d := time.Since(begin); !errors.Is(err, peer.ErrBroken) || d < 2*time.Second || d > 4*time.Second {
			t.Errorf("after %s on a dead line: %v", d, err)
		}
		synctest.Wait()
		if down := a.list("down b"); len(down) != 1 {
			t.Errorf("a was told %v", down)
		}
		// The other end finds out too, though nobody told it.
		if d := (<-ended).Sub(begin); d > 12*time.Second {
			t.Errorf("the handler was cancelled after %s", d)
		}
	})
}

func TestStopEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.start(t, "a", 1), f.start(t, "b", 1)
		defer b.stop()
		returned := false
		a.call = func(ctx context.Context, _ wire.Hello, _ wire.Method, _ []byte) ([]byte, error) {
			<-ctx.Done()
			<-time.After(300 * time.Millisecond) // an answer that does not hurry
			returned = true
			return nil, ctx.Err()
		}
		b.call = func(ctx context.Context, _ wire.Hello, _ wire.Method, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		join(a, b)
		settle()
		errs := make(chan error, 2)
		go func() {
			_, err := a.Call(t.Context(), "b", wire.MethodStatus, nil)
			errs <- err
		}()
		go func() {
			_, err := b.Call(t.Context(), "a", wire.MethodStatus, nil)
			errs <- err
		}()
		synctest.Wait()
		a.stop()
		if !returned {
			t.Error("Run returned while an answer was under way")
		}
		for range 2 {
			if err := <-errs; !errors.Is(err, peer.ErrBroken) || errors.Is(err, context.Canceled) {
				t.Errorf("a pending call ended with %v", err)
			}
		}
		if _, err := a.Call(t.Context(), "b", wire.MethodStatus, nil); !errors.Is(err, peer.ErrUnreachable) {
			t.Errorf("a call after the end: %v", err)
		}
		if len(a.list("down")) != 0 {
			t.Error("a was told of losses while it stopped")
		}
	})
}

func TestSetPeers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.start(t, "a", 1), f.start(t, "b", 1)
		defer a.stop()
		defer b.stop()
		a.SetPeers(map[string]string{"b": "http://nowhere:1"})
		advance(30 * time.Second)
		begin := time.Now()
		a.SetPeers(map[string]string{"b": "http://b:1"})
		synctest.Wait()
		if !a.SendRaft("b", nil) || !time.Now().Equal(begin) {
			t.Error("the new address was not dialled at once")
		}
		// The same node under another address: the connections move.
		alias := f.listen("alias:1")
		f.mu.Lock()
		l := f.listeners["b:1"]
		delete(f.listeners, "b:1")
		f.listeners["alias:1"] = l
		f.mu.Unlock()
		defer func() { _ = alias.Close() }()
		a.SetPeers(map[string]string{"b": "http://alias:1"})
		synctest.Wait()
		settle()
		lines := 0
		f.each("alias:1", func(*line) { lines++ })
		if lines != 2 || !a.SendRaft("b", nil) {
			t.Errorf("%d connections to the new address, want 2", lines)
		}
		before := len(a.list("down"))
		a.SetPeers(nil)
		synctest.Wait()
		if len(a.list("down")) != before+1 {
			t.Error("a was not told that the connection to a removed peer ended")
		}
		if a.SendRaft("b", nil) {
			t.Error("a removed peer still has a connection")
		}
		dials := f.countDials()
		advance(10 * time.Second)
		if f.countDials() != dials {
			t.Error("a removed peer is still dialled")
		}
	})
}

func TestCallAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		a, b := f.start(t, "a", 1), f.start(t, "b", 5)
		defer a.stop()
		defer b.stop()
		who, _, err := a.CallAddress(t.Context(), "http://b:1", 0, nil)
		if err != nil || who.Incarnation.String() != "b.5.00000abc" || who.Disk != diskOf("b") {
			t.Errorf("%v answers, %v", who, err)
		}
		_, got, err := a.CallAddress(t.Context(), "http://b:1", wire.MethodFormProbe, []byte("list"))
		if err != nil || string(got) != "re list" {
			t.Errorf("answer %q, %v", got, err)
		}
		for _, address := range []string{"http://c:1", "http://c", "c:1", "https://b:1", "http://b:1:2"} {
			if _, _, bad := a.CallAddress(t.Context(), address, 0, nil); !errors.Is(bad, peer.ErrUnreachable) {
				t.Errorf("%s: %v", address, bad)
			}
		}
		b.call = func(ctx context.Context, _ wire.Hello, _ wire.Method, _ []byte) ([]byte, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		who, _, err = a.CallAddress(ctx, "http://b:1", wire.MethodStatus, nil)
		if who.Incarnation.Node != "b" || !errors.Is(err, peer.ErrBroken) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v, %v", who, err)
		}
	})
}

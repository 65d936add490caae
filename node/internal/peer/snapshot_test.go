package peer_test

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/node/internal/peer"
	"tidal/node/internal/wire"
)

// source returns parts one after the other.
func source(parts ...string) func() ([]byte, error) {
	return func() ([]byte, error) {
		if len(parts) == 0 {
			return nil, io.EOF
		}
		part := parts[0]
		parts = parts[1:]
		return []byte(part), nil
	}
}

// takes makes a node take snapshots with f.
func takes(f func(ctx context.Context, from wire.Hello, in *peer.Inbound) error) func(*peer.Options) {
	return func(o *peer.Options) { o.Snapshot = f }
}

// readAll takes a whole snapshot of so many parts.
func readAll(in *peer.Inbound, n int) (parts []string, err error) {
	for len(parts) < n {
		p, err := in.Next()
		if err != nil {
			return parts, err
		}
		parts = append(parts, string(p))
		if len(parts) == 1 {
			if err := in.Ready(); err != nil {
				return parts, err
			}
		}
	}
	return parts, nil
}

// TestShip carries snapshots: whole, refused at once and in the middle, and to
// nodes that are not there or take none.
func TestShip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		var got []string
		var from wire.Hello
		ended := make(chan struct{})
		refusal := error(nil)
		a := f.start(t, "a", 1)
		b := f.start(t, "b", 1, takes(func(_ context.Context, h wire.Hello, in *peer.Inbound) (err error) {
			from = h
			if got, err = readAll(in, 3); err != nil {
				return err
			}
			<-ended
			return refusal
		}))
		refused := f.start(t, "c", 1, takes(func(_ context.Context, _ wire.Hello, in *peer.Inbound) error {
			if _, err := in.Next(); err != nil {
				return err
			}
			return &api.Error{Code: api.CodeForbidden, Message: "not here"}
		}))
		none := f.start(t, "d", 1)
		for _, n := range []*node{a, b, refused, none} {
			defer n.stop()
		}
		join(a, b, refused, none)
		settle()
		done := make(chan error, 1)
		big := strings.Repeat("x", 3<<20)
		go func() { done <- a.Ship(t.Context(), "b", source("one", big, "three")) }()
		// However long it takes to make it safe, the two know that they live.
		advance(5 * time.Minute)
		select {
		case err := <-done:
			t.Fatalf("it ended before it was taken: %v", err)
		default:
		}
		ended <- struct{}{}
		if err := <-done; err != nil {
			t.Errorf("ship: %v", err)
		}
		if !slices.Equal(got, []string{"one", big, "three"}) || from.Incarnation.String() != "a.1.00000abc" {
			t.Errorf("%d parts came from %s", len(got), from.Incarnation)
		}
		refusal = errors.New("the disk is full")
		go func() { ended <- struct{}{} }()
		if err := a.Ship(t.Context(), "b", source("1", "2", "3")); err == nil || !strings.Contains(err.Error(), "the disk is full") {
			t.Errorf("refused at the end: %v", err)
		}
		err := a.Ship(t.Context(), "c", source("1", "2", "3"))
		if e, ok := errors.AsType[*api.Error](err); !ok || e.Code != api.CodeForbidden {
			t.Errorf("refused at once: %v", err)
		}
		if err := a.Ship(t.Context(), "d", source("1", "2")); err == nil {
			t.Error("a node that takes none took it")
		}
		if err := a.Ship(t.Context(), "e", source("1")); !errors.Is(err, peer.ErrUnreachable) {
			t.Errorf("to a node that nobody knows: %v", err)
		}
		broken := errors.New("the disk here")
		if err := a.Ship(t.Context(), "b", func() ([]byte, error) { return nil, broken }); !errors.Is(err, broken) {
			t.Errorf("a source that fails: %v", err)
		}
	})
}

// TestShipEnds breaks snapshots off: each side learns of it in bounded time.
func TestShipEnds(t *testing.T) {
	const silence = 20 * time.Second
	for _, test := range []struct {
		name   string
		within time.Duration
		do     func(f *fabric, a, b *node, cancel context.CancelFunc)
	}{
		{"the line is cut", silence + time.Second, func(f *fabric, _, _ *node, _ context.CancelFunc) {
			f.each("b:1", func(n *line) { n.cut = true })
		}},
		{"the line breaks", time.Second, func(f *fabric, _, _ *node, _ context.CancelFunc) {
			f.each("b:1", func(n *line) {
				for _, c := range n.ends {
					_ = c.Close()
				}
			})
		}},
		{"its sender gives up", time.Second, func(_ *fabric, _, _ *node, cancel context.CancelFunc) { cancel() }},
		{"the receiver stops", time.Second, func(_ *fabric, _, b *node, _ context.CancelFunc) { go b.stop() }},
		{"nothing more comes", silence + time.Second, func(*fabric, *node, *node, context.CancelFunc) {}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				received := make(chan error, 1)
				quick := func(o *peer.Options) { o.SnapshotSilence = silence }
				a := f.start(t, "a", 1, quick)
				b := f.start(t, "b", 1, quick, takes(func(_ context.Context, _ wire.Hello, in *peer.Inbound) error {
					_, err := readAll(in, 3)
					received <- err
					return err
				}))
				defer a.stop()
				defer b.stop()
				join(a, b)
				settle()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				sent := make(chan error, 1)
				parts := source("one", "two")
				go func() {
					sent <- a.Ship(ctx, "b", func() ([]byte, error) {
						p, err := parts()
						if errors.Is(err, io.EOF) {
							<-ctx.Done() // the third never comes
							return nil, ctx.Err()
						}
						return p, err
					})
				}()
				settle()
				test.do(f, a, b, cancel)
				begun := time.Now()
				if err := <-received; err == nil {
					t.Error("it was taken")
				}
				if took := time.Since(begun); took > test.within {
					t.Errorf("the receiver learns of it after %v", took)
				}
				cancel()
				if err := <-sent; err == nil {
					t.Error("it was sent")
				}
			})
		})
	}
}

// TestShipToDeafNode sends to a node that has stopped reading, or has died
// without a word: its sender gives up.
func TestShipToDeafNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		hold := make(chan struct{})
		a := f.start(t, "a", 1)
		b := f.start(t, "b", 1, takes(func(ctx context.Context, _ wire.Hello, in *peer.Inbound) error {
			if _, err := readAll(in, 1); err != nil {
				return err
			}
			select {
			case <-hold:
			case <-ctx.Done():
			}
			return net.ErrClosed
		}))
		defer a.stop()
		defer b.stop()
		defer close(hold)
		join(a, b)
		settle()
		begun := time.Now()
		big := strings.Repeat("x", 1<<20)
		if err := a.Ship(t.Context(), "b", source("one", big, big)); err == nil {
			t.Error("a node that reads nothing took it")
		}
		if took := time.Since(begun); took < 50*time.Second || took > 70*time.Second {
			t.Errorf("without progress it was given up after %v", took)
		}
		go func() {
			<-time.After(time.Second)
			f.each("b:1", func(n *line) { n.cut = true })
		}()
		begun = time.Now()
		if err := a.Ship(t.Context(), "b", source("one")); err == nil {
			t.Error("a node that died took it")
		}
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("without a word it was given up after %v", took)
		}
	})
}

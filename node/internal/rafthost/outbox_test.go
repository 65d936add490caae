package rafthost_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/store"
)

// sending is an outbox on the database of a replica with something in it, whose
// shipments the test carries.
type sending struct {
	*lone
	box  *rafthost.Outbox
	mu   sync.Mutex
	seen []string
}

// newSending returns one whose carrier is f, and a shipment to one of two nodes.
func newSending(t *testing.T, rate int64, f func(ctx context.Context, node string, next func() ([]byte, error)) error) (*sending, rafthost.Shipment) {
	t.Helper()
	s := &sending{lone: newLone(t, nowhere{})}
	b := s.db.NewBatch()
	for i := range 100 {
		b.Set(append(store.GroupKey(1, store.SubState), byte(i)), []byte(strings.Repeat("x", 64<<10)))
	}
	s.check(b.Commit(true))
	s.box = rafthost.NewOutbox(rafthost.OutboxOptions{
		DB: s.db, Rate: rate, Log: slog.New(slog.DiscardHandler),
		Carrier: func(ctx context.Context, node string, next func() ([]byte, error)) error {
			s.mu.Lock()
			s.seen = append(s.seen, node)
			s.mu.Unlock()
			return f(ctx, node, next)
		},
	})
	return s, rafthost.Shipment{Group: 1, From: 1, To: 2, Term: 9, Node: "b"}
}

// drain reads all parts, and returns their bytes.
func drain(next func() ([]byte, error)) (n int, err error) {
	for {
		part, err := next()
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
		n += len(part)
	}
}

// TestOutboxKeepsOrder ships while a shipment is under way: one at a time, in the
// order asked, one for each replica, each counted when it ends.
func TestOutboxKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		step := make(chan error)
		s, one := newSending(t, 1<<40, func(_ context.Context, _ string, next func() ([]byte, error)) error {
			if _, err := drain(next); err != nil {
				t.Errorf("a part: %v", err)
			}
			return <-step
		})
		h := rafthost.NewHost(s.stepper, 0)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.check(h.Run(ctx)) })
		wg.Go(func() { s.check(s.box.Run(ctx, h)) })
		for i := range 4 {
			next := one
			next.To, next.Node = uint64(i)+2, fmt.Sprint("n", i)
			s.box.Ship(next)
			synctest.Wait()
		}
		again := one
		again.To, again.Term, again.Node = 4, 10, "n2 again"
		s.box.Ship(again)
		if n := s.box.Waiting(); n != 4 {
			t.Errorf("%d shipments wait or are under way, want 4", n)
		}
		for i := range 4 {
			s.mu.Lock()
			if len(s.seen) != i+1 {
				t.Errorf("%d were begun, and %d have ended", len(s.seen), i)
			}
			s.mu.Unlock()
			end := error(nil)
			if i == 1 {
				end = errors.New("not taken")
			}
			step <- end
			synctest.Wait()
		}
		if want := []string{"n0", "n1", "n2 again", "n3"}; !slices.Equal(s.seen, want) {
			t.Errorf("sent to %q, want %q", s.seen, want)
		}
		taken, failed, bytes := s.box.Sent()
		if taken != 3 || failed != 1 || bytes < 4*100*64<<10 {
			t.Errorf("%d were taken, %d failed, %d bytes", taken, failed, bytes)
		}
		// A state that is of a later term than the leader who sends it never leaves.
		late := one
		late.Term = 0
		s.box.Ship(late)
		synctest.Wait()
		if _, failed, _ := s.box.Sent(); failed != 2 || len(s.seen) != 4 {
			t.Errorf("%d failed, %d left", failed, len(s.seen))
		}
		cancel()
		wg.Wait()
		s.check(s.db.Close())
	})
}

// TestOutboxKeepsToItsRate sends 6.4 MB at 1 MB a second.
func TestOutboxKeepsToItsRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := make(chan time.Duration, 1)
		s, one := newSending(t, 1_000_000, func(_ context.Context, _ string, next func() ([]byte, error)) error {
			begun := time.Now()
			_, err := drain(next)
			took <- time.Since(begun)
			return err
		})
		h := rafthost.NewHost(s.stepper, 0)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.check(h.Run(ctx)) })
		wg.Go(func() { s.check(s.box.Run(ctx, h)) })
		s.box.Ship(one)
		if d := <-took; d < 5*time.Second || d > 8*time.Second {
			t.Errorf("6.5 MB took %v at 1 MB a second", d)
		}
		cancel()
		wg.Wait()
		s.check(s.db.Close())
	})
}

// TestEveryEndIsReported fails shipments until one works: raft asks again after
// each, which it does only when it is told.
func TestEveryEndIsReported(t *testing.T) {
	f := newFabric(t, 1)
	f.logBytes = 64 << 10
	for _, n := range f.nodes {
		n.crash()
	}
	lead, follower, want := f.behind(1)
	for range 3 {
		for range 30 {
			if f.tick(); len(lead.owed) > 0 {
				break
			}
		}
		if len(lead.owed) != 1 {
			t.Fatalf("%d snapshots are owed", len(lead.owed))
		}
		s := lead.owed[0]
		f.ticks()
		if len(lead.owed) != 1 {
			t.Fatal("raft asks again before it was told of an end")
		}
		lead.owed = nil
		old := s
		old.Term--
		lead.stepper.ReportSnapshot(old, false) // of another term: means nothing
		f.ticks()
		if len(lead.owed) > 0 {
			t.Fatal("an end of another term's shipment counts")
		}
		lead.stepper.ReportSnapshot(s, false)
	}
	for len(lead.owed) == 0 {
		f.tick()
	}
	_, r := f.carry(lead)
	f.is("the install", r, nil)
	f.ticks()
	if got := follower.texts(1); !slices.Equal(got, want) {
		t.Errorf("the follower has %d texts, want %d", len(got), len(want))
	}
}

// receiving is a host whose replica of group 2 lacks what parts bring.
type receiving struct {
	*fabric
	follower *node
	host     *rafthost.Host
	receiver *rafthost.Receiver
	parts    [][]byte
}

func newReceiving(t *testing.T) *receiving {
	t.Helper()
	f := newFabric(t, 1)
	f.logBytes = 64 << 10
	for _, n := range f.nodes {
		n.crash()
	}
	lead, follower, _ := f.behind(1)
	for len(lead.owed) == 0 {
		f.tick()
	}
	r := &receiving{fabric: f, follower: follower, parts: lead.parts(lead.owed[0], rafthost.Sound)}
	left, err := follower.fs.Create("staging", vfs.WriteCategoryUnspecified)
	f.check(err)
	f.check(left.Close())
	r.receiver, err = rafthost.NewReceiver(rafthost.ReceiverOptions{DB: follower.db, Dir: "staging", Log: slog.New(slog.DiscardHandler)})
	f.check(err)
	if _, err := follower.fs.Stat("staging"); err == nil {
		t.Error("what a former life had staged is still there")
	}
	r.host, follower.hosted = rafthost.NewHost(follower.stepper, time.Hour), true
	return r
}

// TestReceiver takes snapshots one after the other, says how far it is, and keeps
// nothing of one that breaks off.
func TestReceiver(t *testing.T) {
	r := newReceiving(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { r.check(r.host.Run(ctx)) })
	feed := make(chan []byte)
	next := func() ([]byte, error) {
		p, ok := <-feed
		if !ok {
			return nil, io.ErrUnexpectedEOF
		}
		return p, nil
	}
	turn := make(chan struct{})
	ready := func() error { turn <- struct{}{}; return nil }
	ended := make(chan error, 2)
	receive := func(next func() ([]byte, error), ready func() error) {
		wg.Go(func() { ended <- r.receiver.Receive(ctx, "n1", r.host, next, ready) })
	}
	receive(next, ready)
	feed <- r.parts[0]
	<-turn
	if part, on := r.receiver.Progress(1); !on || part != 0 {
		t.Errorf("at first it says %v, %t", part, on)
	}
	feed <- r.parts[1]
	// The part is taken a moment after it is handed over.
	deadline := time.Now().Add(10 * time.Second)
	for part, on := r.receiver.Progress(1); part <= 0 || part >= 1; part, on = r.receiver.Progress(1) {
		if !on || time.Now().After(deadline) {
			t.Fatalf("then it says %v, %t", part, on)
		}
		runtime.Gosched()
	}
	// Another waits for its turn.
	whole := slices.Clone(r.parts)
	second := make(chan struct{})
	receive(func() ([]byte, error) {
		p := whole[0]
		whole = whole[1:]
		return p, nil
	}, func() error { close(second); return nil })
	select {
	case <-second:
		t.Error("two snapshots come at once")
	default:
	}
	close(feed)
	if err := <-ended; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("one that breaks off: %v", err)
	}
	<-second
	if err := <-ended; err != nil {
		t.Errorf("the second: %v", err)
	}
	if _, on := r.receiver.Progress(1); on || r.receiver.Taken() != 1 {
		t.Errorf("%d were taken; one on its way: %t", r.receiver.Taken(), on)
	}
	left, err := r.follower.fs.List("staging")
	if err == nil && len(left) > 0 {
		t.Errorf("still staged: %q", left)
	}
	cancel()
	wg.Wait()
	if n := len(r.follower.texts(1)); n != 41 {
		t.Errorf("the follower has %d texts", n)
	}
	if err := r.receiver.Receive(t.Context(), "n1", r.host, func() ([]byte, error) {
		p := r.parts[0]
		r.parts = r.parts[1:]
		return p, nil
	}, func() error { return nil }); !errors.Is(err, rafthost.ErrStopped) {
		t.Errorf("after the end of the host: %v", err)
	}
}

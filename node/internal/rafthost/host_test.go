package rafthost_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// lone is a stepper with group 1 of one voter, which leads it, and group 2 of
// three of which the others are away.
type lone struct {
	*testing.T
	db      *store.DB
	stepper *rafthost.Stepper
	machine *machine
}

type nowhere struct{}

func (nowhere) Send(string, []byte) {}

func newLone(t *testing.T, sender rafthost.Sender) *lone {
	t.Helper()
	l := &lone{T: t, machine: &machine{group: 1}}
	var err error
	l.db, err = store.Open("db", store.Options{FS: vfs.NewMem()})
	l.check(err)
	l.stepper, err = rafthost.NewStepper(rafthost.Options{DB: l.db, Sender: sender})
	l.check(err)
	l.check(l.stepper.Add(rafthost.GroupOptions{
		Group: 1, Replica: 1, Nodes: map[uint64]string{1: "a"}, Voters: []uint64{1}, Machine: l.machine,
	}))
	l.check(l.stepper.Add(rafthost.GroupOptions{
		Group: 2, Replica: 1, Nodes: map[uint64]string{1: "a", 2: "b", 3: "c"}, Voters: []uint64{1, 2, 3}, Machine: &machine{group: 2},
	}))
	l.stepper.Campaign(1)
	for l.stepper.Dirty() {
		l.check(l.stepper.Pass(0))
	}
	if p, ok := l.stepper.Progress(1); !ok || !p.Owns {
		t.Fatalf("the only voter is %+v", p)
	}
	return l
}

func (l *lone) check(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

// command is a proposal for machine.
func command(text string) (id [16]byte, data []byte) {
	copy(id[:], text)
	return id, append(id[:], text...)
}

type result struct {
	answer any
	err    error
}

func propose(ctx context.Context, h *rafthost.Host, text string) <-chan result {
	c := make(chan result, 1)
	id, data := command(text)
	go func() {
		a, err := h.Propose(ctx, 1, id, data)
		c <- result{a, err}
	}()
	return c
}

func TestHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLone(t, nowhere{})
		h := rafthost.NewHost(l.stepper, 0)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- h.Run(ctx) }()
		if r := <-propose(ctx, h, "one"); r.err != nil || r.answer != "one at 2" {
			t.Errorf("%v, %v", r.answer, r.err)
		}
		l.check(h.ReadIndex(ctx, 1))
		if err := h.ReadIndex(ctx, 2); !errors.Is(err, rafthost.ErrNotLeader) {
			t.Errorf("a read of a group that nobody leads: %v", err)
		}
		if _, err := h.Progress(ctx, 9); !errors.Is(err, rafthost.ErrNoGroup) {
			t.Errorf("progress of no group: %v", err)
		}
		if err := h.Transfer(ctx, 1, 1); !errors.Is(err, rafthost.ErrTransfer) {
			t.Errorf("a transfer to itself: %v", err)
		}
		if to, err := h.Level(ctx, 1, "b", 0); to != 0 || err != nil {
			t.Errorf("a node without a replica is level: %d, %v", to, err)
		}
		if h.Synced() == 0 || h.Passes() == 0 {
			t.Errorf("synced %d, %d passes", h.Synced(), h.Passes())
		}
		<-time.After(time.Second) // of the bubble: ticks go on
		if idle := h.Idle(); idle > 150*time.Millisecond {
			t.Errorf("the loop has not turned for %v", idle)
		}
		l.check(h.Remove(ctx, 1))
		if r := <-propose(ctx, h, "gone"); !errors.Is(r.err, rafthost.ErrNoGroup) {
			t.Errorf("a proposal to a group that was removed: %v", r.err)
		}
		cancel()
		l.check(<-ended)
		if r := <-propose(t.Context(), h, "late"); !errors.Is(r.err, rafthost.ErrStopped) {
			t.Errorf("a proposal after the end: %v", r.err)
		}
		if err := h.ReadIndex(t.Context(), 1); !errors.Is(err, rafthost.ErrStopped) {
			t.Errorf("a read after the end: %v", err)
		}
		<-time.After(time.Minute)
		if idle := h.Idle(); idle < time.Minute {
			t.Errorf("a loop that ended a minute ago turned %v ago", idle)
		}
		l.check(l.db.Close())
	})
}

// TestCallersDoNotWaitForever gives up while the loop does not run.
func TestCallersDoNotWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLone(t, nowhere{})
		h := rafthost.NewHost(l.stepper, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		p := propose(ctx, h, "x")
		if r := <-p; !errors.Is(r.err, rafthost.ErrUnknown) || !errors.Is(r.err, context.DeadlineExceeded) {
			t.Errorf("a proposal that ran out of time: %v", r.err)
		}
		if err := h.ReadIndex(ctx, 1); !errors.Is(err, rafthost.ErrNotLeader) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a read that ran out of time: %v", err)
		}
		if err := h.Transfer(ctx, 1, 2); !errors.Is(err, rafthost.ErrTransfer) {
			t.Errorf("a transfer that ran out of time: %v", err)
		}
		l.check(l.db.Close())
	})
}

// TestInboxIsBounded fills the inbox of a loop that does not turn, by bytes.
func TestInboxIsBounded(t *testing.T) {
	l := newLone(t, nowhere{})
	h := rafthost.NewHost(l.stepper, 0)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	id, big := [16]byte{1}, make([]byte, 8<<20)
	taken := 0
	for ; taken < 100; taken++ {
		if _, err := h.Propose(over, 9, id, big); errors.Is(err, rafthost.ErrBusy) {
			break
		}
	}
	if taken != 8 {
		t.Errorf("%d proposals of 8 MiB were taken in: the bound is 64 MiB", taken)
	}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- h.Run(ctx) }()
	l.check(h.ReadIndex(ctx, 1)) // the inbox was taken in
	if _, err := h.Propose(ctx, 9, id, big); !errors.Is(err, rafthost.ErrNoGroup) {
		t.Errorf("the bound does not come back: %v", err)
	}
	stop()
	l.check(<-ended)
	l.check(l.db.Close())
}

// TestPanicEndsTheHost has raft meet what it cannot survive: the disk is older than
// what it told. Run returns it as the disk's doing, and nobody waits for ever.
func TestPanicEndsTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLone(t, nowhere{})
		h := rafthost.NewHost(l.stepper, 0)
		m := message(pb.MsgHeartbeat, 2, 2, 1, 5)
		commit := uint64(100) // of entries that are not here
		m.Commit = &commit
		h.Deliver("b", 1, wire.AppendRaft(wire.NewRaftBatch(), 2, m.Message))
		waiting := propose(t.Context(), h, "waiting")
		synctest.Wait()
		err := h.Run(t.Context())
		want := "raft group 2: the data is damaged: the others know that entries up to 100 were acknowledged by this disk, and it has them up to "
		if !errors.Is(err, store.ErrDamaged) || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "goroutine") {
			t.Errorf("Run returned %v", err)
		}
		select {
		case r := <-waiting:
			if !errors.Is(r.err, rafthost.ErrUnknown) {
				t.Errorf("what waited got %v", r.err)
			}
		case <-time.After(time.Minute):
			t.Fatal("what waited waits for ever")
		}
		l.check(l.db.Close())
	})
}

// TestFailedApplyEndsTheHost fails a machine in the middle of a pass. A proposal
// that had just been applied must not be left waiting: its answer is lost.
func TestFailedApplyEndsTheHost(t *testing.T) {
	for name, fail := range map[string]func(m *machine){
		"panic": func(*machine) { panic("a broken machine") },
		"error": func(m *machine) { m.err = errors.New("a broken machine") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLone(t, nowhere{})
				l.machine.fail = func(text string) {
					if text == "boom" {
						fail(l.machine)
					}
				}
				h := rafthost.NewHost(l.stepper, 0)
				var waiting []<-chan result
				for _, text := range []string{"before", "boom", "after"} {
					waiting = append(waiting, propose(t.Context(), h, text))
					synctest.Wait()
				}
				if err := h.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "a broken machine") {
					t.Errorf("Run returned %v", err)
				}
				for i, c := range waiting {
					select {
					case r := <-c:
						if !errors.Is(r.err, rafthost.ErrUnknown) {
							t.Errorf("proposal %d got %v, %v", i, r.answer, r.err)
						}
					case <-time.After(time.Minute):
						t.Fatalf("proposal %d waits for ever", i)
					}
				}
				l.check(l.db.Close())
			})
		})
	}
}

// busy makes work for the host whenever it sends.
type busy struct{ h atomic.Pointer[rafthost.Host] }

func (b *busy) Send(string, []byte) {
	if h := b.h.Load(); h != nil {
		h.Campaign(2)
	}
}

// TestBusyLoopStillTicks keeps the loop from ever running out of work: it must
// see its ticks, look alive, and end when it is told to.
func TestBusyLoopStillTicks(t *testing.T) {
	s := &busy{}
	db, err := store.Open("db", store.Options{FS: vfs.NewMem()})
	if err != nil {
		t.Fatal(err)
	}
	owned := make(chan struct{}, 1)
	stepper, err := rafthost.NewStepper(rafthost.Options{DB: db, Sender: s, ElectionTicks: 3, Events: func(e rafthost.Event) {
		if e.Group == 1 && e.State.Owns {
			owned <- struct{}{}
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	for group, voters := range map[uint64][]uint64{1: {1}, 2: {1, 2, 3}} {
		o := rafthost.GroupOptions{Group: group, Replica: 1, Nodes: map[uint64]string{1: "a", 2: "b", 3: "c"}, Voters: voters, Machine: &machine{group: group}}
		if err := stepper.Add(o); err != nil {
			t.Fatal(err)
		}
	}
	h := rafthost.NewHost(stepper, time.Millisecond)
	s.h.Store(h)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- h.Run(ctx) }()
	h.Campaign(2) // it can never win, and makes more of it
	limit := time.After(20 * time.Second)
	select {
	case <-owned: // by the ticks alone
	case <-limit:
		t.Fatal("a busy loop does not tick")
	}
	if idle := h.Idle(); idle > 5*time.Second {
		t.Errorf("a busy loop looks as if it had not turned for %v", idle)
	}
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-limit:
		t.Fatal("a busy loop does not end")
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

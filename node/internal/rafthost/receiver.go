package rafthost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"tidal/node/internal/store"
)

// ReceiverOptions are what a Receiver needs.
type ReceiverOptions struct {
	DB  *store.DB
	Dir string // for what is staged: of nothing else, on the file system of the database
	Log *slog.Logger
	// Room returns an error if there is no room for a group's snapshot of so many
	// bytes; nil: there always is.
	Room func(group uint64, bytes int64) error
}

// Receiver takes the snapshots that other nodes send, one after the other in the
// order in which they came.
type Receiver struct {
	o     ReceiverOptions
	slots chan struct{}
	count atomic.Uint64 // names stages
	taken atomic.Uint64

	mu struct {
		sync.Mutex
		under map[uint64]progress // group
	}
}

type progress struct{ received, total uint64 }

// NewReceiver returns a Receiver, and removes what a former life had staged.
func NewReceiver(o ReceiverOptions) (*Receiver, error) {
	r := &Receiver{o: o, slots: make(chan struct{}, snapshotsAtOnce)}
	r.mu.under = map[uint64]progress{}
	return r, o.DB.RemoveFolder(o.Dir)
}

// Taken returns how many snapshots became the state of replicas here.
func (r *Receiver) Taken() uint64 { return r.taken.Load() }

// Progress returns which part of a group's snapshot is here, from 0 to 1, and
// whether one is on its way.
func (r *Receiver) Progress(group uint64) (float64, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, ok := r.mu.under[group]
	if !ok || p.total == 0 {
		return 0, ok
	}
	return min(float64(p.received)/float64(p.total), 1), true
}

func (r *Receiver) note(group uint64, p progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.under[group] = p
}

func (r *Receiver) forget(group uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.mu.under, group)
}

// Receive takes the snapshot whose parts next returns, and returns nil once it is
// the state of its replica here. It waits for its turn, calls ready, and reads all
// parts before raft hears of any. next fails when too long nothing comes.
func (r *Receiver) Receive(ctx context.Context, from string, h *Host, next func() ([]byte, error), ready func() error) (err error) {
	select {
	case r.slots <- struct{}{}:
		defer func() { <-r.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	first, err := next()
	if err != nil {
		return err
	}
	dir := filepath.Join(r.o.Dir, strconv.FormatUint(r.count.Add(1), 10))
	stage, err := NewStage(r.o.DB, dir, first, func(group, replica uint64) (Arriving, error) { return h.Arrive(ctx, group, replica) })
	if err != nil {
		return err
	}
	head := stage.Head()
	defer func() {
		r.forget(head.Group)
		err = errors.Join(err, stage.Drop())
		r.log(ctx, from, stage, err)
	}()
	if r.o.Room != nil {
		if err := r.o.Room(head.Group, int64(head.Bytes)); err != nil {
			return err
		}
	}
	r.note(head.Group, progress{0, head.Bytes})
	if err := ready(); err != nil {
		return err
	}
	for whole := false; !whole; {
		part, err := next()
		if err != nil {
			return fmt.Errorf("after %d of %d bytes: %w", stage.Received(), head.Bytes, err)
		}
		if whole, err = stage.Take(part); err != nil {
			return err
		}
		r.note(head.Group, progress{stage.Received(), head.Bytes})
	}
	if err := h.Install(ctx, stage); err != nil {
		return err
	}
	r.taken.Add(1)
	return nil
}

func (r *Receiver) log(ctx context.Context, from string, s *Stage, err error) {
	l := r.o.Log.With("group", s.head.Group, "from", from, "index", s.head.Index, "bytes", s.bytes)
	switch {
	case err == nil:
		l.InfoContext(ctx, "snapshot taken")
	case errors.Is(err, ErrUnwanted):
		l.DebugContext(ctx, "snapshot not wanted")
	default:
		l.WarnContext(ctx, "snapshot failed", "error", err.Error())
	}
}

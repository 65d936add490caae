package owner

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/store"
	"tidal/node/internal/table"
)

// How fast a replica is read for its digest, in bytes a second: for somebody who waits,
// and for nobody.
const (
	DigestRate = 64 << 20
	IdleRate   = 16 << 20
)

// looks are those who wait for a view of a replica at the next mark.
type looks struct {
	due uint64 // the mark that was applied last, until take; the loop's own
	mu  struct {
		sync.Mutex
		waiting []waiting
	}
}

// waiting is somebody who waits for a mark behind an entry.
type waiting struct {
	c      chan look
	behind uint64
}

// look is a view of a replica as an entry left it.
type look struct {
	index uint64
	view  *store.View
	err   error
}

// wait returns a channel that gets one look, at a mark behind an entry, and what ends
// the wait.
func (l *looks) wait(behind uint64) (<-chan look, func()) {
	c := make(chan look, 1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.waiting = append(l.mu.waiting, waiting{c, behind})
	return c, func() { l.leave(c) }
}

func (l *looks) leave(c chan look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, x := range l.mu.waiting {
		if x.c == c {
			l.mu.waiting = append(l.mu.waiting[:i], l.mu.waiting[i+1:]...)
			return
		}
	}
	if got := <-c; got.view != nil { // it came, and nobody took it
		_ = got.view.Close() // it was only read
	}
}

// reach notes that an entry without a command was applied, which is a mark.
func (l *looks) reach(index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.ContainsFunc(l.mu.waiting, func(w waiting) bool { return w.behind < index }) {
		l.due = index
	}
}

// take gives those who wait a view each, once the mark is in the database.
func (l *looks) take(db *store.DB, id api.TableID) {
	if l.due == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.waiting = slices.DeleteFunc(l.mu.waiting, func(w waiting) bool {
		if w.behind >= l.due {
			return false
		}
		view, err := table.View(db, id)
		w.c <- look{l.due, view, err}
		return true
	})
	l.due = 0
}

// Digest waits for the next mark behind all that the replica here has in its log, and
// returns its index and the hash of all that the replica had then, read at a rate. Two
// replicas that were asked before one mark, and applied the same entries, return the
// same. Errors: rafthost.ErrNoGroup, what ends ctx, and those of the disk.
func (t *Tables) Digest(ctx context.Context, id api.TableID, rate int) (index uint64, hash [32]byte, err error) {
	r := t.find(id)
	if r == nil {
		return 0, hash, rafthost.ErrNoGroup
	}
	// A follower may have a mark already, of an earlier check or of raft, and learn only
	// from the next one that it is committed.
	p, err := t.o.Host.Progress(ctx, uint64(id))
	if err != nil {
		return 0, hash, err
	}
	c, end := r.looks.wait(p.Last)
	select {
	case <-ctx.Done():
		end()
		return 0, hash, context.Cause(ctx)
	case got := <-c:
		if got.err != nil {
			return 0, hash, got.err
		}
		hash, err = table.HashView(got.view, pacer(ctx, rate))
		return got.index, hash, errors.Join(err, got.view.Close())
	}
}

// Mark puts a mark into the table's order: an entry without a command. Errors: those
// of rafthost.Host.Propose.
func (t *Tables) Mark(ctx context.Context, id api.TableID) error {
	_, err := t.o.Host.Propose(ctx, uint64(id), [16]byte{}, nil)
	return err
}

// pacer returns a function that is told of each part that was read, and keeps the
// rate. It fails once ctx has ended, also where the disk is the slower one.
func pacer(ctx context.Context, rate int) func(n int) error {
	began, done := time.Now(), 0
	return func(n int) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		done += n
		ahead := time.Duration(float64(done)/float64(rate)*float64(time.Second)) - time.Since(began)
		if ahead < 10*time.Millisecond {
			return nil
		}
		timer := time.NewTimer(ahead)
		defer timer.Stop()
		select {
		case <-timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

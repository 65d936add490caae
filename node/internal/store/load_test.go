package store_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tidal/node/internal/store"
)

// journal is what the database logs.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) has(text string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.b.String(), text)
}

// loaded is a database whose flushes stop at a gate, and that is looked at.
type loaded struct {
	*testing.T
	db    *store.DB
	log   journal
	gate  chan struct{} // closed: flushes go on
	eased atomic.Int64
	n     int
}

func newLoaded(t *testing.T) *loaded {
	t.Helper()
	l := &loaded{T: t, gate: make(chan struct{})}
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			<-l.gate
		}
		return nil
	}))
	var err error
	l.db, err = store.Open("db", store.Options{FS: fs, Log: slog.New(slog.NewTextHandler(&l.log, nil))})
	check(t, err)
	t.Cleanup(func() { check(t, l.db.Close()) })
	return l
}

// watch looks at the load until the test ends.
func (l *loaded) watch() {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- l.db.WatchLoad(ctx, func() { l.eased.Add(1) }) }()
	l.Cleanup(func() {
		stop()
		check(l.T, <-ended)
	})
}

// write writes a quarter of a MiB.
func (l *loaded) write() {
	l.Helper()
	l.n++
	b := l.db.NewBatch()
	b.Set(fmt.Appendf(nil, "k%06d", l.n), make([]byte, 256<<10))
	check(l.T, b.Commit(false))
}

// until looks until the load is as wanted.
func (l *loaded) until(want store.Load) {
	l.Helper()
	t := time.NewTicker(time.Millisecond)
	defer t.Stop()
	deadline := time.After(20 * time.Second)
	for l.db.Load() != want {
		select {
		case <-t.C:
		case <-deadline:
			l.Fatalf("the load is %d, want %d", l.db.Load(), want)
		}
	}
}

// TestLoadComesBeforeAStall writes while no flush ends: the load rises before
// anybody has to wait for pebble, with room for what is under way, and falls by
// itself. Who writes on all the same has to wait.
func TestLoadComesBeforeAStall(t *testing.T) {
	const pass = 56 << 20 // the most that one pass of the raft loop writes, in two batches
	l := newLoaded(t)
	l.watch()
	for l.db.Load() == store.LoadLight {
		l.write()
	}
	heavy := l.n
	for l.db.Load() == store.LoadHeavy {
		l.write()
	}
	full := l.n
	t.Logf("heavy after %d KiB, full after %d KiB", heavy*256, full*256)
	if heavy*256 < 32<<10 {
		t.Error("writes are refused though the database has hardly anything to do")
	}
	for range pass / (256 << 10) {
		l.write()
	}
	if l.log.has("writes stall") {
		t.Fatal("a pass that began had to wait for pebble")
	}
	waits := make(chan struct{})
	go func() {
		for range 400 {
			l.write()
		}
		close(waits)
	}()
	for !l.log.has("writes stall") {
		select {
		case <-waits:
			t.Fatal("nobody ever has to wait for pebble: this test sees nothing")
		case <-time.After(time.Millisecond):
		}
	}
	close(l.gate)
	<-waits
	l.until(store.LoadLight)
	if l.eased.Load() == 0 {
		t.Error("nobody was told that the load has become less")
	}
}

// TestLoadWithoutALook: when whoever looks is held up, what was written counts.
func TestLoadWithoutALook(t *testing.T) {
	l := newLoaded(t)
	defer close(l.gate)
	for l.db.Load() != store.LoadFull {
		if l.write(); l.n*256 > 64<<10 {
			t.Fatal("the load is not full after 64 MiB")
		}
	}
	if l.log.has("writes stall") {
		t.Fatal("somebody had to wait for pebble")
	}
}

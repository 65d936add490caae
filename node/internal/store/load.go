package store

import (
	"context"
	"sync/atomic"
	"time"
)

// Load says how far the database is behind its disk.
type Load int32

// The loads. Pebble itself makes writers wait above stopBytes and stopSublevels;
// nobody is to find out.
const (
	LoadLight Load = iota
	LoadHeavy      // no more work should be taken
	LoadFull       // one more batch might have to wait
)

// Bounds on what is in memory and not in tables yet, and on the depth of the first
// level, which flushes make deeper and compactions do not.
const (
	memtableBytes  = 16 << 20
	heavyBytes     = 4 * memtableBytes
	fullBytes      = 6 * memtableBytes
	stopMemtables  = 10
	heavySublevels = 20
	fullSublevels  = 26
	stopSublevels  = 32

	loadLook  = 20 * time.Millisecond // between two looks while the load is not light
	loadBytes = 1 << 20               // that are written between two looks while it is
	noteLook  = 10 * time.Second      // between two looks whether the manifest is noted
)

// load is the gauge of a database's load. Somebody else than the writers looks at
// the database: it may make those wait who ask, too.
type load struct {
	unseen atomic.Int64 // bytes written since the last look began
	seen   atomic.Int32 // the load that the last look found
	wake   chan struct{}
}

func (l *load) wrote(bytes int) {
	if n := l.unseen.Add(int64(bytes)); n >= loadBytes && n-int64(bytes) < loadBytes {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// Load returns how far the database is behind. It never waits. If nobody has looked
// while much was written, that is a load of its own.
func (d *DB) Load() Load {
	seen := Load(d.load.seen.Load())
	switch n := d.load.unseen.Load(); {
	case n >= fullBytes-heavyBytes:
		return LoadFull
	case n >= memtableBytes:
		return max(seen, LoadHeavy)
	}
	return seen
}

// WatchLoad looks at the database until ctx ends, and calls eased when the load has
// become less.
func (d *DB) WatchLoad(ctx context.Context, eased func()) error {
	t, notes := time.NewTicker(loadLook), time.NewTicker(noteLook)
	t.Stop()
	defer t.Stop()
	defer notes.Stop()
	for was := LoadLight; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-notes.C:
			if err := d.note(); err != nil {
				return err
			}
			continue
		case <-d.load.wake:
		case <-t.C:
		}
		d.load.unseen.Store(0)
		now := d.measure()
		d.load.seen.Store(int32(now))
		switch {
		case now < was:
			eased()
			if now == LoadLight {
				t.Stop()
			}
		case was == LoadLight && now > was:
			t.Reset(loadLook)
		}
		was = now
	}
}

// measure asks the database what it owes its disk.
func (d *DB) measure() Load {
	m := d.db.Metrics()
	deep := int(m.Levels[0].Sublevels)
	switch {
	case m.MemTable.Size >= fullBytes || deep >= fullSublevels:
		return LoadFull
	case m.MemTable.Size >= heavyBytes || deep >= heavySublevels:
		return LoadHeavy
	}
	return LoadLight
}

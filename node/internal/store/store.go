package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Format is the version of the layout that this binary writes and the newest
// that it reads.
const Format = 1

// pebbleFormat is the database's own format. It is a constant, never the newest
// that the library knows, so that a release that goes back finds data it can
// read; it rises only with the cluster's feature level.
const pebbleFormat = pebble.FormatWALSyncChunks

// filterBits is what the filters of a file take for each key.
const filterBits = 10

// ErrStop ends a Scan early without an error.
var ErrStop = errors.New("stop the scan")

// Options of a database.
type Options struct {
	FS    vfs.FS       // nil: the real disk
	Log   *slog.Logger // nil: nothing is logged
	Fatal func(error)  // called once when the disk can no longer be trusted, mostly with a *DiskError; nil: ignored
	// CacheBytes bounds the cache of table blocks; 0: 64 MiB.
	CacheBytes int64
	ReadOnly   bool // change nothing on the disk; there must be a database
	// NoSpace is called when something that writes found no space, and makes some if it can:
	// all else that writes waits for it, and then that is tried once more. nil: it is not.
	NoSpace func()
}

// DB is a node's database. Its methods may be called from any goroutine.
type DB struct {
	db     *pebble.DB
	events *events
	fs     vfs.FS
	load   load
	noted  atomic.Pointer[extent] // of the manifest: what the database knows of it
}

// Open opens the database in dir, or makes a new one there. It refuses data of a
// format newer than Format. Once Fatal was called, no method may ever return, and
// neither may Open.
func Open(dir string, o Options) (*DB, error) {
	if o.FS == nil {
		o.FS = vfs.Default
	}
	ev := &events{log: o.Log, fatal: o.Fatal}
	disk := o.FS
	if o.NoSpace != nil {
		disk = vfs.OnDiskFull(disk, o.NoSpace)
	}
	ev.disk = &watchedFS{FS: disk, tell: func(e *DiskError) { ev.die(e) }, told: o.Fatal != nil}
	if ev.log == nil {
		ev.log = slog.New(slog.DiscardHandler)
	}
	size := o.CacheBytes
	if size == 0 {
		size = 64 << 20
	}
	cache := pebble.NewCache(size)
	defer cache.Unref()
	po := &pebble.Options{
		Cache:                       cache,
		FS:                          ev.disk,
		FormatMajorVersion:          pebbleFormat,
		ReadOnly:                    o.ReadOnly,
		Logger:                      ev,
		MemTableSize:                memtableBytes,
		MemTableStopWritesThreshold: stopMemtables,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       stopSublevels,
		MaxOpenFiles:                4096,
	}
	for i := range po.Levels {
		po.Levels[i].FilterPolicy = bloom.FilterPolicy(filterBits)
	}
	po.EventListener = ev.listener()
	whole, err := wholeManifest(ev.disk, dir)
	if err != nil {
		return nil, fmt.Errorf("open the database in %s: %w", dir, err)
	}
	pdb, err := openPebble(dir, po, ev.disk)
	if err != nil {
		return nil, fmt.Errorf("open the database in %s: %w", dir, err)
	}
	d := &DB{db: pdb, events: ev, fs: ev.disk, load: load{wake: make(chan struct{}, 1)}}
	if err := d.checkManifest(dir, whole); err != nil {
		return nil, errors.Join(err, pdb.Close())
	}
	if err := d.checkFormat(o.ReadOnly); err != nil {
		return nil, errors.Join(err, pdb.Close())
	}
	return d, nil
}

// openPebble opens the database. Of damage that pebble does not expect it panics;
// it is damage all the same. Pebble does not say in which file it met it: that is
// the one that it was reading.
func openPebble(dir string, o *pebble.Options, disk *watchedFS) (db *pebble.DB, err error) {
	damaged := func(cause error) error {
		at := disk.wasReading()
		return &DiskError{Op: "check", Path: at.name, Offset: at.bytes, Err: fmt.Errorf("%w: %w", ErrDamaged, cause)}
	}
	defer func() {
		if r := recover(); r != nil {
			err = damaged(fmt.Errorf("%v", r))
		}
	}()
	db, err = pebble.Open(dir, o)
	if pebble.IsCorruptionError(err) {
		return db, damaged(err)
	}
	// What does not fit in pebble's own list of options is no corruption to it.
	_, system := errors.AsType[syscall.Errno](err)
	if err != nil && !system && strings.HasPrefix(filepath.Base(disk.wasReading().name), "OPTIONS-") {
		return db, damaged(err)
	}
	return db, err
}

func (d *DB) checkFormat(readOnly bool) error {
	v, found, err := d.Get(NodeKey(NodeFormat))
	switch {
	case err != nil:
		return fmt.Errorf("read the format's version: %w", err)
	case !found && readOnly:
		return errors.New("the format's version is not on the disk: a first start was cut short")
	case !found:
		b := d.NewBatch()
		b.Set(NodeKey(NodeFormat), binary.AppendUvarint(nil, Format))
		return b.Commit(true)
	}
	n, w := binary.Uvarint(v)
	if w <= 0 {
		return fmt.Errorf("the format's version on disk is damaged: %x", v)
	}
	return readable(n)
}

// Get returns the value of key, which is the caller's, and whether it exists.
func (d *DB) Get(key []byte) (value []byte, found bool, err error) {
	v, closer, err := d.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("read from the database: %w", err)
	}
	value = append(make([]byte, 0, len(v)), v...)
	if err := closer.Close(); err != nil {
		return nil, false, fmt.Errorf("read from the database: %w", err)
	}
	return value, true, nil
}

// Scan calls f for each key in [lo, hi) in order. The slices are f's only during
// the call. f may end the scan with ErrStop; another error ends it and is returned.
func (d *DB) Scan(lo, hi []byte, f func(key, value []byte) error) error {
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	if err != nil {
		return fmt.Errorf("scan the database: %w", err)
	}
	var ferr error
	for ok := it.First(); ok && ferr == nil; ok = it.Next() {
		ferr = f(it.Key(), it.Value())
	}
	if errors.Is(ferr, ErrStop) {
		ferr = nil
	}
	return errors.Join(ferr, it.Close())
}

// LastKey returns the last key in [lo, hi), which is the caller's, and whether
// there is one.
func (d *DB) LastKey(lo, hi []byte) (key []byte, found bool, err error) {
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	if err != nil {
		return nil, false, fmt.Errorf("scan the database: %w", err)
	}
	if found = it.Last(); found {
		key = append([]byte(nil), it.Key()...)
	}
	return key, found, it.Close()
}

// Groups returns the groups that have anything on this disk, in order.
func (d *DB) Groups() ([]uint64, error) {
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: []byte{spaceGroup}, UpperBound: []byte{spaceGroup + 1}})
	if err != nil {
		return nil, fmt.Errorf("scan the database: %w", err)
	}
	var out []uint64
	for ok := it.First(); ok; {
		group := binary.BigEndian.Uint64(it.Key()[1:])
		out = append(out, group)
		_, next := GroupRange(group)
		ok = it.SeekGE(next)
	}
	return out, it.Close()
}

// Flush has what is in memory and the log alone written into tables, so that the next
// Open has little of the log to read. It waits only where a Commit would; the channel is
// closed when all is written, and never if the disk fails.
func (d *DB) Flush() (done <-chan struct{}, err error) {
	done, err = d.db.AsyncFlush()
	if err != nil {
		return nil, fmt.Errorf("flush the database: %w", err)
	}
	return done, nil
}

// Close flushes and closes the database. All batches and scans must have ended.
func (d *DB) Close() error {
	if err := d.db.Close(); err != nil {
		return fmt.Errorf("close the database: %w", err)
	}
	return nil
}

// Batch is a set of changes that reaches the database whole or not at all. It is
// used by one goroutine and ends with Commit or Close.
type Batch struct {
	db  *DB
	b   *pebble.Batch
	err error
}

// NewBatch returns an empty batch.
func (d *DB) NewBatch() *Batch { return &Batch{db: d, b: d.db.NewBatch()} }

// Set gives key a value. Both are copied.
func (b *Batch) Set(key, value []byte) {
	if b.err == nil {
		b.err = b.b.Set(key, value, nil)
	}
}

// Delete removes key. It is copied.
func (b *Batch) Delete(key []byte) {
	if b.err == nil {
		b.err = b.b.Delete(key, nil)
	}
}

// DeleteRange removes the keys in [lo, hi). Both are copied.
func (b *Batch) DeleteRange(lo, hi []byte) {
	if b.err == nil {
		b.err = b.b.DeleteRange(lo, hi, nil)
	}
}

// Empty reports whether the batch has no changes.
func (b *Batch) Empty() bool { return b.b.Empty() }

// Commit applies the batch and ends it. With sync it returns once the batch, and
// all committed before it, are on the disk; without, a crash may lose it
// together with all committed after it. It returns the first error of the
// batch's own methods too.
func (b *Batch) Commit(sync bool) error { //nolint:revive // two methods would hide what they share
	if b.err != nil {
		return errors.Join(fmt.Errorf("fill a batch: %w", b.err), b.b.Close())
	}
	how, note := pebble.NoSync, (*extent)(nil)
	if sync {
		how, note = pebble.Sync, b.db.noteManifest(b)
	}
	b.db.load.wrote(b.b.Len())
	if err := b.b.Commit(how); err != nil {
		return errors.Join(fmt.Errorf("commit a batch: %w", err), b.b.Close())
	}
	if note != nil {
		b.db.noted.Store(note)
	}
	if err := b.b.Close(); err != nil {
		return fmt.Errorf("end a batch: %w", err)
	}
	return nil
}

// Cut applies what is in the batch so far, as Commit without sync does, and goes on
// with an empty one.
func (b *Batch) Cut() error {
	if err := b.Commit(false); err != nil {
		b.b = b.db.db.NewBatch() // for Close
		return err
	}
	b.b = b.db.db.NewBatch()
	return nil
}

// Close drops the batch unapplied.
func (b *Batch) Close() error { return b.b.Close() }

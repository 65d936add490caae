package store

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrDamaged is wrapped by errors that say that what is on the disk is not what
// was written there.
var ErrDamaged = errors.New("the data is damaged")

// DiskError is what a disk did wrong, and where.
type DiskError struct {
	Op     string // write, sync, read or check
	Path   string // of the file; "": unknown
	Offset int64  // in the file; below 0: unknown, or in Err's words
	Err    error
}

// Error says what went wrong where.
func (e *DiskError) Error() string {
	at := ""
	if e.Path != "" {
		at = " " + e.Path
	}
	if e.Offset >= 0 {
		at += fmt.Sprintf(" at byte %d", e.Offset)
	}
	return e.Op + at + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *DiskError) Unwrap() error { return e.Err }

// Full reports whether all that is wrong is that no space is left.
func (e *DiskError) Full() bool {
	return errors.Is(e.Err, syscall.ENOSPC) || errors.Is(e.Err, syscall.EDQUOT)
}

// watchedFS is a file system that notices what goes wrong on it. A sync or a read
// that fails is told at once: no later one, however well it goes, says anything
// about what the first one lost. A write that fails is remembered: whether it
// matters is for whoever wrote.
type watchedFS struct {
	vfs.FS

	tell     func(*DiskError)
	told     bool                   // somebody is told what goes wrong, and ends the process
	manifest atomic.Pointer[extent] // what was last synced of the database's list of files
	mu       struct {
		sync.Mutex
		write *DiskError // the first that failed
		read  extent     // how far the file was read that was last read in sequence

		marked, marks string // the manifest that a synced marker names, and the one that one not synced yet does
	}
}

// extent is how far something was done to a file.
type extent struct {
	name  string
	bytes int64
}

// wrote returns the first write that failed, or nil.
func (w *watchedFS) wrote() *DiskError {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.write
}

func (w *watchedFS) failedWrite(e *DiskError) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.mu.write == nil {
		w.mu.write = e
	}
}

// wasReading returns the file that was last read in sequence, and how far.
func (w *watchedFS) wasReading() extent {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.mu.read
}

func (w *watchedFS) reads(e extent) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.read = e
}

// current returns how far the manifest was synced, if a marker on the disk names it.
func (w *watchedFS) current() *extent {
	w.mu.Lock()
	defer w.mu.Unlock()
	if e := w.manifest.Load(); e != nil && e.name == w.mu.marked {
		return e
	}
	return nil
}

// Create implements vfs.FS.
func (w *watchedFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.Create(name, c)
	if mark, is := strings.CutPrefix(w.PathBase(name), "marker.manifest."); is && err == nil {
		_, of, _ := strings.Cut(mark, ".")
		w.mu.Lock()
		w.mu.marks = of
		w.mu.Unlock()
	}
	return w.watch(name, f, err)
}

// Open implements vfs.FS.
func (w *watchedFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := w.FS.Open(name, o...)
	return w.watch(name, f, err)
}

// OpenReadWrite implements vfs.FS.
func (w *watchedFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := w.FS.OpenReadWrite(name, c, o...)
	return w.watch(name, f, err)
}

// OpenDir implements vfs.FS.
func (w *watchedFS) OpenDir(name string) (vfs.File, error) {
	f, err := w.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &watchedDir{watchedFile{File: f, fs: w, name: name}}, nil
}

// ReuseForWrite implements vfs.FS.
func (w *watchedFS) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.ReuseForWrite(from, to, c)
	return w.watch(to, f, err)
}

// Unwrap implements vfs.FS.
func (w *watchedFS) Unwrap() vfs.FS { return w.FS }

func (w *watchedFS) watch(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &watchedFile{File: f, fs: w, name: name}, nil
}

// watchedFile is a file of a watchedFS. Of what it reads and writes in sequence
// it knows how far that has come.
type watchedFile struct {
	vfs.File

	fs   *watchedFS
	name string
	at   atomic.Int64
}

// watchedDir is a folder of a watchedFS.
type watchedDir struct{ watchedFile }

// Sync implements vfs.File. What was created in the folder before is there then.
func (d *watchedDir) Sync() error {
	d.fs.mu.Lock()
	marks := d.fs.mu.marks
	d.fs.mu.Unlock()
	err := d.watchedFile.Sync()
	if err != nil && d.fs.told {
		select {} // pebble would panic, mostly on a goroutine of its own; who was told ends the process
	}
	if err == nil {
		d.fs.mu.Lock()
		d.fs.mu.marked = marks
		d.fs.mu.Unlock()
	}
	return err
}

// Read implements vfs.File.
func (f *watchedFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	at := f.at.Add(int64(n))
	f.fs.reads(extent{f.name, at})
	return n, f.hasRead(at, err)
}

// ReadAt implements vfs.File.
func (f *watchedFile) ReadAt(p []byte, off int64) (int, error) {
	n, err := f.File.ReadAt(p, off)
	return n, f.hasRead(off+int64(n), err)
}

func (f *watchedFile) hasRead(at int64, err error) error {
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		f.fs.tell(&DiskError{Op: "read", Path: f.name, Offset: at, Err: err})
	}
	return err
}

// Write implements vfs.File.
func (f *watchedFile) Write(p []byte) (int, error) {
	n, err := f.File.Write(p)
	return n, f.hasWritten(f.at.Add(int64(n)), err)
}

// WriteAt implements vfs.File.
func (f *watchedFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(p, off)
	return n, f.hasWritten(off+int64(n), err)
}

func (f *watchedFile) hasWritten(at int64, err error) error {
	if err != nil {
		f.fs.failedWrite(&DiskError{Op: "write", Path: f.name, Offset: at, Err: err})
	}
	return err
}

// Sync implements vfs.File.
func (f *watchedFile) Sync() error { return f.hasSynced(f.File.Sync()) }

// SyncData implements vfs.File.
func (f *watchedFile) SyncData() error { return f.hasSynced(f.File.SyncData()) }

// SyncTo implements vfs.File.
func (f *watchedFile) SyncTo(length int64) (whole bool, err error) {
	whole, err = f.File.SyncTo(length)
	return whole, f.hasSynced(err)
}

func (f *watchedFile) hasSynced(err error) error {
	if err != nil {
		f.fs.tell(&DiskError{Op: "sync", Path: f.name, Offset: f.at.Load(), Err: err})
	} else if name := f.fs.PathBase(f.name); strings.HasPrefix(name, manifestPrefix) {
		f.fs.manifest.Store(&extent{name, f.at.Load()})
	}
	return err
}

package store

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// View is a range of the database as it was when the view was made. It is one
// iterator and not a snapshot of the database: an excise takes a range away from
// under a snapshot, and not from under an iterator. While it is open the files and
// memtables that it looks at are kept. It is used by one goroutine.
type View struct {
	it *pebble.Iterator
}

// View returns the range [lo, hi) as it is now.
func (d *DB) View(lo, hi []byte) (*View, error) {
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: lo, UpperBound: hi})
	if err != nil {
		return nil, fmt.Errorf("view the database: %w", err)
	}
	return &View{it: it}, nil
}

// Seek goes to the first key that is not before key, and reports whether there is
// one.
func (v *View) Seek(key []byte) bool { return v.it.SeekGE(key) }

// Next goes to the next key, and reports whether there is one.
func (v *View) Next() bool { return v.it.Next() }

// Key returns the key that the view is at, until it moves.
func (v *View) Key() []byte { return v.it.Key() }

// Value returns the value that the view is at, until it moves.
func (v *View) Value() []byte { return v.it.Value() }

// Err returns why the view could not move, if that is not its end.
func (v *View) Err() error { return v.it.Error() }

// Close lets go of what the view keeps.
func (v *View) Close() error { return v.it.Close() }

// File is a file of keys on its way to Ingest. Its methods are called by one
// goroutine.
type File struct {
	w    *sstable.Writer
	path string
}

// CreateFile begins a file outside the database, in the format that the database
// reads. Its folder must exist, on the same file system as the database.
func (d *DB) CreateFile(path string) (*File, error) {
	f, err := d.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	o := sstable.WriterOptions{
		TableFormat: pebbleFormat.MaxTableFormat(), FilterPolicy: bloom.FilterPolicy(filterBits), FilterType: sstable.TableFilter,
	}
	return &File{w: sstable.NewWriter(objstorageprovider.NewFileWritable(f), o), path: path}, nil
}

// Set adds a key, which must come after all that were added before.
func (f *File) Set(key, value []byte) error {
	if err := f.w.Set(key, value); err != nil {
		return fmt.Errorf("write %s: %w", f.path, err)
	}
	return nil
}

// Path returns where the file is.
func (f *File) Path() string { return f.path }

// Close ends the file. It is on the disk for certain when Close returns.
func (f *File) Close() error {
	if err := f.w.Close(); err != nil {
		return fmt.Errorf("finish %s: %w", f.path, err)
	}
	return nil
}

// Ingest puts what is in files in place of all that the database has in [lo, hi),
// at once, and returns when that is on the disk for certain: after a crash the
// range is the old or the new one, whole. The files' keys lie in the range and do
// not overlap. The files are gone afterwards, unless there was an error.
func (d *DB) Ingest(lo, hi []byte, files []string) error {
	ctx := context.Background() //nolint:forbidigo // an ingest that began is not given up
	_, err := d.db.IngestAndExcise(ctx, files, nil, nil, pebble.KeyRange{Start: lo, End: hi})
	if err != nil {
		return fmt.Errorf("ingest %d files: %w", len(files), err)
	}
	return nil
}

// MakeFolder makes a folder beside the database, with its parents.
func (d *DB) MakeFolder(path string) error {
	if err := d.fs.MkdirAll(path, 0o700); err != nil {
		return fmt.Errorf("make the folder %s: %w", path, err)
	}
	return nil
}

// RemoveFolder removes a folder and all in it, if it is there.
func (d *DB) RemoveFolder(path string) error {
	if err := d.fs.RemoveAll(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove the folder %s: %w", path, err)
	}
	return nil
}

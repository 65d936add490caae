package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/atomicfs"
)

// The manifest is the database's list of its files. When its end is damaged pebble
// takes it for torn and goes on with what stood before, silently: whole tables are
// gone then, though the newest rows are there. So the database itself keeps how far
// the list was synced, in the next batch that is. What is whole of it must reach as
// far.

const manifestPrefix = "MANIFEST-"

// noteManifest adds to a batch that will be synced how far the manifest is, if the
// database does not know yet.
func (d *DB) noteManifest(b *Batch) *extent {
	now := d.events.disk.current()
	if now == nil || now == d.noted.Load() {
		return nil
	}
	b.Set(NodeKey(NodeManifest), appendExtent(nil, *now))
	return now
}

// note writes how far the manifest is when nobody else writes.
func (d *DB) note() error {
	if now := d.events.disk.current(); now == nil || now == d.noted.Load() || d.Load() != LoadLight {
		return nil
	}
	return d.NewBatch().Commit(true)
}

// wholeManifest returns how far the manifest in dir is whole; nil if there is none.
func wholeManifest(disk vfs.FS, dir string) (*extent, error) {
	name, err := atomicfs.ReadMarker(disk, dir, "manifest")
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, nil //nolint:nilnil // there is no database
	case err != nil:
		return nil, fmt.Errorf("look for the list of files: %w", err)
	case name == "":
		return nil, isNew(disk, dir)
	}
	f, err := disk.Open(disk.PathJoin(dir, name))
	if err != nil {
		return nil, fmt.Errorf("open the list of files: %w", err)
	}
	n, err := wholeRecords(f)
	return &extent{name, n}, errors.Join(err, f.Close())
}

// isNew returns an error if a folder without a manifest has a database's files: pebble
// would begin anew among them.
func isNew(disk vfs.FS, dir string) error {
	names, err := disk.List(dir)
	if err != nil {
		return fmt.Errorf("look for the list of files: %w", err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".log") {
			return &DiskError{
				Op: "check", Path: disk.PathJoin(dir, "marker.manifest"), Offset: -1,
				Err: fmt.Errorf("%w: it is missing, and %s is there", ErrDamaged, name),
			}
		}
	}
	return nil
}

// wholeRecords returns how many bytes of a file are whole records.
func wholeRecords(f vfs.File) (int64, error) {
	r := record.NewReader(f, 0)
	for {
		at := r.Offset()
		one, err := r.Next()
		if errors.Is(err, io.EOF) {
			s, unknown := f.Stat()
			if unknown != nil {
				return 0, unknown
			}
			return s.Size(), nil
		}
		if err == nil {
			_, err = io.Copy(io.Discard, one)
		}
		if err != nil {
			return at, nil //nolint:nilerr // it is the answer: what follows is damaged, or torn
		}
	}
}

// checkManifest holds what was whole of the manifest when the database was opened
// against what was synced of it. A newer manifest than the one that the database
// knows is one that it had no time to note; an older one has come back.
func (d *DB) checkManifest(dir string, whole *extent) error {
	v, found, err := d.Get(NodeKey(NodeManifest))
	if err != nil || !found || whole == nil {
		return err
	}
	synced, ok := readExtent(v)
	if !ok {
		return fmt.Errorf("%w: the note of the list of files: %x", ErrDamaged, v)
	}
	var why error
	switch {
	case synced.name == whole.name && whole.bytes < synced.bytes:
		why = fmt.Errorf("%d bytes of it were synced, and it is whole up to here: tables are missing", synced.bytes)
	case older(whole.name, synced.name):
		why = fmt.Errorf("it is the list of files, and %s took its place", synced.name)
	default:
		return nil
	}
	return &DiskError{Op: "check", Path: d.fs.PathJoin(dir, whole.name), Offset: whole.bytes, Err: fmt.Errorf("%w: %w", ErrDamaged, why)}
}

// older reports whether a manifest comes before another: their names end in numbers
// that have leading zeros, up to a size.
func older(a, b string) bool { return len(a) < len(b) || len(a) == len(b) && a < b }

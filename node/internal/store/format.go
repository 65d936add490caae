package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// NewerError says that data is of a format that this binary does not know.
type NewerError uint64

// Error implements error.
func (e NewerError) Error() string {
	return fmt.Sprintf("the data is of format %d, this binary reads up to format %d: run the release that wrote it, or a newer one", uint64(e), Format)
}

// WriteFormat notes at path which format the database beside it has: a binary
// that is about to take a node over can read that while the database is open.
// The database holds its own number too, for a binary that can open it.
func WriteFormat(disk vfs.FS, path string) error { return WriteNote(disk, path, Format) }

// CheckFormat returns an error if this binary cannot read what WriteFormat of
// another one noted at path. Nothing there is no error.
func CheckFormat(disk vfs.FS, path string) error {
	n, found, err := ReadNote(disk, path)
	if err != nil || !found {
		return err
	}
	return readable(n)
}

// WriteNote writes a number into a file of its own, as a whole or not at all.
func WriteNote(disk vfs.FS, path string, n uint64) error {
	return WriteFile(disk, path, fmt.Appendf(nil, "%d\n", n))
}

// WriteFile puts content into the file at path, as a whole or not at all, whatever
// happens meanwhile. When it returns without an error that is on the disk for certain.
func WriteFile(disk vfs.FS, path string, content []byte) error {
	next := path + ".next"
	f, err := disk.Create(next, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	_, err = f.Write(content)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = disk.Rename(next, path)
	}
	if err == nil {
		err = syncFolder(disk, disk.PathDir(path))
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// syncFolder has what was renamed in a folder outlive a crash.
func syncFolder(disk vfs.FS, path string) error {
	d, err := disk.OpenDir(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ReadNote reads what WriteNote wrote; found is false if there is no such file.
func ReadNote(disk vfs.FS, path string) (n uint64, found bool, err error) {
	f, err := disk.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, fmt.Errorf("read %s: %w", path, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err = errors.Join(err, f.Close()); err != nil {
		return 0, false, fmt.Errorf("read %s: %w", path, err)
	}
	if n, err = strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err != nil {
		return 0, false, fmt.Errorf("the number in %s is damaged: %q", path, text)
	}
	return n, true, nil
}

// readable returns an error if this binary does not know format n.
func readable(n uint64) error {
	if n <= Format {
		return nil
	}
	return NewerError(n)
}

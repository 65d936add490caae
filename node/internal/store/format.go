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
func WriteFormat(disk vfs.FS, path string) error {
	f, err := disk.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("note the format: %w", err)
	}
	_, err = fmt.Fprintf(f, "%d\n", Format)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("note the format: %w", err)
	}
	return nil
}

// CheckFormat returns an error if this binary cannot read what WriteFormat of
// another one noted at path. Nothing there is no error.
func CheckFormat(disk vfs.FS, path string) error {
	f, err := disk.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the format's version: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(f, 32))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("read the format's version: %w", err)
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	if err != nil {
		return fmt.Errorf("the format's version in %s is damaged: %q", path, text)
	}
	return readable(n)
}

// readable returns an error if this binary does not know format n.
func readable(n uint64) error {
	if n <= Format {
		return nil
	}
	return NewerError(n)
}

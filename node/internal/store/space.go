package store

import (
	"errors"
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Space is what a file system has, in bytes.
type Space struct{ Free, Total int64 }

// SpaceOf returns the space of the file system that dir is on. known is false if
// the file system does not say.
func SpaceOf(disk vfs.FS, dir string) (s Space, known bool, err error) {
	u, err := disk.GetDiskUsage(dir)
	switch {
	case errors.Is(err, vfs.ErrUnsupported):
		return Space{}, false, nil
	case err != nil:
		return Space{}, false, fmt.Errorf("look for free space at %s: %w", dir, err)
	}
	return Space{Free: int64(u.AvailBytes), Total: int64(u.TotalBytes)}, true, nil
}

// Ballast is a file of nothing: deleting it makes room on a disk that has none.
type Ballast struct {
	Disk vfs.FS
	Path string
	Size int64
}

// There reports whether the file is there, whole.
func (b Ballast) There() bool {
	s, err := b.Disk.Stat(b.Path)
	return err == nil && s.Size() >= b.Size
}

// Fill makes the file. After an error nothing of it is left.
func (b Ballast) Fill() error {
	if b.Size == 0 || b.There() {
		return nil
	}
	f, err := b.Disk.OpenReadWrite(b.Path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("make the ballast: %w", err)
	}
	if err = b.fill(f); err != nil {
		return errors.Join(fmt.Errorf("make the ballast: %w", err), f.Close(), b.remove())
	}
	return f.Close()
}

// fill takes the space at once, where the file system can, and by writing where it
// cannot. The last byte says that all of it is there.
func (b Ballast) fill(f vfs.File) error {
	if f.Preallocate(0, b.Size) != nil {
		zeros := make([]byte, 1<<20)
		for at := int64(0); at < b.Size; at += int64(len(zeros)) {
			if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), b.Size-at)], at); err != nil {
				return err
			}
		}
	}
	_, err := f.WriteAt([]byte{0}, b.Size-1)
	return err
}

// Drop deletes the file, and reports whether it was there.
func (b Ballast) Drop() (dropped bool, err error) {
	if _, err := b.Disk.Stat(b.Path); err != nil {
		return false, nil //nolint:nilerr // it is not there
	}
	return true, b.remove()
}

func (b Ballast) remove() error {
	if err := b.Disk.Remove(b.Path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("delete the ballast: %w", err)
	}
	return nil
}

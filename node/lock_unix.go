//go:build unix

package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// lockFile is what is locked of a data directory.
const lockFile = "LOCK.tidal"

// directoryLock is a held data directory.
type directoryLock struct{ f *os.File }

// Close gives the directory back. The unlock is said aloud: a child that is just
// being forked holds a copy of the descriptor until its exec.
func (l *directoryLock) Close() error {
	return errors.Join(syscall.Flock(int(l.f.Fd()), syscall.LOCK_UN), l.f.Close())
}

// lockDirectory makes the data directory if need be and holds it against other
// processes until the file is closed. It is a lock of our own, by flock(2):
// pebble's does not survive an exec, and this one must. inherited is the file of
// the incarnation before, which holds the lock, or nil; it is the lock's from now
// on, or closed.
func lockDirectory(dir string, inherited *os.File) (*directoryLock, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil { //nolint:forbidigo // the lock is the kernel's, not the store's
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	path := filepath.Join(dir, lockFile)
	f, err := openLock(path, inherited)
	if err != nil {
		return nil, fmt.Errorf("lock the data directory: %w", err)
	}
	if err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, errors.Join(heldBy(f, dir, err), f.Close())
	}
	err = errors.Join(f.Truncate(0), writePID(f))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the data directory: %w", err), f.Close())
	}
	return &directoryLock{f}, nil
}

// heldBy says which process has a data directory.
func heldBy(f *os.File, dir string, why error) error {
	holder := make([]byte, 32)
	n, _ := f.Read(holder) // who it is helps, and is not needed
	return fmt.Errorf("%w: %s by process %s: %w", ErrLocked, dir, holder[:n], why)
}

// openLock opens the lock's file, unless the inherited one is it.
func openLock(path string, inherited *os.File) (*os.File, error) {
	if inherited != nil {
		held, err1 := inherited.Stat()
		there, err2 := os.Stat(path)
		if err1 == nil && err2 == nil && os.SameFile(held, there) {
			return inherited, nil
		}
		if err := inherited.Close(); err != nil { // of another directory
			return nil, err
		}
	}
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600) //nolint:forbidigo // the lock is the kernel's, not the store's
}

func writePID(f *os.File) error {
	_, err := f.WriteAt(fmt.Append(nil, os.Getpid()), 0)
	return err
}

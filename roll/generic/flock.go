package generic

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes the lock of an open file, or returns errHeld.
func lockFile(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errHeld
	}
	return err
}

// unlockFile gives it back aloud: a child that is just being forked holds a copy of
// the descriptor until its exec.
func unlockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

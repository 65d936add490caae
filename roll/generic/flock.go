package generic

import (
	"errors"
	"os"
	"syscall"
)

// lockFile takes the lock of an open file, or returns errHeld.
func lockFile(f *os.File) error { return flock(f, syscall.LOCK_EX) }

// lookAtLock returns errHeld if somebody has the lock of an open file. Any number may
// look at once, and find what they would have found alone; who takes the lock meanwhile
// has to try again.
func lookAtLock(f *os.File) error {
	err := flock(f, syscall.LOCK_SH)
	if err == nil {
		err = unlockFile(f)
	}
	return err
}

func flock(f *os.File, how int) error {
	err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errHeld
	}
	return err
}

// unlockFile gives it back aloud: a child that is just being forked holds a copy of
// the descriptor until its exec.
func unlockFile(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_UN) }

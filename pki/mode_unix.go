//go:build unix

package pki

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// checkMode refuses a key that others can read. A group may read it if root or
// this user owns the file: that is how Kubernetes mounts a secret with fsGroup.
func checkMode(path string, info fs.FileInfo) error {
	mode := info.Mode().Perm()
	if mode&0o007 != 0 {
		return badFile(path, "chmod 600 "+path, "others than its owner can use this private key (mode %04o)", mode)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && mode&0o070 != 0 && st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return badFile(path, "chmod 600 "+path, "a group can use this private key (mode %04o), and its owner is neither root nor the user of this process", mode)
	}
	return nil
}

// dirLock is a held directory.
type dirLock struct{ f *os.File }

// Close gives the directory back. The unlock is said aloud: a child that another
// goroutine is just forking holds a copy of the descriptor until its exec.
func (l dirLock) Close() error {
	return errors.Join(syscall.Flock(int(l.f.Fd()), syscall.LOCK_UN), l.f.Close())
}

// lock holds a directory for this process until the returned lock is closed,
// also by the end of the process.
func lock(dir string) (io.Closer, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, fileError(dir, err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return dirLock{f}, nil
	}
	f.Close() //nolint:errcheck,gosec // nothing was written
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, &Error{Kind: KindLocked, Message: dir + ": another tidal command is making certificates here", Hint: "wait for it to end, then run this again"}
	}
	return nil, fileError(dir, err)
}

// syncDir makes a directory's entries durable.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

package node

import (
	"errors"
	"fmt"
	"os"

	"tidal/node/api"
	"tidal/node/internal/store"
)

// DiskError is why a node had to end, or could not begin: its disk failed, or is
// damaged, or has no space left. It wraps ErrSetup.
type DiskError struct {
	Hint string // what to do
	err  error
}

// Error says what happened, and in which file.
func (e *DiskError) Error() string { return ErrSetup.Error() + ": " + e.err.Error() }

// Unwrap returns ErrSetup and the cause.
func (e *DiskError) Unwrap() []error { return []error{ErrSetup, e.err} }

// asDisk returns err as a *DiskError if it is the disk's doing, else err wrapped in
// ErrSetup.
func (n *node) asDisk(err error) error {
	id := n.o.Config.Node.ID
	e := &DiskError{err: err}
	trouble, known := errors.AsType[*store.DiskError](err)
	wrong, fenced := errors.AsType[*api.Error](err)
	switch {
	case fenced:
		e.Hint = wrong.Hint
	case known && trouble.Full():
		e.Hint = "make room on the file system of " + n.o.Config.Node.Data + ", then start the node again"
	case errors.Is(err, store.ErrDamaged):
		e.Hint = "what was acknowledged is on the other nodes: give this one an empty data directory and run `tidal node replace " + id + "`"
	default:
		e.Hint = "the kernel's log says more of the disk; start the node again once it is well, or give it an empty data directory and run `tidal node replace " + id + "`"
	}
	return e
}

// isDisk reports whether an error that ended the loop is the disk's doing.
func isDisk(err error) bool {
	return errors.As(err, new(*store.DiskError)) || errors.Is(err, store.ErrDamaged) || api.CodeOf(err) == api.CodeWrongDisk
}

// checkEmptied returns an error if the directory had a database with an identity,
// which the note of its format tells, and has none now.
func (n *node) checkEmptied() error {
	_, found, err := n.db.Get(store.NodeKey(store.NodeIdentity))
	if err != nil || found {
		return err
	}
	note := formatFile(n.o.Config)
	switch _, err := n.o.Disk.Stat(note); {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("look for the note of the format: %w", err)
	}
	return fmt.Errorf("%w: %s is there, and the database beside it is empty", store.ErrDamaged, note)
}

// carry runs f, a part of the node's life in which nothing else of it runs. A database
// that failed holds who uses it for ever: then the process ends around it, as when a
// restart in place takes too long. failed says that it is so, and err why.
func (n *node) carry(f func() error) (failed bool, err error) {
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err = <-done:
	case told := <-n.fatal:
		return true, n.asDisk(told)
	case <-n.restart.late:
		return true, ErrSlowClose
	}
	select {
	case told := <-n.fatal:
		return true, n.asDisk(told)
	default:
		return false, err
	}
}

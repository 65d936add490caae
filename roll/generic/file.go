package generic

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"tidal/node/api"
)

const (
	lockRest = 10 * time.Millisecond // between two tries for a lock that somebody else has
	lookMost = 5 * time.Second       // for whoever looks at a lock to be done with that
	lockMost = 10 * time.Second      // for whoever changes the journal, which takes milliseconds
)

// BusyError is returned when another process does not give up a lock that nobody needs
// for long: it was stopped while it had it.
type BusyError struct {
	Path string // of the lock
	For  time.Duration
}

// Error says for how long.
func (e *BusyError) Error() string { return fmt.Sprintf("another process has held it for %s", e.For) }

// Is has it taken for a time that is over: who can wait longer tries again.
func (*BusyError) Is(target error) bool { return target == context.DeadlineExceeded }

// errHeld is returned for a lock that another process holds.
var errHeld = errors.New("another process holds the lock")

// File is a journal in a file of this machine. Changes are made under a lock of
// PATH.lock. Whoever rolls holds another, of PATH.holder, until it ends or dies: so
// the next one knows at once. Operators on other machines do not see it.
type File struct {
	path   string
	holder *os.File // of this process, while it holds a roll
}

// OpenFile makes the folder of a journal if need be. The file is made by the first roll.
func OpenFile(path string) (*File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of the journal: %w", err)
	}
	return &File{path: path}, nil
}

// String names the journal.
func (f *File) String() string { return f.path }

// Close gives up the lock, if this process holds it.
func (f *File) Close() {
	if f.holder != nil {
		_ = errors.Join(unlockFile(f.holder), f.holder.Close()) // what it says was written before
		f.holder = nil
	}
}

func (f *File) read() (*book, error) {
	text, err := os.ReadFile(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	b, err := readBook(text)
	if err != nil {
		return nil, fmt.Errorf("read the journal %s: %w", f.path, err)
	}
	return b, nil
}

// Rolls lists the last rolls, the newest first.
func (f *File) Rolls(context.Context) ([]api.Roll, error) {
	b, err := f.read()
	if err != nil {
		return nil, err
	}
	return b.list(), nil
}

// Roll returns a roll; 0 is the newest.
func (f *File) Roll(_ context.Context, id uint64) (api.Roll, error) {
	b, err := f.read()
	if err != nil {
		return api.Roll{}, err
	}
	r, err := b.roll(id)
	if err != nil {
		return api.Roll{}, err
	}
	if r.Status == api.RollRunning {
		r.Silent = f.silence()
	}
	return *r, nil
}

// silence is for how long nobody has heard the holder, in milliseconds: not at all
// while its process lives; else since the journal was written, and for so long that
// anybody may take the roll.
func (f *File) silence() *int64 {
	var silent time.Duration
	if alive, _ := f.Holder(); !alive {
		silent = api.RollSilence
		if info, err := os.Stat(f.path); err == nil {
			silent = max(silent, time.Since(info.ModTime()))
		}
	}
	ms := silent.Milliseconds()
	return &ms
}

// ChangeRoll does something with a roll. What it returns is on the disk.
func (f *File) ChangeRoll(ctx context.Context, a api.RollAction, id uint64, c api.RollChange) (api.Roll, error) {
	mutex, err := f.lock(ctx)
	if err != nil {
		return api.Roll{}, err
	}
	defer func() { _ = errors.Join(unlockFile(mutex), mutex.Close()) }() // nothing was written to it
	b, err := f.read()
	if err != nil {
		return api.Roll{}, err
	}
	// While no roll runs the lock stands for none: one that is held was to be taken away by
	// an unlock that was killed on the way.
	free := b.last() == nil || b.last().Status != api.RollRunning
	r, err := b.change(time.Now().UTC(), a, id, &c, f.Holder)
	if err != nil {
		return r, err
	}
	if a == api.RollStart || a == api.RollTake {
		if err = f.hold(ctx, c.By, c.Force || free); err != nil {
			return r, err
		}
	}
	if a == api.RollRenew {
		return r, nil // that this process lives its lock says
	}
	text, err := b.text()
	if err == nil {
		err = replace(f.path, text)
	}
	if err != nil {
		return r, fmt.Errorf("write the journal: %w", err)
	}
	switch a { //nolint:exhaustive // the others leave the lock where it is
	case api.RollEnd:
		f.Close()
	case api.RollUnlock:
		err = f.nameless()
	}
	return r, err
}

// nameless takes the name away from the lock of whoever holds it: that one keeps the
// lock of a file that nobody finds any more.
func (f *File) nameless() error {
	if err := os.Remove(f.path + ".holder"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("take the lock: %w", err)
	}
	return nil
}

// lock waits for the lock under which the journal is changed.
func (f *File) lock(ctx context.Context) (*os.File, error) {
	mutex, err := os.OpenFile(f.path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the journal: %w", err)
	}
	if err = awaitLock(ctx, mutex, lockMost); err != nil {
		return nil, errors.Join(fmt.Errorf("lock the journal: %w", err), mutex.Close())
	}
	return mutex, nil
}

// awaitLock takes the lock of a file once nobody has it, and waits for so long at most.
func awaitLock(ctx context.Context, file *os.File, most time.Duration) error {
	t := time.NewTicker(lockRest)
	defer t.Stop()
	ctx, cancel := context.WithTimeoutCause(ctx, most, &BusyError{Path: file.Name(), For: most})
	defer cancel()
	for {
		err := lockFile(file)
		if !errors.Is(err, errHeld) {
			return err
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", file.Name(), context.Cause(ctx))
		}
	}
}

// Holder reports whether the process that holds the newest roll lives, and which
// that is.
func (f *File) Holder() (alive bool, who string) {
	if f.holder != nil {
		return false, "this process" // it may do what it likes with its own
	}
	held, err := os.OpenFile(f.path+".holder", os.O_RDWR, 0)
	if err != nil {
		return false, "nobody knows which process it was"
	}
	defer func() { _ = held.Close() }() // nothing was written to it
	b := make([]byte, 256)
	n, _ := held.ReadAt(b, 0) // who it is helps, and is not needed
	who = "process " + strings.TrimSpace(string(b[:n]))
	return lookAtLock(held) != nil, who
}

// hold takes the lock that says that this process lives, by force also from one that
// lives. Changes are made one at a time, so whoever else has it now only looks.
func (f *File) hold(ctx context.Context, by string, force bool) error { //nolint:revive // by force is what is said
	if f.holder != nil {
		return nil
	}
	if force {
		if err := f.nameless(); err != nil {
			return err
		}
	}
	h, err := os.OpenFile(f.path+".holder", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("take the lock: %w", err)
	}
	err = awaitLock(ctx, h, lookMost)
	if err == nil {
		text := fmt.Sprintf("%d of %s, since %s", os.Getpid(), by, time.Now().UTC().Format(time.RFC3339))
		err = errors.Join(h.Truncate(0), writeAt(h, text))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("take the lock: %w", err), h.Close())
	}
	f.holder = h
	return nil
}

func writeAt(f *os.File, text string) error {
	_, err := f.WriteAt([]byte(text), 0)
	return err
}

// replace writes a file as a whole or not at all, and returns once it is on the disk.
func replace(path string, text []byte) error {
	t, err := os.CreateTemp(filepath.Dir(path), ".roll-*")
	if err != nil {
		return err
	}
	_, err = t.Write(text)
	err = errors.Join(err, t.Sync(), t.Close())
	if err == nil {
		err = os.Rename(t.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(t.Name()))
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

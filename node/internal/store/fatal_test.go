package store_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tidal/node/internal/store"
)

var errDisk = errors.New("the disk is on fire")

// syncs injects errDisk into every sync of a log file.
func syncs(op errorfs.Op) error {
	switch op.Kind {
	case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
		if strings.HasSuffix(op.Path, ".log") {
			return errDisk
		}
	default:
	}
	return nil
}

// TestFailedSyncIsFatal fails an fsync: the owner is told once, and the commit
// never returns, neither well nor with an error that somebody might get over.
func TestFailedSyncIsFatal(t *testing.T) {
	broken := &errorfs.Toggle{Injector: errorfs.InjectorFunc(syncs)}
	told := make(chan error, 8)
	db, err := store.Open("db", store.Options{
		FS: errorfs.Wrap(vfs.NewMem(), broken), Fatal: func(err error) { told <- err },
	})
	check(t, err)
	set(t, db, "before", "x")
	broken.On()
	returned := make(chan error, 2)
	for range 2 {
		go func() { // never ends: see above
			b := db.NewBatch()
			b.Set([]byte("after"), []byte("x"))
			returned <- b.Commit(true)
		}()
	}
	select {
	case err := <-told:
		if !strings.Contains(err.Error(), errDisk.Error()) {
			t.Errorf("told %v", err)
		}
	case err := <-returned:
		t.Fatalf("a commit whose fsync failed returned %v", err)
	}
	select {
	case err := <-returned:
		t.Errorf("a commit whose fsync failed returned %v", err)
	case err := <-told:
		t.Errorf("told a second time: %v", err)
	default:
	}
}

// TestFailedFolderSyncIsFatal fails the sync of the database's folder, of which pebble
// would panic in the background.
func TestFailedFolderSyncIsFatal(t *testing.T) {
	broken := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileSync && op.Path == "db" {
			return errDisk
		}
		return nil
	})}
	told := make(chan error, 8)
	db, err := store.Open("db", store.Options{
		FS: errorfs.Wrap(vfs.NewMem(), broken), Fatal: func(err error) { told <- err },
	})
	check(t, err)
	broken.On()
	go func() { // never ends: see above
		value := make([]byte, 1<<20)
		for i := 0; ; i++ { // until a log or a list of files is begun anew
			b := db.NewBatch()
			b.Set(fmt.Append(nil, i), value)
			if b.Commit(false) != nil {
				return
			}
		}
	}()
	trouble, ok := errors.AsType[*store.DiskError](<-told)
	if !ok || trouble.Op != "sync" || trouble.Path != "db" || !errors.Is(trouble, errDisk) {
		t.Errorf("told %+v", trouble)
	}
}

// TestFailedReadIsFatal fails the reads of a table: the owner is told in which file
// and where.
func TestFailedReadIsFatal(t *testing.T) {
	broken := &errorfs.Toggle{Injector: errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") {
			return errDisk
		}
		return nil
	})}
	fs := vfs.NewMem()
	db := open(t, fs)
	set(t, db, "k", "v")
	check(t, db.Close())
	check(t, open(t, fs).Close()) // opening writes the log to a table
	told := make(chan error, 8)
	broken.On()
	db, err := store.Open("db", store.Options{FS: errorfs.Wrap(fs, broken), Fatal: func(err error) { told <- err }})
	if err == nil {
		_, _, err = db.Get([]byte("k"))
	}
	if err == nil {
		t.Fatal("a read that failed went well")
	}
	trouble, ok := errors.AsType[*store.DiskError](<-told)
	if !ok || trouble.Op != "read" || !strings.HasSuffix(trouble.Path, ".sst") || trouble.Offset < 0 || !errors.Is(trouble, errDisk) {
		t.Errorf("told %v; the read said %v", trouble, err)
	}
}

// TestDamageIsFatal turns bits of a table on the disk.
func TestDamageIsFatal(t *testing.T) {
	fs := vfs.NewMem()
	db := open(t, fs)
	rnd := rand.New(rand.NewPCG(1, 1))
	b := db.NewBatch()
	for i := range 2000 {
		value := make([]byte, 100) // that does not shrink
		for j := range value {
			value[j] = byte(rnd.Uint32())
		}
		b.Set(fmt.Appendf(nil, "k%04d", i), value)
	}
	check(t, b.Commit(true))
	check(t, db.Close()) // logs stay; opening writes them to tables
	check(t, open(t, fs).Close())
	damaged := ""
	names, err := fs.List("db")
	check(t, err)
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			damaged = name
			path := fs.PathJoin("db", name)
			f, e := fs.Open(path)
			check(t, e)
			b, e := io.ReadAll(f)
			check(t, errors.Join(e, f.Close()))
			for i := len(b) / 3; i < len(b)/2; i++ { // the first block has the format's version
				b[i] ^= 0x55
			}
			w, e := fs.Create(path, vfs.WriteCategoryUnspecified)
			check(t, e)
			_, e = w.Write(b)
			check(t, errors.Join(e, w.Sync(), w.Close()))
		}
	}
	if damaged == "" {
		t.Fatalf("there is no table among %v", names)
	}
	told := make(chan error, 8)
	db, err = store.Open("db", store.Options{FS: fs, Fatal: func(err error) { told <- err }})
	check(t, err)
	err = db.Scan([]byte("k"), []byte("l"), func(_, _ []byte) error { return nil })
	if err == nil {
		t.Error("a scan over a damaged table went well")
	}
	select {
	case said := <-told:
		if !strings.Contains(said.Error(), ".sst") || !strings.Contains(said.Error(), "damaged") {
			t.Errorf("told %v: no file is named", said)
		}
	default:
		t.Errorf("nobody was told of the damage; the scan said %v", err)
	}
}

package rafthost

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"

	"tidal/node/internal/raftlog"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// stagedFile is the size at which a staged file is cut, in bytes of keys and values.
const stagedFile = 64 << 20

var errDamaged = errors.New("the snapshot is not what its sender said")

// Stage is a snapshot on its way in: files outside the database, which become a
// replica's state all at once or not at all. It is used by one goroutine.
type Stage struct {
	db       *store.DB
	dir      string
	head     wire.Snapshot
	arriving Arriving

	files []string    // that are written
	file  *store.File // under way, or nil
	size  int         // of the one under way
	last  []byte      // key
	sum   wire.SnapshotSum
	pairs uint64
	bytes uint64
	whole bool
}

// NewStage begins with the first part of a snapshot. dir is the stage's own, on
// the file system of the database; what is in it goes. arrive returns what takes in
// the pairs of a group's replica.
func NewStage(db *store.DB, dir string, first []byte, arrive func(group, replica uint64) (Arriving, error)) (*Stage, error) {
	head, err := wire.DecodeSnapshot(first)
	if err != nil {
		return nil, err
	}
	arriving, err := arrive(head.Group, head.To)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(db.RemoveFolder(dir), db.MakeFolder(dir)); err != nil {
		return nil, err
	}
	return &Stage{db: db, dir: dir, head: head, arriving: arriving}, nil
}

// Head says what the snapshot is.
func (s *Stage) Head() *wire.Snapshot { return &s.head }

// Received returns how much of Head's Bytes is here.
func (s *Stage) Received() uint64 { return s.bytes }

// Take adds the next part, and reports whether it was the last. All is checked
// and on the disk then.
func (s *Stage) Take(part []byte) (whole bool, err error) {
	if s.whole {
		return false, fmt.Errorf("%w: a part after the end", errDamaged)
	}
	last, sum, err := wire.DecodePart(part, s.add)
	if err != nil {
		return false, err
	}
	if !last {
		s.sum.Add(part)
		return false, nil
	}
	if s.pairs != s.head.Pairs || s.bytes != s.head.Bytes || s.sum != sum {
		return false, fmt.Errorf("%w: %d pairs of %d bytes with checksum %08x came, and %d of %d with %08x were announced",
			errDamaged, s.pairs, s.bytes, s.sum, s.head.Pairs, s.head.Bytes, sum)
	}
	s.whole = true
	return true, errors.Join(s.arriving.Done(), s.closeFile())
}

func (s *Stage) add(key, value []byte) error {
	if len(key) == 0 || key[0] < store.SubState || key[0] >= store.SubBeyond || bytes.Compare(key, s.last) <= 0 {
		return fmt.Errorf("%w: key %x after %x", errDamaged, key, s.last)
	}
	if s.file == nil {
		if err := s.openFile(); err != nil {
			return err
		}
	}
	if err := s.file.Set(append(store.GroupKey(s.head.Group, key[0]), key[1:]...), value); err != nil {
		return err
	}
	if err := s.arriving.Add(key, value); err != nil {
		return err
	}
	s.last = append(s.last[:0], key...)
	s.pairs++
	s.bytes += uint64(len(key) + len(value))
	if s.size += len(key) + len(value); s.size >= stagedFile {
		return s.closeFile()
	}
	return nil
}

func (s *Stage) openFile() (err error) {
	s.size = 0
	s.file, err = s.db.CreateFile(filepath.Join(s.dir, fmt.Sprintf("%06d.sst", len(s.files)+1)))
	return err
}

// closeFile ends the file under way, if there is one.
func (s *Stage) closeFile() error {
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	s.files = append(s.files, f.Path())
	return f.Close()
}

// ingest makes the snapshot the state of its replica here, with a hard state,
// in place of all that the replica had. It returns when that is on the disk.
func (s *Stage) ingest(a raftlog.Applied, h raftlog.HardState) error {
	records, err := raftlog.Records(s.head.Group, s.head.To, a, h)
	if err != nil {
		return err
	}
	if err := s.openFile(); err != nil {
		return err
	}
	for _, r := range records {
		if err := s.file.Set(r.Key, r.Value); err != nil {
			return err
		}
	}
	if err := s.closeFile(); err != nil {
		return err
	}
	lo, hi := store.GroupRange(s.head.Group)
	return s.db.Ingest(lo, hi, s.files)
}

// Drop removes what is staged. After an ingest nothing of it is left but the
// folder.
func (s *Stage) Drop() error {
	return errors.Join(s.closeFile(), s.db.RemoveFolder(s.dir))
}

package rafthost

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"tidal/node/internal/raftlog"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// Shipment is a snapshot that a leader owes to a replica whose next entry its log
// no longer has.
type Shipment struct {
	Group    uint64
	From, To uint64 // replicas
	Term     uint64 // of the leader
	Node     string // that To is on
}

// Shipper takes the snapshots that leaders owe. It must not block. Each ends with
// a call of ReportSnapshot, however it ended.
type Shipper interface {
	Ship(s Shipment)
}

var errNotLevel = errors.New("the replica here is of a later term, or has applied nothing")

// Export is a snapshot on its way out: a group's state as the database has it now,
// cut into parts. It is used by one goroutine.
type Export struct {
	head  wire.Snapshot
	db    *store.DB
	view  *store.View
	left  bool // the view is at a pair that is still to be given out
	next  func(*Export) ([]byte, error)
	sum   wire.SnapshotSum
	lossy bool
}

// NewExport looks at a group's state in the database. What is applied there says
// what the snapshot is of, so it may be newer than what raft asked for.
func NewExport(db *store.DB, s Shipment, defect Defect) (*Export, error) {
	view, err := db.View(store.GroupKey(s.Group, store.SubApplied), store.GroupKey(s.Group, store.SubBeyond))
	if err != nil {
		return nil, err
	}
	e := &Export{db: db, view: view, next: (*Export).first, lossy: defect == LossySnapshot}
	e.head = wire.Snapshot{Group: s.Group, From: s.From, To: s.To, Term: s.Term}
	if err = e.measure(); err == nil {
		err = e.sound()
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("group %d: snapshot: %w", s.Group, err), view.Close())
	}
	return e, nil
}

// sound is an error if the replica is known to differ from the others. Its state would
// be that of one more, and in the end of most.
func (e *Export) sound() error {
	unsound, err := Unsound(e.db, e.head.Group, e.head.From)
	if err == nil && unsound {
		err = errUnsound
	}
	return err
}

// measure reads what is applied, and counts the pairs: a receiver can say how far
// it is then, and finds out when something is missing.
func (e *Export) measure() error {
	key := store.GroupKey(e.head.Group, store.SubApplied)
	if !e.view.Seek(key) || !bytes.Equal(e.view.Key(), key) {
		return errors.Join(errNotLevel, e.view.Err())
	}
	a, err := raftlog.ReadApplied(e.view.Value())
	if err != nil {
		return err
	}
	if a.Index == 0 || a.Term > e.head.Term {
		return errNotLevel
	}
	e.head.Index, e.head.IndexTerm, e.head.Conf = a.Index, a.Term, a.Conf
	for ok := e.rewind(); ok; ok = e.advance() {
		e.head.Pairs++
		e.head.Bytes += uint64(len(e.key()) + len(e.view.Value()))
	}
	return e.view.Err()
}

func (e *Export) rewind() bool {
	return e.skip(e.view.Seek(store.GroupKey(e.head.Group, store.SubState)))
}

func (e *Export) advance() bool { return e.skip(e.view.Next()) }

// skip leaves a keyspace out, as a defect.
func (e *Export) skip(ok bool) bool {
	for ok && e.lossy && e.key()[0] == store.SubState+1 {
		ok = e.view.Next()
	}
	return ok
}

// key is the current key inside the group's range.
func (e *Export) key() []byte { return e.view.Key()[store.GroupPrefix:] }

// Next returns the next part, which is the caller's, or io.EOF after the last.
func (e *Export) Next() ([]byte, error) { return e.next(e) }

func (e *Export) first() ([]byte, error) {
	e.left = e.rewind()
	e.next = (*Export).pairs
	return wire.AppendSnapshot(nil, &e.head)
}

func (e *Export) pairs() ([]byte, error) {
	if !e.left {
		if err := errors.Join(e.view.Err(), e.sound()); err != nil {
			return nil, err // it may have been found out while the parts left; without its end it is not taken
		}
		e.next = func(*Export) ([]byte, error) { return nil, io.EOF }
		return wire.AppendSnapshotEnd(nil, e.sum), nil
	}
	b := wire.NewPairs()
	for e.left && len(b) < wire.SnapshotPart {
		b = wire.AppendPair(b, e.key(), e.view.Value())
		e.left = e.advance()
	}
	e.sum.Add(b)
	return b, nil
}

// Close lets go of the view.
func (e *Export) Close() error { return e.view.Close() }

package raftlog

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/store"
)

// Snapshot implements raft.Storage. It says how far a snapshot would be now; its
// content is read from the store when its turn to be sent comes, and may be newer
// then.
func (l *Log) Snapshot() (*pb.Snapshot, error) {
	a := l.applied
	if a.Index == 0 {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &pb.Snapshot{Metadata: &pb.SnapshotMetadata{ConfState: a.Conf, Index: &a.Index, Term: &a.Term}}, nil
}

// ReadApplied decodes the value of store.SubApplied.
func ReadApplied(v []byte) (Applied, error) { return decodeApplied(v) }

// Record is a key with its value.
type Record struct{ Key, Value []byte }

// Records returns, in the order of their keys, the records of a replica whose
// state is a snapshot's: applied up to a, with a log that begins behind it, and a
// hard state. They go to the store together with the state machine's part.
func Records(group, replica uint64, a Applied, h HardState) ([]Record, error) {
	applied, err := encodeApplied(a)
	if err != nil {
		return nil, err
	}
	return []Record{
		{store.GroupKey(group, store.SubHard), encodeHard(h)},
		{store.GroupKey(group, store.SubStart), encodeStart(a.Index, a.Term)},
		{store.GroupKey(group, store.SubApplied), applied},
		{store.GroupKey(group, store.SubReplica), binary.AppendUvarint(nil, replica)},
	}, nil
}

// Restore takes over that Records of a and h are in the store, and nothing else
// of the log.
func (l *Log) Restore(a Applied, h HardState) {
	l.forget(len(l.tail))
	l.hard, l.written, l.applied = h, h, a
	l.startIndex, l.startTerm, l.last = a.Index, a.Term, a.Index
	l.sizes.reset(a.Index)
}

package wire

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// A snapshot travels as parts: one that says what it is, those with its keys and
// values, and one that ends it. The first byte of each is its kind. The numbers
// are on the wire: append only.
const (
	snapshotHead  byte = 1
	snapshotPairs byte = 2
	snapshotEnd   byte = 3
)

// snapshotFormat is the version of a snapshot's parts, in the first of them.
const snapshotFormat = 1

// SnapshotPart is the size at which a part is cut, in bytes. One pair alone may
// make a larger one.
const SnapshotPart = 256 << 10

const (
	maxConf        = 64 << 10
	maxSnapshotKey = 4 << 10
)

// Snapshot says what a snapshot is: the raft message that brings it, and how much
// comes with it.
type Snapshot struct {
	Group     uint64
	From, To  uint64 // replicas
	Term      uint64 // of the leader that sends it
	Index     uint64 // last entry whose effect is in it
	IndexTerm uint64
	Conf      *pb.ConfState
	Pairs     uint64
	Bytes     uint64 // of all keys and values
}

// Message returns the raft message that the snapshot is.
func (s *Snapshot) Message() *pb.Message {
	index, term, from, to, of := s.Index, s.IndexTerm, s.From, s.To, s.Term
	return &pb.Message{
		Type: pb.MsgSnap.Enum(), From: &from, To: &to, Term: &of,
		Snapshot: &pb.Snapshot{Metadata: &pb.SnapshotMetadata{ConfState: s.Conf, Index: &index, Term: &term}},
	}
}

// AppendSnapshot appends the first part of a snapshot.
func AppendSnapshot(dst []byte, s *Snapshot) ([]byte, error) {
	conf, err := proto.MarshalOptions{Deterministic: true}.Marshal(s.Conf)
	if err != nil {
		return nil, fmt.Errorf("encode the configuration of a snapshot: %w", err)
	}
	dst = append(dst, snapshotHead, snapshotFormat)
	for _, v := range []uint64{s.Group, s.From, s.To, s.Term, s.Index, s.IndexTerm, s.Pairs, s.Bytes} {
		dst = AppendUvarint(dst, v)
	}
	return AppendBytes(dst, conf), nil
}

// DecodeSnapshot reads what AppendSnapshot wrote.
func DecodeSnapshot(b []byte) (Snapshot, error) {
	r := NewReader(b)
	if k := r.Byte("kind of a part"); r.Err() == nil && k != snapshotHead {
		r.Fail("kind of a part", fmt.Sprintf("%d: a snapshot begins with %d", k, snapshotHead))
	}
	r.format("snapshot format", snapshotFormat)
	s := Snapshot{
		Group: r.Uvarint("snapshot group"), From: r.Uvarint("snapshot from"), To: r.Uvarint("snapshot to"),
		Term: r.Uvarint("snapshot term"), Index: r.Uvarint("snapshot index"), IndexTerm: r.Uvarint("term of a snapshot's index"),
		Pairs: r.Uvarint("pairs of a snapshot"), Bytes: r.Uvarint("bytes of a snapshot"), Conf: &pb.ConfState{},
	}
	conf := r.Bytes("configuration of a snapshot", maxConf)
	if err := r.Done(); err != nil {
		return Snapshot{}, err
	}
	if err := proto.Unmarshal(conf, s.Conf); err != nil {
		return Snapshot{}, fmt.Errorf("%w: configuration of a snapshot: %w", ErrMalformed, err)
	}
	if s.Index == 0 || s.IndexTerm == 0 || s.IndexTerm > s.Term {
		return Snapshot{}, fmt.Errorf("%w: a snapshot at entry %d of term %d from a leader of term %d", ErrMalformed, s.Index, s.IndexTerm, s.Term)
	}
	return s, nil
}

// SnapshotSum is a checksum over the parts of a snapshot with its pairs.
type SnapshotSum uint32

// Add takes the next part in.
func (s *SnapshotSum) Add(part []byte) {
	*s = SnapshotSum(crc32.Update(uint32(*s), crc32.MakeTable(crc32.Castagnoli), part))
}

// NewPairs returns the start of a part with pairs; AppendPair adds to it.
func NewPairs() []byte { return append(make([]byte, 0, SnapshotPart+4<<10), snapshotPairs) }

// AppendPair appends a key and its value to a part.
func AppendPair(dst, key, value []byte) []byte { return AppendBytes(AppendBytes(dst, key), value) }

// AppendSnapshotEnd appends the last part of a snapshot, with the checksum of
// those with pairs.
func AppendSnapshotEnd(dst []byte, sum SnapshotSum) []byte {
	return binary.BigEndian.AppendUint32(append(dst, snapshotEnd), uint32(sum))
}

// DecodePart reads a part after the first. It calls pair for each pair; the slices
// are pair's only during the call. last reports that the part is the end, and sum
// is the checksum that it has then.
func DecodePart(b []byte, pair func(key, value []byte) error) (last bool, sum SnapshotSum, err error) {
	r := NewReader(b)
	switch kind := r.Byte("kind of a part"); {
	case r.Err() != nil:
		return false, 0, r.Err()
	case kind == snapshotEnd && len(r.Rest()) == 4:
		return true, SnapshotSum(binary.BigEndian.Uint32(r.Rest())), nil
	case kind != snapshotPairs:
		return false, 0, fmt.Errorf("%w: a part of kind %d and %d bytes has no place in a snapshot", ErrMalformed, kind, len(b))
	}
	for len(r.Rest()) > 0 {
		key := r.Bytes("key in a snapshot", maxSnapshotKey)
		value := r.Bytes("value in a snapshot", MaxFrame)
		if err := r.Err(); err != nil {
			return false, 0, err
		}
		if err := pair(key, value); err != nil {
			return false, 0, err
		}
	}
	return false, 0, nil
}

package wire_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"tidal/node/internal/wire"
)

func someSnapshot() *wire.Snapshot {
	return &wire.Snapshot{
		Group: 7, From: 71, To: 72, Term: 9, Index: 1 << 40, IndexTerm: 8, Pairs: 3, Bytes: 1 << 33,
		Conf: &pb.ConfState{Voters: []uint64{71, 72}, Learners: []uint64{73}},
	}
}

// TestSnapshotHead reads the first part of a snapshot back, and refuses one that
// ends early or makes no sense.
func TestSnapshotHead(t *testing.T) {
	s := someSnapshot()
	b, err := wire.AppendSnapshot(nil, s)
	if err != nil {
		t.Fatal(err)
	}
	got, err := wire.DecodeSnapshot(b)
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got.Conf, s.Conf) {
		t.Errorf("configuration %v, want %v", got.Conf, s.Conf)
	}
	m := got.Message()
	if m.GetType() != pb.MsgSnap || m.GetFrom() != 71 || m.GetTo() != 72 || m.GetTerm() != 9 ||
		m.GetSnapshot().GetMetadata().GetIndex() != 1<<40 || m.GetSnapshot().GetMetadata().GetTerm() != 8 {
		t.Errorf("message %v", m)
	}
	got.Conf, s.Conf = nil, nil
	if got != *s {
		t.Errorf("%+v, want %+v", got, *s)
	}
	for n := range b {
		if _, err := wire.DecodeSnapshot(b[:n]); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("its first %d bytes: %v", n, err)
		}
	}
	for name, change := range map[string]func(*wire.Snapshot){
		"of no entry":           func(s *wire.Snapshot) { s.Index = 0 },
		"of no term":            func(s *wire.Snapshot) { s.IndexTerm = 0 },
		"of its leader's later": func(s *wire.Snapshot) { s.IndexTerm = 10 },
	} {
		s := someSnapshot()
		change(s)
		b, err := wire.AppendSnapshot(nil, s)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := wire.DecodeSnapshot(b); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestSnapshotParts reads pairs and the end back, and refuses what is cut off.
func TestSnapshotParts(t *testing.T) {
	b := wire.NewPairs()
	b = wire.AppendPair(b, []byte("key"), []byte("value"))
	b = wire.AppendPair(b, []byte("other"), nil)
	var got []string
	pair := func(k, v []byte) error {
		got = append(got, fmt.Sprintf("%s=%s", k, v))
		return nil
	}
	last, _, err := wire.DecodePart(b, pair)
	if err != nil || last || !slices.Equal(got, []string{"key=value", "other="}) {
		t.Errorf("pairs: %q, %t, %v", got, last, err)
	}
	var sum, other wire.SnapshotSum
	sum.Add(b)
	sum.Add(b)
	other.Add(b)
	if sum == other || sum == 0 {
		t.Errorf("checksums %08x of two parts and %08x of one", sum, other)
	}
	end := wire.AppendSnapshotEnd(nil, sum)
	last, read, err := wire.DecodePart(end, pair)
	if err != nil || !last || read != sum {
		t.Errorf("end: %t, %08x, %v", last, read, err)
	}
	stop := errors.New("stop")
	if _, _, err := wire.DecodePart(b, func(_, _ []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error of the receiver: %v", err)
	}
	for _, bad := range [][]byte{{}, {9}, b[:len(b)-1], end[:4], append(bytes.Clone(end), 0)} {
		if _, _, err := wire.DecodePart(bad, pair); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("%x: %v", bad, err)
		}
	}
}

// TestCutTravels carries the host's own message among those of raft.
func TestCutTravels(t *testing.T) {
	from, to, term, index := uint64(1), uint64(2), uint64(3), uint64(4)
	m := &pb.Message{Type: wire.MsgCut.Enum(), From: &from, To: &to, Term: &term, Index: &index}
	n := 0
	err := wire.DecodeRaft(wire.AppendRaft(wire.NewRaftBatch(), 5, m), func(got wire.RaftMessage) {
		n++
		if got.Group != 5 || got.GetType() != wire.MsgCut || got.GetFrom() != 1 || got.GetTo() != 2 || got.GetIndex() != 4 {
			t.Errorf("group %d: %v", got.Group, got.Message)
		}
	})
	if err != nil || n != 1 {
		t.Errorf("%d messages, %v", n, err)
	}
	if _, taken := pb.MessageType_name[int32(wire.MsgCut)]; taken {
		t.Error("raft has a message of this number")
	}
}

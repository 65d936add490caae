package rafthost_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/rafthost"
	"tidal/node/internal/store"
	"tidal/node/internal/wire"
)

// FuzzStage lets a snapshot arrive in parts of any bytes: it is refused, or it is
// what its head and its end say.
func FuzzStage(f *testing.F) {
	pair := func(key, value string) []byte {
		return wire.AppendPair(wire.NewPairs(), append([]byte{store.SubState}, key...), []byte(value))
	}
	head := func(pairs, bytes uint64) []byte {
		b, err := wire.AppendSnapshot(nil, &wire.Snapshot{
			Group: 2, From: 1, To: 2, Term: 3, Index: 9, IndexTerm: 3, Pairs: pairs, Bytes: bytes, Conf: &pb.ConfState{Voters: []uint64{1, 2}},
		})
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	end := func(parts ...[]byte) []byte {
		var sum wire.SnapshotSum
		for _, p := range parts {
			sum.Add(p)
		}
		return wire.AppendSnapshotEnd(nil, sum)
	}
	a, b := pair("a", "1"), pair("b", "2")
	f.Add(head(2, 6), a, b, end(a, b))
	f.Add(head(2, 6), b, a, end(b, a))
	f.Add(head(2, 6), a, a, end(a, a))
	f.Add(head(1, 3), a, end(a), end(a))
	f.Add(head(3, 6), a, b, end(a, b))
	f.Fuzz(func(t *testing.T, head, one, two, three []byte) {
		db, err := store.Open("db", store.Options{FS: vfs.NewMem(), CacheBytes: 1 << 20})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if bad := db.Close(); bad != nil {
				t.Error(bad)
			}
		}()
		s, err := rafthost.NewStage(db, "stage", head, func(uint64, uint64) (rafthost.Arriving, error) { return nowhereIn{}, nil })
		if err != nil {
			return
		}
		for _, part := range [][]byte{one, two, three} {
			whole, err := s.Take(part)
			if err != nil {
				break
			}
			if whole && s.Received() != s.Head().Bytes {
				t.Errorf("a snapshot of %d bytes is whole with %d", s.Head().Bytes, s.Received())
			}
		}
		if err := s.Drop(); err != nil {
			t.Error(err)
		}
	})
}

// nowhereIn takes all pairs and keeps none.
type nowhereIn struct{}

// Add implements rafthost.Arriving.
func (nowhereIn) Add(_, _ []byte) error { return nil }

// Done implements rafthost.Arriving.
func (nowhereIn) Done() error { return nil }

// Machine implements rafthost.Arriving.
func (nowhereIn) Machine() (rafthost.Machine, error) { return nil, rafthost.ErrUnwanted }

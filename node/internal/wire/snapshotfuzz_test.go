package wire_test

import (
	"bytes"
	"testing"

	"tidal/node/internal/wire"
)

// FuzzDecodeSnapshot: what is taken for the head of a snapshot comes back as it was.
func FuzzDecodeSnapshot(f *testing.F) {
	b, err := wire.AppendSnapshot(nil, someSnapshot())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := wire.DecodeSnapshot(b)
		if err != nil {
			return
		}
		once, err := wire.AppendSnapshot(nil, &s)
		if err != nil {
			t.Fatal(err)
		}
		s, err = wire.DecodeSnapshot(once)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := wire.AppendSnapshot(nil, &s); err != nil || !bytes.Equal(again, once) {
			t.Errorf("%x became %x, %v", once, again, err)
		}
	})
}

// FuzzDecodePart: the pairs of a part that is taken make the same part.
func FuzzDecodePart(f *testing.F) {
	f.Add(wire.AppendPair(wire.AppendPair(wire.NewPairs(), []byte("a"), nil), []byte("b"), []byte("value")))
	f.Add(wire.AppendSnapshotEnd(nil, 7))
	f.Fuzz(func(t *testing.T, b []byte) {
		again := wire.NewPairs()
		last, sum, err := wire.DecodePart(b, func(key, value []byte) error {
			again = wire.AppendPair(again, key, value)
			return nil
		})
		if last {
			again = wire.AppendSnapshotEnd(nil, sum)
		}
		if err != nil {
			return
		}
		n, m := 0, 0
		count := func(to *int) func(key, value []byte) error {
			return func(key, value []byte) error { *to += 1 + len(key) + len(value); return nil }
		}
		_, _, first := wire.DecodePart(b, count(&n))
		_, _, second := wire.DecodePart(again, count(&m))
		if first != nil || second != nil || n != m {
			t.Errorf("%x became %x: %v, %v", b, again, first, second)
		}
	})
}

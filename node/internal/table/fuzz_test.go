package table_test

import (
	"bytes"
	"testing"

	"tidal/node/api"
	"tidal/node/internal/store"
	"tidal/node/internal/table"
	"tidal/node/internal/wire"
)

// FuzzApply applies entries of any bytes, and opens a machine on what any bytes left
// in the database: it is refused, or replicas agree about it.
func FuzzApply(f *testing.F) {
	put := encode(wire.Command{Op: api.OpPut, ID: api.RequestID{1}, Key: "k", Value: []byte("v")})
	batch := encode(wire.Command{Op: api.OpBatch, ID: api.RequestID{2}, Value: wire.AppendChanges(nil, changes("a=1,-b"))})
	f.Add(put, batch, []byte{}, []byte{})
	f.Add(batch, []byte{1}, []byte{1, 0}, []byte("row"))
	f.Fuzz(func(t *testing.T, one, two, clock, row []byte) {
		var hashes [2][32]byte
		for i := range hashes {
			r := newReplica(t)
			b := r.db.NewBatch()
			b.Set(append(store.GroupKey(uint64(tableID), table.SubRow), "a"...), row)
			if len(clock) > 0 {
				b.Set(store.GroupKey(uint64(tableID), table.SubClock), clock)
			}
			r.check(b.Commit(false))
			m, err := table.Open(r.db, tableID)
			if err != nil {
				return
			}
			b = r.db.NewBatch()
			for n, data := range [][]byte{one, two} {
				if _, _, err = m.Apply(b, uint64(n+1), 1, 0, bytes.Clone(data)); err != nil {
					break
				}
			}
			if err != nil {
				r.check(b.Close())
				return
			}
			m.Flush(b)
			r.check(b.Commit(false))
			m.Committed()
			_, _, _ = table.Page(r.db, tableID, api.Range{Limit: 3}) // an error of a damaged row is right
			hashes[i] = r.hash()
		}
		if hashes[0] != hashes[1] {
			t.Error("the same entries left different states")
		}
	})
}

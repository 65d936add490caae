package table_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/api"
	"tidal/node/internal/store"
	"tidal/node/internal/table"
	"tidal/node/internal/wire"
)

// batchOf returns an entry with a batch of so many rows.
func batchOf(rows, size int, id uint64) entry {
	c := wire.Command{Op: api.OpBatch, ID: api.RequestID{byte(id), byte(id >> 8), byte(id >> 16), 1}}
	list := make([]api.Change, rows)
	for i := range list {
		list[i] = api.Change{Key: fmt.Sprintf("row-%05d", i), Value: make([]byte, size)}
	}
	c.Value = wire.AppendChanges(nil, list)
	return entry{data: encode(c)}
}

// crashed returns what a crash leaves of a replica of which nothing was synced, when a
// part of its log was written: part of so many.
func (r *replica) crashed(part, of int) *replica {
	r.tb.Helper()
	mem, ok := r.fs.(*vfs.MemFS)
	if !ok {
		r.tb.Fatal("the replica's disk cannot crash")
	}
	all := vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(0, 0))} // no draw matters
	after := &replica{tb: r.tb, fs: mem.CrashClone(all)}
	logs, err := after.fs.List("db")
	r.check(err)
	logs = slices.DeleteFunc(logs, func(name string) bool { return !strings.HasSuffix(name, ".log") })
	name := after.fs.PathJoin("db", slices.Max(logs))
	f, err := after.fs.Open(name)
	r.check(err)
	whole, err := io.ReadAll(f)
	r.check(errors.Join(err, f.Close()))
	f, err = after.fs.Create(name, vfs.WriteCategoryUnspecified)
	r.check(err)
	_, err = f.Write(whole[:len(whole)*part/of])
	r.check(errors.Join(err, f.Close()))
	after.open()
	r.tb.Cleanup(func() { after.check(after.db.Close()) })
	return after
}

// TestBatchIsWhole lets a replica crash at places all over its log, behind batches that
// rewrite the same rows: all of them are of one batch then. A machine that is broken on
// purpose is seen.
func TestBatchIsWhole(t *testing.T) {
	const crashes = 24
	for _, defect := range []table.Defect{table.Sound, table.BatchInParts} {
		r := &replica{tb: t, fs: vfs.NewCrashableMem(), defect: defect}
		r.open()
		t.Cleanup(func() { r.check(r.db.Close()) })
		for i := range uint64(8) {
			r.apply(batchOf(3, 3000, i))
		}
		torn, cut := 0, 0
		for part := range crashes {
			versions := map[uint64]int{}
			after := r.crashed(part, crashes)
			for i := range 3 {
				row, _, err := table.Get(after.db, tableID, fmt.Sprintf("row-%05d", i))
				r.check(err)
				versions[row.Version]++
			}
			if len(versions) > 1 {
				torn++
			}
			if versions[8] == 0 {
				cut++
			}
		}
		if (torn > 0) != (defect == table.BatchInParts) || cut == 0 {
			t.Errorf("defect %d: %d of %d crashes left parts of a batch, and %d lost one", defect, torn, crashes, cut)
		}
	}
}

func TestDamagedBatch(t *testing.T) {
	r := newReplica(t)
	for says, value := range map[string][]byte{
		"change: unknown: 2":              {1, 2, 1, 'k'},
		"1 bytes after the end":           {1, 0, 1, 'k', 0},
		"key: 2 bytes wanted, 1 left":     {1, 0, 2, 'k'},
		"a list of 3 does not fit in the": {3, 0, 1, 'k'},
	} {
		b := r.db.NewBatch()
		_, _, err := r.m.Apply(b, 1, 1, 0, encode(wire.Command{Op: api.OpBatch, Value: value}))
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%x: %v, want %q", value, err, says)
		}
		r.check(b.Close())
	}
}

// BenchmarkBatch applies batches of 100 rows of 128 bytes.
func BenchmarkBatch(b *testing.B) {
	r := &replica{tb: b, fs: vfs.NewMem()}
	db, err := store.Open("db", store.Options{FS: r.fs})
	r.check(err)
	r.db = db
	r.m, err = table.Open(db, tableID)
	r.check(err)
	b.Cleanup(func() { r.check(db.Close()) })
	e := batchOf(100, 128, 0)
	b.ReportAllocs()
	for i := uint64(1); b.Loop(); i++ {
		e.data[3], e.data[4], e.data[5], e.data[6] = byte(i), byte(i>>8), byte(i>>16), byte(i>>24) // another request id
		r.apply(e)
	}
	b.ReportMetric(float64(100*b.N)/b.Elapsed().Seconds(), "rows/s")
}

package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tidal/node/internal/store"
)

func open(t *testing.T, fs vfs.FS) *store.DB {
	t.Helper()
	db, err := store.Open("db", store.Options{FS: fs})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func set(t *testing.T, db *store.DB, key, value string) {
	t.Helper()
	b := db.NewBatch()
	b.Set([]byte(key), []byte(value))
	check(t, b.Commit(true))
}

// TestFlush: what was flushed is there after a crash, and is not read from the log.
func TestFlush(t *testing.T) {
	value := strings.Repeat("v", 1<<10)
	for _, flushes := range []bool{false, true} {
		fs := vfs.NewCrashableMem()
		db := open(t, fs)
		for i := range 500 {
			set(t, db, fmt.Sprint("k", i), value)
		}
		if flushes {
			done, err := db.Flush()
			check(t, err)
			<-done
		}
		var read atomic.Int64
		after := errorfs.Wrap(fs.CrashClone(vfs.CrashCloneCfg{}), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileRead && strings.HasSuffix(op.Path, ".log") {
				read.Add(1)
			}
			return nil
		}))
		check(t, db.Close())
		db = open(t, after)
		if n := read.Load(); flushes != (n < 5) { // each is of 32 KiB
			t.Errorf("flushed %t: %d parts of logs were read", flushes, n)
		}
		for i := range 500 {
			if v, found, err := db.Get(fmt.Appendf(nil, "k%d", i)); err != nil || !found || string(v) != value {
				t.Fatalf("k%d: %t, %v", i, found, err)
			}
		}
		check(t, db.Close())
	}
}

func TestFormat(t *testing.T) {
	for _, test := range []struct {
		name  string
		value []byte // nil: as it was written
		want  string // "": it opens
	}{
		{"its own", nil, ""},
		{"newer", binary.AppendUvarint(nil, store.Format+1), "the data is of format 2, this binary reads up to format 1"},
		{"much newer", binary.AppendUvarint(nil, 1<<40), "the data is of format 1099511627776, this binary reads up to format 1"},
		{"damaged", []byte{0x80}, "the format's version on disk is damaged: 80"},
		{"empty", []byte{}, "damaged"},
	} {
		t.Run(test.name, func(t *testing.T) {
			fs := vfs.NewMem()
			db := open(t, fs)
			if test.value != nil {
				b := db.NewBatch()
				b.Set(store.NodeKey(store.NodeFormat), test.value)
				check(t, b.Commit(true))
			}
			check(t, db.Close())
			db, err := store.Open("db", store.Options{FS: fs})
			if test.want == "" {
				check(t, err)
				check(t, db.Close())
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("opened with %v, want %q", err, test.want)
			}
			// What refused has let go of the directory.
			if _, err := store.Open("db", store.Options{FS: fs}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the second time: %v", err)
			}
		})
	}
}

func TestGet(t *testing.T) {
	db := open(t, vfs.NewMem())
	if v, found, err := db.Get([]byte("none")); v != nil || found || err != nil {
		t.Errorf("a key that is not there: %q, %t, %v", v, found, err)
	}
	set(t, db, "empty", "")
	if v, found, err := db.Get([]byte("empty")); len(v) != 0 || !found || err != nil {
		t.Errorf("an empty value: %q, %t, %v", v, found, err)
	}
	set(t, db, "k", "value")
	v, _, err := db.Get([]byte("k"))
	check(t, err)
	copy(v, "#####")
	if again, _, err := db.Get([]byte("k")); string(again) != "value" || err != nil {
		t.Errorf("a value that its caller changed came back as %q, %v", again, err)
	}
	check(t, db.Close())
}

func TestBatchCopies(t *testing.T) {
	db := open(t, vfs.NewMem())
	b := db.NewBatch()
	key, value := []byte("key"), []byte("value")
	b.Set(key, value)
	copy(key, "###")
	copy(value, "#####")
	if b.Empty() {
		t.Error("a batch with a change says that it is empty")
	}
	check(t, b.Commit(false))
	if v, found, err := db.Get([]byte("key")); string(v) != "value" || !found || err != nil {
		t.Errorf("%q, %t, %v", v, found, err)
	}
	b = db.NewBatch()
	if !b.Empty() {
		t.Error("a new batch is not empty")
	}
	b.Delete([]byte("key"))
	check(t, b.Close())
	if _, found, _ := db.Get([]byte("key")); !found {
		t.Error("a batch that was dropped was applied")
	}
	check(t, db.Close())
}

func TestScan(t *testing.T) {
	db := open(t, vfs.NewMem())
	b := db.NewBatch()
	for _, k := range []string{"a", "b", "ba", "c", "d"} {
		b.Set([]byte(k), []byte("="+k))
	}
	check(t, b.Commit(true))
	errMine := errors.New("mine")
	for _, test := range []struct {
		lo, hi string
		end    string // f returns with at this key
		with   error
		want   string
		err    error
	}{
		{lo: "a", hi: "z", want: "a=a b=b ba=ba c=c d=d"},
		{lo: "b", hi: "c", want: "b=b ba=ba"},
		{lo: "b", hi: "b"},
		{lo: "bb", hi: "d", want: "c=c"},
		{lo: "e", hi: "z"},
		{lo: "a", hi: "z", end: "b", with: store.ErrStop, want: "a=a b=b"},
		{lo: "a", hi: "z", end: "ba", with: errMine, want: "a=a b=b ba=ba", err: errMine},
	} {
		var got []string
		err := db.Scan([]byte(test.lo), []byte(test.hi), func(k, v []byte) error {
			got = append(got, string(k)+string(v))
			if string(k) == test.end {
				return test.with
			}
			return nil
		})
		if s := strings.Join(got, " "); s != test.want || !errors.Is(err, test.err) || (err == nil) != (test.err == nil) {
			t.Errorf("[%s, %s) until %q: %q, %v; want %q, %v", test.lo, test.hi, test.end, s, err, test.want, test.err)
		}
	}
	if k, found, err := db.LastKey([]byte("a"), []byte("d")); string(k) != "c" || !found || err != nil {
		t.Errorf("the last of [a, d): %q, %t, %v", k, found, err)
	}
	if _, found, err := db.LastKey([]byte("x"), []byte("z")); found || err != nil {
		t.Errorf("the last of nothing: %t, %v", found, err)
	}
	b = db.NewBatch()
	b.DeleteRange([]byte("b"), []byte("c"))
	check(t, b.Commit(true))
	for k, want := range map[string]bool{"a": true, "b": false, "ba": false, "c": true} {
		if _, found, err := db.Get([]byte(k)); found != want || err != nil {
			t.Errorf("after [b, c) was deleted: %s is there: %t, %v", k, found, err)
		}
	}
	check(t, db.Close())
}

// TestKeyspaces holds that no keyspace reaches into another: a replica is
// dropped by one range, and its tombstone must stay.
func TestKeyspaces(t *testing.T) {
	groups := []uint64{0, 1, 2, 255, 256, 1<<32 - 1, 1 << 32, 1<<64 - 2}
	for _, g := range groups {
		lo, hi := store.GroupRange(g)
		if bytes.Compare(lo, hi) >= 0 {
			t.Errorf("group %d: the range [%x, %x) is empty", g, lo, hi)
		}
		inside := func(k []byte) bool { return bytes.Compare(k, lo) >= 0 && bytes.Compare(k, hi) < 0 }
		for _, sub := range []byte{store.SubHard, store.SubStart, store.SubApplied, store.SubReplica, store.SubEntry, store.SubState, store.SubState + 15} {
			k := store.GroupKey(g, sub)
			last := append(bytes.Clone(k), bytes.Repeat([]byte{0xff}, 40)...)
			if !inside(k) || !inside(last) {
				t.Errorf("group %d: keyspace %x is not in the group's range", g, sub)
			}
			if end := store.GroupEnd(g, sub); bytes.Compare(last, end) >= 0 || !bytes.Equal(store.GroupKey(g, sub+1), end) {
				t.Errorf("group %d: keyspace %x ends at %x", g, sub, end)
			}
		}
		for _, other := range groups {
			if other != g && inside(store.GroupKey(other, store.SubEntry)) {
				t.Errorf("group %d is in the range of group %d", other, g)
			}
			if inside(store.TombKey(other)) {
				t.Errorf("the tombstone of group %d is in the range of group %d", other, g)
			}
		}
		for _, k := range []byte{store.NodeFormat, store.NodeIdentity, store.NodePass, store.NodeFormation} {
			if inside(store.NodeKey(k)) {
				t.Errorf("the node's value %x is in the range of group %d", k, g)
			}
		}
		keys := [][]byte{store.EntryKey(g, 1), store.EntryKey(g, 255), store.EntryKey(g, 256), store.EntryKey(g, 1<<63)}
		if !slices.IsSortedFunc(keys, bytes.Compare) {
			t.Errorf("group %d: entries do not sort by their index", g)
		}
	}
}

// TestCrashKeepsAPrefix commits batches of three keys each, some synced, and
// crashes with a random part of what was not synced on the disk. What is there
// afterwards must be whole batches, a prefix of those committed, and no shorter
// than the last synced one.
func TestCrashKeepsAPrefix(t *testing.T) {
	lost, kept := false, false
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		fs := vfs.NewCrashableMem()
		db := open(t, fs)
		synced, n := 0, 5+rnd.IntN(60)
		value := bytes.Repeat([]byte("v"), 1+rnd.IntN(3000))
		for i := 1; i <= n; i++ {
			b := db.NewBatch()
			for part := range 3 {
				b.Set(fmt.Appendf(nil, "%04d/%d", i, part), value)
			}
			sync := rnd.IntN(8) == 0
			check(t, b.Commit(sync))
			if sync {
				synced = i
			}
		}
		crashed := fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rnd.IntN(101), RNG: rnd})
		after := open(t, crashed)
		last := 0
		for i := 1; i <= n; i++ {
			parts := 0
			for part := range 3 {
				if _, found, err := after.Get(fmt.Appendf(nil, "%04d/%d", i, part)); err != nil {
					t.Fatal(err)
				} else if found {
					parts++
				}
			}
			switch {
			case parts == 3 && last == i-1:
				last = i
			case parts != 0:
				t.Errorf("seed %d: %d keys of batch %d are there, and batches up to %d", seed, parts, i, last)
			}
		}
		if last < synced {
			t.Errorf("seed %d: batch %d was synced, and %d are there", seed, synced, last)
		}
		lost, kept = lost || last < n, kept || last > synced
		check(t, after.Close())
		check(t, db.Close())
	}
	if !lost || !kept {
		t.Errorf("no seed lost anything (%t) or kept anything unsynced (%t): the crashes prove nothing", lost, kept)
	}
}

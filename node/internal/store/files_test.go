package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"tidal/node/internal/store"
)

// content is what a database has in [a, z).
func content(t *testing.T, db *store.DB) []string {
	t.Helper()
	var out []string
	check(t, db.Scan([]byte("a"), []byte("z"), func(k, v []byte) error {
		out = append(out, string(k)+"="+string(v))
		return nil
	}))
	return out
}

// files writes keys with a value into files of two keys each.
func files(t *testing.T, db *store.DB, value string, keys ...string) []string {
	t.Helper()
	check(t, db.MakeFolder("staging/1"))
	var paths []string
	for part := range slices.Chunk(keys, 2) {
		f, err := db.CreateFile(fmt.Sprintf("staging/1/%d", len(paths)))
		check(t, err)
		for _, k := range part {
			check(t, f.Set([]byte(k), []byte(value)))
		}
		check(t, f.Close())
		paths = append(paths, f.Path())
	}
	return paths
}

// TestIngest puts files in place of a range, over what is in a memtable and over
// what is in files, and crashes before and after: the range is the old or the new
// one, and the rest is as it was.
func TestIngest(t *testing.T) {
	was := []string{"b=out", "c1=old", "c2=old", "c9=old", "d=out"}
	want := []string{"b=out", "c0=new", "c2=new", "c5=new", "d=out"}
	for _, flushed := range []bool{false, true} {
		t.Run(fmt.Sprintf("flushed %t", flushed), func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			db := open(t, fs)
			for _, k := range []string{"b", "c1", "c2", "c9", "d"} {
				value := "old"
				if len(k) == 1 {
					value = "out"
				}
				set(t, db, k, value)
			}
			if flushed {
				check(t, db.Close())
				db = open(t, fs)
			}
			paths := files(t, db, "new", "c0", "c2", "c5")
			after := func(when string, want []string) {
				t.Helper()
				left := open(t, fs.CrashClone(vfs.CrashCloneCfg{}))
				if got := content(t, left); !slices.Equal(got, want) {
					t.Errorf("after a crash %s the database has %q, want %q", when, got, want)
				}
				check(t, left.Close())
			}
			after("before", was)
			check(t, db.Ingest([]byte("c"), []byte("d"), paths))
			after("right after", want)
			if got := content(t, db); !slices.Equal(got, want) {
				t.Errorf("the database has %q, want %q", got, want)
			}
			set(t, db, "c5", "newer")
			later := slices.Clone(want)
			later[3] = "c5=newer"
			after("later", later)
			check(t, db.RemoveFolder("staging"))
			if _, err := fs.Stat("staging"); err == nil {
				t.Error("the folder is still there")
			}
			check(t, db.Close())
		})
	}
}

// TestIngestRefuses holds that what does not fit changes nothing.
func TestIngestRefuses(t *testing.T) {
	db := open(t, vfs.NewMem())
	set(t, db, "c1", "old")
	for name, paths := range map[string][]string{
		"overlapping": files(t, db, "new", "c0", "c3", "c2", "c4"),
		"not there":   {"staging/1/99"},
	} {
		if err := db.Ingest([]byte("c"), []byte("d"), paths); err == nil {
			t.Errorf("%s: it is taken", name)
		}
		if got := content(t, db); !slices.Equal(got, []string{"c1=old"}) {
			t.Errorf("%s: the database has %q", name, got)
		}
	}
	f, err := db.CreateFile("staging/1/order")
	check(t, err)
	check(t, f.Set([]byte("c2"), nil))
	if err := f.Set([]byte("c1"), nil); err == nil {
		t.Error("keys out of order are taken")
	}
	_ = f.Close() // it has an error, which is the test
	check(t, db.Close())
}

// TestViewStands changes a range, and takes it away by an ingest, under a view.
func TestViewStands(t *testing.T) {
	db := open(t, vfs.NewMem())
	for i := range 10 {
		set(t, db, fmt.Sprint("c", i), "old")
	}
	set(t, db, "d", "out")
	v, err := db.View([]byte("c"), []byte("d"))
	check(t, err)
	set(t, db, "c5", "new")
	check(t, db.Ingest([]byte("c"), []byte("d"), files(t, db, "new", "c0", "c2")))
	for range 2 {
		n := 0
		for ok := v.Seek([]byte("c")); ok; ok = v.Next() {
			if string(v.Key()) != fmt.Sprint("c", n) || string(v.Value()) != "old" {
				t.Errorf("the view has %s=%s", v.Key(), v.Value())
			}
			n++
		}
		if n != 10 {
			t.Errorf("the view has %d keys", n)
		}
	}
	check(t, v.Err())
	check(t, v.Close())
	if got := content(t, db); !slices.Equal(got, []string{"c0=new", "c2=new", "d=out"}) {
		t.Errorf("the database has %q", got)
	}
	check(t, db.Close())
}

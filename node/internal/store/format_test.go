package store_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"tidal/node/internal/store"
)

func TestNotedFormat(t *testing.T) {
	disk := vfs.NewMem()
	if err := store.CheckFormat(disk, "FORMAT"); err != nil {
		t.Errorf("of an empty directory: %v", err)
	}
	for range 2 {
		if err := store.WriteFormat(disk, "FORMAT"); err != nil {
			t.Fatal(err)
		}
		if err := store.CheckFormat(disk, "FORMAT"); err != nil {
			t.Errorf("of its own: %v", err)
		}
	}
	for text, want := range map[string]string{
		fmt.Sprint(store.Format + 1): fmt.Sprintf("of format %d, this binary reads up to format %d", store.Format+1, store.Format),
		"x":                          "damaged",
		"":                           "damaged",
	} {
		f, err := disk.Create("FORMAT", vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err = f.Close(); err != nil {
			t.Fatal(err)
		}
		if err := store.CheckFormat(disk, "FORMAT"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

// TestANoteIsWholeAfterACrash cuts the power before every operation of the disk that
// writing a number makes, with any part of what is not synced there: the old number is
// left or the new one, never a file that holds none, and the new one once it is written.
func TestANoteIsWholeAfterACrash(t *testing.T) {
	news := 0
	for at := 0; ; at++ {
		done := false
		for seed := range uint64(100) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			fs := vfs.NewCrashableMem()
			crash := func() *vfs.MemFS {
				return fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rnd.IntN(101), RNG: rnd})
			}
			check(t, store.WriteNote(fs, "LEVEL", 1))
			var left *vfs.MemFS
			ops := 0
			check(t, store.WriteNote(errorfs.Wrap(fs, errorfs.InjectorFunc(func(errorfs.Op) error {
				if ops == at {
					left = crash()
				}
				ops++
				return nil
			})), "LEVEL", 2))
			if done = left == nil; done {
				left = crash()
			}
			n, found, err := store.ReadNote(left, "LEVEL")
			if err != nil || !found || n != 1 && n != 2 || done && n != 2 {
				t.Fatalf("power cut before operation %d of %d, seed %d: %d, %t, %v", at, ops, seed, n, found, err)
			}
			news += int(n - 1)
		}
		if done {
			break
		}
	}
	if news <= 100 {
		t.Errorf("%d power cuts came after the new number: the test sees too little", news)
	}
}

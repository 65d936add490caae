package store_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

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

// TestANoteIsWholeAfterACrash: a crash leaves the old number or the new one, never a file
// that holds none.
func TestANoteIsWholeAfterACrash(t *testing.T) {
	news := 0
	for seed := range uint64(100) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		fs := vfs.NewCrashableMem()
		check(t, store.WriteNote(fs, "LEVEL", 1))
		dir, err := fs.OpenDir("")
		check(t, err)
		check(t, errors.Join(dir.Sync(), dir.Close()))
		check(t, store.WriteNote(fs, "LEVEL", 2))
		n, found, err := store.ReadNote(fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rnd.IntN(101), RNG: rnd}), "LEVEL")
		if err != nil || !found || n != 1 && n != 2 {
			t.Fatalf("seed %d: %d, %t, %v", seed, n, found, err)
		}
		news += int(n - 1)
	}
	if news == 0 || news == 100 {
		t.Errorf("%d of 100 crashes came after the new number: the test sees too little", news)
	}
}

package generic_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/roll/generic"
)

func openJournal(t *testing.T, path string) *generic.File {
	t.Helper()
	f, err := generic.OpenFile(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// TestLockNotGivenUp: a process that stands still while it changes the journal holds up
// the others for a while, and then they say which file it is.
func TestLockNotGivenUp(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rolls.json")
	f := openJournal(t, path)
	lock, err := os.Create(path + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		_, err := f.ChangeRoll(t.Context(), api.RollStart, 0, api.RollChange{By: "ann", Data: []byte(`{}`)})
		busy, ok := errors.AsType[*generic.BusyError](err)
		if !ok || busy.Path != path+".lock" || !strings.Contains(err.Error(), path+".lock: another process has held it for 10s") || time.Since(began) != 10*time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// TestUnlockedHalf: an unlock that was killed after the journal was written, and before
// the lock of an operator that lives was taken away, keeps nobody from the next roll.
func TestUnlockedHalf(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rolls.json")
	start := api.RollChange{By: "ann", Data: []byte(`{}`)}
	first, second := openJournal(t, path), openJournal(t, path)
	r, err := first.ChangeRoll(t.Context(), api.RollStart, 0, start)
	if err != nil {
		t.Fatal(err)
	}
	kept := path + ".kept"
	if err = os.Link(path+".holder", kept); err != nil {
		t.Fatal(err)
	}
	if _, err = second.ChangeRoll(t.Context(), api.RollUnlock, r.ID, api.RollChange{By: "bob", Why: "it hangs"}); err != nil {
		t.Fatal(err)
	}
	if err = os.Rename(kept, path+".holder"); err != nil {
		t.Fatal(err)
	}
	if r, err = second.ChangeRoll(t.Context(), api.RollStart, 0, start); err != nil || r.ID != 2 {
		t.Fatalf("the next roll: %+v, %v", r, err)
	}
	if alive, _ := first.Holder(); alive {
		t.Error("the first one takes another's lock for its own")
	}
	first.Close()
	if alive, who := openJournal(t, path).Holder(); !alive {
		t.Errorf("the holder of the second roll is gone with the first: %s", who)
	}
}

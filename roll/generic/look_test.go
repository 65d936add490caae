package generic_test

import (
	"errors"
	"path/filepath"
	"sync"
	"testing"

	"tidal/node/api"
	"tidal/roll/generic"
)

// TestLooking: whoever looks whether the holder of a roll lives keeps nobody from taking
// it, and takes nobody else who looks for the holder.
func TestLooking(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "rolls.json")
	open := func() *generic.File {
		f, err := generic.OpenFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(f.Close)
		return f
	}
	first, second := open(), open()
	r, err := first.ChangeRoll(t.Context(), api.RollStart, 0, api.RollChange{By: "ann", Data: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	var looks sync.WaitGroup
	over := make(chan struct{})
	for range 4 {
		f := open()
		looks.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
					f.Holder()
				}
			}
		})
	}
	for i := range 40 {
		first.Close() // as its death does
		next, takeErr := second.ChangeRoll(t.Context(), api.RollTake, r.ID, api.RollChange{Epoch: r.Epoch, By: "bob"})
		if err = errors.Join(err, takeErr); err != nil {
			t.Errorf("after %d times: %v", i, err)
			break
		}
		if alive, who := first.Holder(); !alive {
			t.Errorf("after %d times: %s is not alive", i, who)
		}
		r, first, second = next, second, first
	}
	close(over)
	looks.Wait()
}

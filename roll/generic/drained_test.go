package generic_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"tidal/roll"
)

// TestDrainedRunIsOver: what was drained is a run of a node. One that ends by itself right
// before it is restarted leaves another behind, which is not drained.
func TestDrainedRunIsOver(t *testing.T) {
	t.Parallel()
	p, s := newPlayed(t)
	o := newOperator(t, s)
	o.begin(t, roll.Options{Only: []string{"n1"}})
	ended := false
	o.runner.Say = func(e roll.Event) {
		if e.State != roll.StatePeersAcked || ended {
			return
		}
		ended = true
		f, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_APPEND|os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString("restart n1 itself\n")
			_ = f.Close() // it was written
		}
		if err != nil {
			t.Error(err)
		}
	}
	if _, err := o.runner.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"drain n1", "restart n1 itself", "drain n1", "restart n1 1", "undrain n1"}
	if got := p.log(); !slices.Equal(got, want) {
		t.Errorf("what was run is %v, want %v", got, want)
	}
}

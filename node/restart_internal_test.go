package node

import (
	"testing"

	"tidal/node/api"
)

// TestOneRestartAtATime: an order for a binary that would not run is not taken, neither
// while another waits nor while it is obeyed; the same order again is.
func TestOneRestartAtATime(t *testing.T) {
	n := &node{}
	n.restart.wanted = make(chan another, 1)
	orders := func(binary string, code api.Code) {
		t.Helper()
		if err := n.restart.order(another{binary: binary}); api.CodeOf(err) != code {
			t.Errorf("order of binary %q: %v, want %q", binary, err, code)
		}
	}
	orders("a", "")
	orders("a", "")
	orders("", api.CodeNotReady)
	if err := n.restart.order(another{binary: "a", checked: "since"}); api.CodeOf(err) != api.CodeNotReady {
		t.Errorf("another that was checked: %v", err)
	}
	if got := <-n.restart.wanted; got.binary != "a" {
		t.Errorf("binary %q is to run", got.binary)
	}
	orders("a", "")
	orders("b", api.CodeNotReady)
	n.restart.ordered.Store(nil) // as stay does
	orders("b", "")
	if got := <-n.restart.wanted; got.binary != "b" {
		t.Errorf("binary %q is to run", got.binary)
	}
	if len(n.restart.wanted) != 0 {
		t.Error("there is another order")
	}
}

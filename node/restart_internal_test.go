package node

import (
	"testing"

	"tidal/node/api"
)

// TestOneRestartAtATime: an order for a binary that would not run is not taken, neither
// while another waits nor while it is obeyed; the same order again is.
func TestOneRestartAtATime(t *testing.T) {
	n := &node{}
	n.restart.wanted = make(chan string, 1)
	orders := func(binary string, code api.Code) {
		t.Helper()
		if err := n.restart.order(binary); api.CodeOf(err) != code {
			t.Errorf("order of binary %q: %v, want %q", binary, err, code)
		}
	}
	orders("a", "")
	orders("a", "")
	orders("", api.CodeNotReady)
	if got := <-n.restart.wanted; got != "a" {
		t.Errorf("binary %q is to run", got)
	}
	orders("a", "")
	orders("b", api.CodeNotReady)
	n.restart.ordered.Store(nil) // as stay does
	orders("b", "")
	if got := <-n.restart.wanted; got != "b" {
		t.Errorf("binary %q is to run", got)
	}
	if len(n.restart.wanted) != 0 {
		t.Error("there is another order")
	}
}

package tui

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"tidal/node/api"
)

// hanging are nodes that take an order and never answer it.
type hanging struct {
	*nodes

	once  sync.Once
	asked chan struct{} // closed: an order came
	ended chan error    // how the order ended
}

func (h *hanging) DrainNode(ctx context.Context, _ string, _ api.NodeOrder) (api.NodeReport, error) {
	h.once.Do(func() { close(h.asked) })
	<-ctx.Done()
	h.ended <- ctx.Err()
	return api.NodeReport{}, ctx.Err()
}

// TestInterruptedWhileNodesHang: Ctrl-C waits for no node, neither one that was given an
// order nor one that is asked how it is, and ends what is under way.
func TestInterruptedWhileNodesHang(t *testing.T) {
	t.Parallel()
	in, keys, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	plain := struct{ io.Reader }{in}                                             // a file that it waits for by epoll it closes while it may still look at it
	t.Cleanup(func() { _ = errors.Join(in.Close(), keys.Close(), out.Close()) }) // nothing is read of them any more
	press := func(text string) {
		if _, err := keys.WriteString(text); err != nil {
			t.Error(err)
		}
	}
	h := &hanging{nodes: newNodes(), asked: make(chan struct{}), ended: make(chan error, 100)}
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), Options{Source: h, Theme: "mono", In: plain, Out: out}) }()
	for asked := false; !asked; {
		press("dy") // drain the node that is chosen, once one is known
		select {
		case <-h.asked:
			asked = true
		case err := <-done:
			t.Fatalf("it ended by itself: %v", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
	h.set(func() {
		for endpoint := range h.tell {
			h.slow[endpoint] = time.Hour
		}
	})
	press("\x03")
	select {
	case err := <-done:
		if !errors.Is(err, ErrInterrupted) {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(actLimit / 2):
		t.Fatal("it waits for the nodes")
	}
	if err := <-h.ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the order ended with %v", err)
	}
}

package main

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

func TestPercentFor(t *testing.T) {
	for live, want := range map[uint64]int{0: 400, 1 << 20: 400, 16 << 20: 400, 32 << 20: 200, 64 << 20: 100, 1 << 30: 100} {
		if got := percentFor(live); got != want {
			t.Errorf("%d bytes live: %d %%, want %d", live, got, want)
		}
	}
}

// TestPaceGC: the collector follows the size of the heap, and is as it was at the end.
func TestPaceGC(t *testing.T) {
	percent := func() int {
		p := debug.SetGCPercent(gcPercent)
		debug.SetGCPercent(p)
		return p
	}
	becomes := func(when string, ok func(int) bool) {
		t.Helper()
		deadline, tick := time.After(10*time.Second), time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for !ok(percent()) {
			runtime.GC()
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("%s: %d %%", when, percent())
			}
		}
	}
	stop := paceGC(func(string) (string, bool) { return "", false })
	becomes("a small heap", func(p int) bool { return p > gcPercent })
	large := make([]byte, 2*gcLeast)
	becomes("a large one", func(p int) bool { return p == gcPercent })
	runtime.KeepAlive(large)
	becomes("a small one again", func(p int) bool { return p > gcPercent })
	stop()
	runtime.GC()
	becomes("the end", func(p int) bool { return p == gcPercent })
	paceGC(func(string) (string, bool) { return "50", true })()
}

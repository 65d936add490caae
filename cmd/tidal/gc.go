package main

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
)

// The collector lets as much garbage gather as the heap has live bytes: with the few that
// a node mostly has it would run many times a second under load, which costs 3 % of a
// write. So gcLeast may gather in any case. A large heap is collected as ever.
const (
	gcLeast       = 64 << 20 // bytes
	gcPercent     = 100      // of the live bytes, as the runtime has it
	gcPercentMost = 400
)

// percentFor returns how many percent of so many live bytes may gather as garbage.
func percentFor(live uint64) int {
	return int(min(max(gcLeast*100/max(live, 1), gcPercent), gcPercentMost))
}

// paceGC has the collector run seldom while the heap is small, until the returned function
// is called. An operator's GOGC stands.
func paceGC(env func(string) (string, bool)) (stop func()) {
	if _, set := env("GOGC"); set {
		return func() {}
	}
	p := &gcPacer{}
	p.watch()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.mu.over = true
		debug.SetGCPercent(gcPercent)
	}
}

type gcPacer struct {
	mu struct {
		sync.Mutex
		over bool
		now  int // percent
	}
}

// watch has adapt called after the next collection.
func (p *gcPacer) watch() {
	sentinel := new([64]byte) // which nobody keeps
	runtime.AddCleanup(sentinel, func(p *gcPacer) { p.adapt() }, p)
}

func (p *gcPacer) adapt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.over {
		return
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	want, now := percentFor(live[0].Value.Uint64()), p.mu.now
	if max(want-now, now-want) > now/8 { // setting it stops the world
		debug.SetGCPercent(want)
		p.mu.now = want
	}
	p.watch()
}

package node

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Giving memory back. What a burst of work left free stays with the process,
// since the next one may want it; a node on which nothing happens has no use for it.
const (
	trimLook = 20 * time.Second
	trimFree = 8 << 20 // bytes, at least
)

// trim gives free memory back to the system while the node is idle.
func (n *node) trim(ctx context.Context) error {
	t := time.NewTicker(trimLook)
	defer t.Stop()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/free:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}}
	was := n.host.Awake()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
		awake := n.host.Awake()
		metrics.Read(sample)
		if idle(max(was, awake), sample[0].Value.Uint64()+sample[1].Value.Uint64()) {
			debug.FreeOSMemory()
		}
		was = awake
	}
}

// idle reports whether a node on which so many groups were awake, now and at the
// last look, should give back so many free bytes. The meta group always is.
func idle(awake int, free uint64) bool { return awake <= 1 && free >= trimFree }

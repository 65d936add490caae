package owner

import (
	"context"

	"tidal/node/api"
)

// Pacer is pacer.
func Pacer(ctx context.Context, rate int) func(n int) error { return pacer(ctx, rate) }

// Looking returns how many wait for a mark at the replica here.
func (t *Tables) Looking(id api.TableID) int {
	l := &t.find(id).looks
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.mu.waiting)
}

package sim

import (
	"fmt"
	"math/rand/v2"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// mostChanges is how many changes a batch has at most.
const mostChanges = 6

// batches makes two of three runs write and read several rows at once, in a share of
// the requests. It draws from a stream of its own, so that the other runs stay what
// they are.
type batches struct {
	rng   *rand.Rand
	share float64
}

func newBatches(w *world) *batches {
	rng := rand.New(rand.NewPCG(w.o.Seed, 2)) //nolint:gosec // runs repeat
	share := [...]float64{0, 0.15, 0.5}[rng.IntN(3)]
	if share == 0 {
		return nil
	}
	return &batches{rng, share}
}

// turns reports whether a request becomes one of several rows.
func (b *batches) turns() bool { return b != nil && b.rng.Float64() < b.share }

// read makes a read one of all rows.
func (b *batches) read(o *op) {
	if !b.turns() {
		return
	}
	o.keys = make([]string, rowCount)
	for i := range o.keys {
		o.keys[i] = keyOf(i)
	}
}

// write makes a write a batch that begins with it, of rows that may stand in it
// more than once.
func (b *batches) write(o *op) {
	if !b.turns() {
		return
	}
	c := &o.command
	list := []api.Change{{Key: c.Key, Value: c.Value}}
	for i := range b.rng.IntN(mostChanges) {
		list = append(list, api.Change{
			Key:    keyOf(b.rng.IntN(rowCount)),
			Value:  fmt.Appendf(nil, "%d.%d of client %d", o.c.count, i+2, o.c.number),
			Delete: b.rng.IntN(4) == 0,
		})
	}
	c.Op, c.Key, c.Value = api.OpBatch, "", wire.AppendChanges(nil, list)
}

func keyOf(i int) string { return fmt.Sprintf("key-%d", i) }

package table

import (
	"math/rand/v2"
	"testing"
)

// TestQueue compares the queue with a slice, over the borders of its pieces.
func TestQueue(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 1))
	var q queue
	var want []uint64
	next := uint64(0)
	for range 200 {
		for range rnd.IntN(2 * queueChunk) {
			next++
			q.push(queued{index: next})
			want = append(want, next)
		}
		for range rnd.IntN(2*queueChunk + queueChunk/8) {
			e, some := q.oldest()
			if some != (len(want) > 0) || some && e.index != want[0] {
				t.Fatalf("oldest is %d, %t of %d", e.index, some, len(want))
			}
			if !some {
				break
			}
			q.pop()
			want = want[1:]
		}
		i := 0
		q.all(func(e queued) {
			if i >= len(want) || e.index != want[i] {
				t.Fatalf("at %d: %d", i, e.index)
			}
			i++
		})
		if i != len(want) {
			t.Fatalf("%d of %d are there", i, len(want))
		}
	}
}

package table

import (
	"time"

	"tidal/node/api"
)

// queueChunk is how many ids stand in one piece of a queue.
const queueChunk = 1024

// queued is an id that is to be forgotten in its turn.
type queued struct {
	id    api.RequestID
	at    time.Duration // by the table's clock
	index uint64        // of the entry that answered it
}

// queue is a first-in first-out list in pieces, so that it takes hardly more
// memory than what is in it.
type queue struct {
	chunks [][]queued
	head   int // chunks[0][:head] is gone
}

func (q *queue) push(e queued) {
	n := len(q.chunks)
	switch {
	case n == 0:
		q.chunks = append(q.chunks, []queued{e}) // grows as it fills: most tables have few
	case len(q.chunks[n-1]) < queueChunk:
		q.chunks[n-1] = append(q.chunks[n-1], e)
	default:
		q.chunks = append(q.chunks, append(make([]queued, 0, queueChunk), e))
	}
}

// oldest returns the entry that came first, and whether there is any.
func (q *queue) oldest() (queued, bool) {
	if len(q.chunks) == 0 {
		return queued{}, false
	}
	return q.chunks[0][q.head], true
}

// newest returns the entry that came last, and whether there is any.
func (q *queue) newest() (queued, bool) {
	if len(q.chunks) == 0 {
		return queued{}, false
	}
	last := q.chunks[len(q.chunks)-1]
	return last[len(last)-1], true
}

// pop drops the oldest, of which there must be one.
func (q *queue) pop() {
	q.head++
	if q.head < len(q.chunks[0]) {
		return
	}
	q.head = 0
	q.chunks[0] = nil
	q.chunks = q.chunks[1:]
}

// all calls f for each, oldest first.
func (q *queue) all(f func(queued)) {
	for i, c := range q.chunks {
		if i == 0 {
			c = c[q.head:]
		}
		for _, e := range c {
			f(e)
		}
	}
}

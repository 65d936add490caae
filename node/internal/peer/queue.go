package peer

import (
	"context"
	"errors"
	"sync"

	"tidal/node/internal/wire"
)

// Who queues a frame may write it, but must not wait for the other side to read: its
// own context may end first, and a write cannot be given up in the middle.
const (
	maxDirect    = 16 << 10 // the longest frame, in bytes, that is written so
	directRounds = 4        // how often it takes along what others have queued meanwhile
	// maxUnheard is how much is written so since the other side was heard last: as much
	// as the buffers between take of one that reads nothing.
	maxUnheard = 64 << 10
)

var (
	errFull   = errors.New("too much waits to be written")
	errClosed = errors.New("the connection is closed")
)

// item is one frame to write.
type item struct {
	kind    wire.FrameKind
	payload []byte
	call    *call // of a call: asked before it is written
}

// queue holds what waits to be written to one connection, bounded in bytes.
type queue struct {
	wake chan struct{} // capacity 1: there is something to take
	mu   struct {
		sync.Mutex
		items   []item
		head    int // items before it are taken
		size    int // bytes of the others
		room    chan struct{}
		writing bool // somebody takes and writes
		closed  bool
	}
}

// push adds a frame, or returns errFull or errClosed.
func (q *queue) push(it item) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, err := q.pushLocked(it)
	if err == nil {
		notify(q.wake)
	}
	return err
}

// pushLocked adds a frame. If the queue is full it returns errFull and a channel
// that is closed when there is room again. An empty queue takes any frame.
func (q *queue) pushLocked(it item) (<-chan struct{}, error) {
	n := wire.FrameHeader + len(it.payload)
	switch {
	case q.mu.closed:
		return nil, errClosed
	case q.mu.size > 0 && q.mu.size+n > maxQueue:
		if q.mu.room == nil {
			q.mu.room = make(chan struct{})
		}
		return q.mu.room, errFull
	}
	q.mu.items = append(q.mu.items, it)
	q.mu.size += n
	return nil, nil
}

// wait adds a frame, once there is room. It returns errClosed or ctx's error, and
// whether the caller is to write what waits, since nobody does: then it calls written
// when it has.
func (q *queue) wait(ctx context.Context, it item) (mine bool, err error) {
	for {
		q.mu.Lock()
		room, err := q.pushLocked(it)
		switch {
		case err != nil || q.mu.writing:
		case len(it.payload) > maxDirect:
			notify(q.wake) // it may take long
		default:
			q.mu.writing, mine = true, true
		}
		q.mu.Unlock()
		if !errors.Is(err, errFull) {
			return mine, err
		}
		select {
		case <-room:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

// claim reports whether the caller is to write what waits, as wait does.
func (q *queue) claim() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.mu.writing || q.mu.head == len(q.mu.items) {
		return false
	}
	q.mu.writing = true
	return true
}

// written ends what claim or wait began. If more waits, more has the caller go on; without
// it the session's own writer is woken for that.
func (q *queue) written(more bool) (goOn bool) { //nolint:revive // the flag is the caller's patience
	q.mu.Lock()
	defer q.mu.Unlock()
	left := q.mu.head < len(q.mu.items)
	if left && more {
		return true
	}
	q.mu.writing = false
	if left {
		notify(q.wake)
	}
	return false
}

// take moves frames to the end of buf until there is none, the next one is longer than
// longest, or buf has most bytes. What is left wakes the writer again, which has
// heartbeats to look at in between.
func (q *queue) take(buf []byte, most, longest int) []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	m := &q.mu
	for m.head < len(m.items) && len(buf) < most && len(m.items[m.head].payload) <= longest {
		it := m.items[m.head]
		m.items[m.head] = item{}
		m.head++
		m.size -= wire.FrameHeader + len(it.payload)
		if it.call == nil || it.call.send() {
			buf = wire.AppendFrame(buf, it.kind, it.payload)
		}
	}
	if 2*m.head >= len(m.items) {
		n := copy(m.items, m.items[m.head:])
		clear(m.items[n:])
		m.items, m.head = m.items[:n], 0
	}
	if len(m.items) > 0 {
		notify(q.wake)
	}
	q.freeLocked()
	return buf
}

// close refuses frames from now on and drops those that wait.
func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.mu.closed = true
	q.mu.items, q.mu.head, q.mu.size = nil, 0, 0
	q.freeLocked()
}

func (q *queue) freeLocked() {
	if q.mu.room != nil {
		close(q.mu.room)
		q.mu.room = nil
	}
}

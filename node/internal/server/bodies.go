package server

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"tidal/node/api"
)

// maxBodies bounds the bytes of bodies that clients send or read now, all together:
// slow ones hold theirs for long.
const maxBodies = 256 << 20

// bodyStep is what is allocated for a body before any of it has come: a length
// alone costs its sender nothing.
const bodyStep = 4 << 10

// bodies counts the bytes of the bodies that are on their way.
type bodies struct {
	held  atomic.Int64
	limit int64 // 0: maxBodies
}

// hold counts n more bytes for the exchange, until it ends.
func (x *exchange) hold(n int) error {
	if err := x.s.bodies.hold(n); err != nil {
		return err
	}
	x.held += int64(n)
	return nil
}

// hold counts n more bytes.
func (b *bodies) hold(n int) error {
	limit := b.limit
	if limit == 0 {
		limit = maxBodies
	}
	if b.held.Add(int64(n)) > limit {
		b.held.Add(-int64(n))
		return &api.Error{
			Code:       api.CodeTooMany,
			Message:    fmt.Sprintf("clients send and read too much at once here: the limit is %d bytes", limit),
			RetryAfter: time.Second,
		}
	}
	return nil
}

// release gives back what the exchange held.
func (x *exchange) release() { x.s.bodies.held.Add(-x.held) }

// grow gives a full buffer more room, up to most bytes in all.
func (x *exchange) grow(buf []byte, most int) ([]byte, error) {
	size := min(max(2*cap(buf), bodyStep), most)
	if err := x.hold(size - cap(buf)); err != nil {
		return nil, err
	}
	return append(make([]byte, 0, size), buf...), nil
}

// send writes a body, of each chunk of which the client may take its time. An
// error means that it left, or took too long; there is nobody to tell.
func (x *exchange) send(body []byte) {
	c := http.NewResponseController(x.w)
	for len(body) > 0 {
		chunk := body[:min(len(body), bodyChunk)]
		if len(chunk) == bodyChunk {
			// net/http may first have to wait for what the client has not sent of its
			// own body. A connection that knows no deadlines has none.
			_ = c.SetWriteDeadline(time.Now().Add(2 * bodyPatience))
		}
		if _, err := x.w.Write(chunk); err != nil {
			return
		}
		body = body[len(chunk):]
	}
}

// Bodies returns the bytes of the bodies that clients send or read now.
func (s *Server) Bodies() int64 { return s.bodies.held.Load() }

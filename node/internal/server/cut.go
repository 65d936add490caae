package server

import (
	"context"
	"errors"
	"net/http"
)

// errNodeEnds is why what is under way on streams and lanes is given up at last.
var errNodeEnds = errors.New("the node ends")

// byNode reports whether a request's context ended because the node does. If its client
// left before, that was the end of it.
func byNode(ctx context.Context) bool {
	if ctx.Err() == nil {
		return false
	}
	cause := context.Cause(ctx)
	left := errors.Is(cause, context.Canceled) || errors.Is(cause, errClientLeft) // as net/http says it, and as we do
	return !left
}

// cut reports whether the end of the node keeps the client from its answer, or from a
// part of it.
func (x *exchange) cut() bool {
	switch {
	case !byNode(x.r.Context()) || x.rt == nil || !x.rt.counts:
		return false
	case x.status == statusClientLeft:
		return true
	}
	// Where a write has failed, this fails too; and what was written may still wait here,
	// for a connection that is closed by now.
	return x.wrote && http.NewResponseController(x.w).Flush() != nil
}

// Answering reports whether a request that is not on a stream is under way, or its answer
// is not written yet.
func (s *Server) Answering() bool {
	return len(s.those(func(one *conn) bool { return one.active })) > 0
}

package node

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Times for requests that the node does not wait for any more.
const (
	cutAnswer = 250 * time.Millisecond // for their connections to hear what there is to say
	cutCount  = 500 * time.Millisecond // for the rest to be counted, once their connections are closed
)

// under has the requests of clients end with run, or when they are cut off.
func (n *node) under(run context.Context, web *http.Server) {
	var clients context.Context
	clients, n.cut = context.WithCancelCause(run)
	web.BaseContext = func(net.Listener) context.Context { return clients }
}

// endRequests ends what clients have asked: with its answer while end lasts, and without
// afterwards, or once run has ended. When it returns, what was cut off is counted.
func (n *node) endRequests(end, run context.Context, web *http.Server) {
	n.server.EndStreams(end)
	rest := context.WithoutCancel(end)
	if run.Err() == nil {
		n.closeWeb(end, web)
		n.cut(errDone)
		// An answer that is there is written before its connection is closed.
		n.await(rest, cutAnswer, func(time.Duration) bool { return !n.server.Answering() })
	}
	if err := web.Close(); err != nil {
		n.log.WarnContext(rest, "close the port", "error", err)
	}
	n.await(rest, cutCount, func(time.Duration) bool {
		inFlight, _ := n.server.Activity()
		return inFlight == 0
	})
}

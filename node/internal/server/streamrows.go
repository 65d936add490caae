package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime/debug"
	"time"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// The routes of rows, over plain HTTP and in the counts of both.
const (
	rowPath  = "/v1/tables/{table}/rows/{key}"
	rowsPath = "/v1/tables/{table}/rows"
)

// rowCall is one request for a row on a stream, and its answer.
type rowCall struct {
	st    *stream
	start time.Time
	event Event
	held  int64
}

// answer serves a call and replies to it. A call that is malformed ends the stream.
func (st *stream) answer(ctx context.Context, c *wire.Call) {
	a := rowCall{st: st, start: time.Now(), event: Event{Route: rowPath, Status: http.StatusOK}}
	st.s.begin()
	defer func() {
		st.s.end()
		st.done()
	}()
	payload, err := a.serve(ctx, c)
	a.event.Took = time.Since(a.start) // what follows may be the writing of what others answered
	switch {
	case errors.Is(err, wire.ErrMalformed):
		st.s.o.Log.DebugContext(ctx, "a client's call is malformed", "client", st.who.Name, "error", err.Error())
		st.close()
	case err != nil && ctx.Err() != nil && api.CodeOf(err) == "":
		// The client left, or the node ends. Who still reads is to see the stream
		// break, and no error that would keep it from asking elsewhere.
		a.event.Status, a.event.Cut = statusClientLeft, byNode(ctx)
		st.close()
	default:
		a.event.Cut = st.reply(c.ID, payload, a.refusal(ctx, err)) != nil && byNode(ctx)
	}
	st.s.bodies.held.Add(-a.held)
	st.s.o.Observe(a.event)
}

// reply pushes the reply to a call. It fails only with the stream, and then nobody
// waits for it.
func (st *stream) reply(id uint64, payload []byte, e *api.Error) error {
	b := make([]byte, wire.FrameHeader, wire.FrameHeader+16+len(payload))
	b = wire.AppendReply(b, wire.Reply{ID: id, Payload: payload, Err: e})
	return st.push(wire.FinishFrame(b, wire.FrameReply))
}

// refusal returns what the client is told of an error, and notes it; nil for none.
func (a *rowCall) refusal(ctx context.Context, err error) *api.Error {
	if err == nil {
		return nil
	}
	e := api.AsError(err)
	kind := api.KindOf(e.Code)
	if kind.Code == api.CodeInternal && !errors.Is(err, e) {
		a.st.s.o.Log.ErrorContext(ctx, "a request failed", "route", rowPath, "method", a.event.Method, "error", err)
	}
	a.event.Status, a.event.Code = kind.Status, e.Code
	return e
}

// serve does what the call asks, and returns the payload of its reply.
func (a *rowCall) serve(ctx context.Context, c *wire.Call) (payload []byte, err error) {
	defer func() {
		if failure := recover(); failure != nil {
			a.st.s.o.Log.ErrorContext(ctx, "a handler panicked", "route", rowPath, "method", a.event.Method,
				"panic", fmt.Sprint(failure), "stack", string(debug.Stack()))
			err = api.AsError(errPanic)
		}
	}()
	if c.Method != wire.ClientRow {
		return nil, badRequest("this release knows no calls of kind %d on a client's stream", c.Method)
	}
	q, err := wire.DecodeClientRequest(c.Payload)
	if err != nil {
		return nil, err
	}
	if err = a.admit(q); err != nil {
		return nil, err
	}
	req := &q.Request
	if req.Op == api.OpBatch {
		if err = a.hold(api.ParseBytes(req.Value)); err != nil {
			return nil, err
		}
		if req.Changes, err = api.ParseChanges(req.Value, 1); err != nil {
			return nil, err
		}
		req.Value = nil
	}
	if c.Timeout > 0 {
		req.Deadline = a.start.Add(c.Timeout)
	}
	if req.Op.Writes() {
		if err = a.st.s.identify(ctx, req, a.st.who, q.Idem); err != nil {
			return nil, err
		}
	}
	resp, err := a.st.s.o.Rows.Do(ctx, req)
	if err != nil {
		return nil, err
	}
	switch {
	case req.Op == api.OpBatch:
	case req.Op.Writes():
		a.event.Status = http.StatusNoContent
	case !resp.Found:
		a.event.Status, a.event.Code = http.StatusNotFound, api.CodeRowNotFound
	}
	if err = a.hold(len(resp.Value)); err != nil {
		return nil, err
	}
	return wire.AppendClientResponse(nil, &wire.ClientResponse{Response: *resp, Position: reached(req, resp)}), nil
}

// admit checks a request as HTTP's are, and who asks.
func (a *rowCall) admit(q *wire.ClientRequest) error {
	need := needWriter
	switch q.Op {
	case api.OpGet:
		a.event.Method, need = http.MethodGet, needReader
	case api.OpHead:
		a.event.Method, need = http.MethodHead, needReader
	case api.OpPut:
		a.event.Method = http.MethodPut
	case api.OpDelete:
		a.event.Method = http.MethodDelete
	case api.OpBatch:
		a.event.Method, a.event.Route = http.MethodPost, rowsPath
	default:
		return badRequest("there is no operation %d", q.Op)
	}
	if end := a.st.expires; !end.IsZero() && a.start.After(end) {
		return errExpired()
	}
	if err := allowed(a.st.who, need); err != nil {
		return err
	}
	err := api.CheckTable(q.Table)
	if err == nil && q.Op != api.OpBatch {
		err = api.CheckKey(q.Key)
	}
	if err != nil {
		return err
	}
	conditional := len(q.IfMatch) > 0 || q.IfExists || q.IfNoneMatch
	switch {
	case !q.Op.Writes() && (conditional || q.Idem != "" || len(q.Value) > 0), q.Op == api.OpDelete && len(q.Value) > 0:
		return badRequest("a %s has no value, condition or key", q.Op)
	case q.Op == api.OpBatch && (conditional || q.Key != ""):
		return badRequest("a batch takes no conditions, and its keys are in its lines")
	case q.IfNoneMatch && (len(q.IfMatch) > 0 || q.IfExists), q.IfExists && len(q.IfMatch) > 0:
		return badRequest("a row cannot be there and not be there")
	case q.Op.Writes() && q.Local:
		return badRequest("a write is not local")
	}
	q.Principal = a.st.who
	return a.hold(len(q.Value))
}

// hold counts n bytes until the call is answered.
func (a *rowCall) hold(n int) error {
	if err := a.st.s.bodies.hold(n); err != nil {
		return err
	}
	a.held += int64(n)
	return nil
}

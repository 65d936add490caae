package router

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"tidal/node/api"
)

// overhead is what a waiting request holds in memory beside its key and value.
const overhead = 200

// retryAfter is what a refused client is told to wait.
const retryAfter = time.Second

// target is a node taken for the owner in a term.
type target struct {
	node string
	term uint64
	via  string // asked in its place, since it is not reached from here
}

// trip is one request's way to its owner.
type trip struct {
	r     *Router
	req   *api.Request
	fixed bool // Born is the client's word: an attempt before this trip may have been applied

	sure   bool // what the directory does not know of was not there when the request came
	caught bool // the request was sent again at once with a newer Born, since the last look

	asked   []target   // that failed since the last look; each is asked once between two looks
	hint    string     // owner named by the last stale-owner answer
	missed  string     // owner that could not be reached
	last    *api.Error // of the last attempt
	unknown *api.Error // of an attempt that may have been applied: only its own answer can replace it

	look     *time.Timer // the next look; nil until the request waits
	held     int64       // bytes counted as waiting
	attempts int
	waited   time.Duration
}

// run tries, and waits, until there is an answer or the context ends.
func (t *trip) run(ctx context.Context) (*api.Response, error) {
	for {
		// Taken before the directory is read, so that no change falls between.
		changed := t.r.o.Directory.Changed()
		route, ok := t.r.o.Directory.Find(t.req.Table)
		if !ok {
			if err := t.missing(ctx); err != nil {
				return nil, t.final(err)
			}
			continue
		}
		if !t.pin(route) {
			return nil, t.final(dropped(t.req.Table))
		}
		if t.req.Local {
			t.attempts++
			return t.r.here(ctx, route, t.req)
		}
		if ctx.Err() != nil {
			return nil, t.expired(ctx)
		}
		if to, found := t.next(route); found {
			resp, err := t.send(ctx, route, to)
			if err == nil || !t.again(to, api.AsError(err)) {
				return resp, t.final(err)
			}
		} else if err := t.wait(ctx, changed); err != nil {
			return nil, t.final(err)
		}
	}
}

// missing is what the client is told of a table that this node does not know of, once it
// is sure that there was none when the request came.
func (t *trip) missing(ctx context.Context) error {
	if t.sure || t.req.Local {
		return unknownTable(t.req.Table)
	}
	t.sure = true
	return t.r.o.Directory.Fresh(ctx)
}

// pin ties the request to the life of the table in which it was accepted, since
// a write that was sent to a dropped table must not reach its namesake.
func (t *trip) pin(route Route) bool {
	born := &t.req.Born
	if born.Table == 0 {
		born.Table = route.Table
	}
	// An attempt that did nothing leaves nothing behind that could arrive later. So
	// a node that was behind, as after it stood still, makes up for it here.
	if t.unknown == nil && !t.fixed && route.Born.Table == born.Table {
		born.Index = max(route.Born.Index, t.r.met.newest(born.Table))
	}
	return born.Table == route.Table
}

// next chooses the node to ask now: one that has not failed in this term since
// the last look.
func (t *trip) next(route Route) (target, bool) {
	hint := t.hint
	t.hint = ""
	for _, node := range [2]string{hint, route.Owner} {
		to := target{node: node, term: route.Term}
		if node != "" && !slices.Contains(t.asked, to) {
			return to, true
		}
	}
	// Of a table that this node knows no owner of, one that it does not hear may be it.
	if t.missed != "" || route.Owner == "" {
		to := target{node: t.missed, term: route.Term, via: t.r.o.Directory.Detour(t.missed)}
		if to.via != "" && !slices.Contains(t.asked, to) {
			return to, true
		}
	}
	if route.Owner == "" && len(t.asked) == 0 {
		t.last = &api.Error{
			Code:    api.CodeNoOwner,
			Message: "the table " + t.req.Table + " has no owner now",
		}
	}
	return target{}, false
}

// send lets the target serve the request.
func (t *trip) send(ctx context.Context, route Route, to target) (*api.Response, error) {
	t.attempts++
	if to.node == t.r.o.Node {
		return t.r.here(ctx, route, t.req)
	}
	var resp *api.Response
	var err error
	if to.via != "" {
		relayed := *t.req
		relayed.Hops++
		resp, err = t.r.o.Remote.Relay(ctx, to.via, &relayed)
	} else {
		resp, err = t.r.forward(ctx, to.node, t.req)
	}
	if err != nil {
		return nil, err
	}
	t.r.met.meet(resp.Version)
	return resp, nil
}

// again notes the failure and reports whether the request may be sent again.
func (t *trip) again(to target, e *api.Error) bool {
	kind := api.KindOf(e.Code)
	t.last = e
	if kind.Route && kind.Outcome == api.OutcomeUnknown && t.req.Op.Writes() {
		t.unknown = e
	}
	if t.r.o.NoPatience {
		return false
	}
	if e.Code == api.CodeBehind {
		if t.fixed || t.unknown != nil {
			t.doubt()
			return false // for ever: what is forgotten does not come back
		}
		t.r.met.meet(e.At)
		if !t.caught && t.r.met.newest(t.req.Born.Table) > t.req.Born.Index {
			t.caught = true
			return true // at once: the owner has said what this node did not know
		}
	}
	// After an attempt that may have been applied, a refusal that did nothing
	// (429) is no answer: sending again is what finds the answer.
	if !kind.Route && (t.unknown == nil || kind.Outcome != api.OutcomeNone) {
		return false
	}
	t.asked = append(t.asked, to)
	switch {
	case e.Code == api.CodeStaleOwner && e.Owner != to.node:
		t.hint = e.Owner
	case e.Code == api.CodeOwnerUnreachable && to.via == "":
		t.missed = to.node
	}
	return true
}

// doubt ends a write that may have been applied, of which the table has forgotten
// whether it was.
func (t *trip) doubt() {
	if t.unknown == nil {
		t.unknown = &api.Error{
			Code:    api.CodeOutcomeUnknown,
			Message: "the write is older than the answers that the table " + t.req.Table + " remembers: whether a copy of it was done is forgotten",
			Hint:    "this one did nothing: read what is there, and write with a new " + api.HeaderIdempotency,
		}
	}
}

// wait returns nil at the next change of the directory, at the next look, or
// when ctx ends; an error if this node holds too many waiting requests.
func (t *trip) wait(ctx context.Context, changed <-chan struct{}) error {
	if t.r.o.NoPatience {
		return t.last
	}
	if t.look == nil {
		if !t.reserve() {
			return &api.Error{
				Code:       api.CodeTooMany,
				Message:    fmt.Sprintf("too many requests wait for an owner at node %s: the limit is %d bytes", t.r.o.Node, t.r.o.MaxWaiting),
				RetryAfter: retryAfter,
			}
		}
		t.look = time.NewTimer(t.r.o.Look)
	}
	start := time.Now()
	select {
	case <-ctx.Done():
	case <-changed:
	case <-t.look.C:
		t.asked, t.caught = t.asked[:0], false
		t.look.Reset(t.r.o.Look)
	}
	t.waited += time.Since(start)
	return nil
}

// reserve counts the request as waiting until release.
func (t *trip) reserve() bool {
	n := int64(t.req.Size()) + overhead
	if t.r.waiting.Add(n) > t.r.o.MaxWaiting {
		t.r.waiting.Add(-n)
		return false
	}
	t.held = n
	return true
}

func (t *trip) release() {
	t.r.waiting.Add(-t.held)
	if t.look != nil {
		t.look.Stop()
	}
}

// expired is the answer of a request whose context ended.
func (t *trip) expired(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return fmt.Errorf("the client left: %w", context.Cause(ctx))
	}
	if t.last == nil {
		t.last = &api.Error{Code: api.CodeNoOwner, Message: "the request's time was over before it could be sent"}
	}
	return t.final(t.last)
}

// final is what the client is told. A write that may have been applied stays
// unknown unless the table itself decided about its id afterwards.
func (t *trip) final(err error) error {
	if err == nil {
		return nil
	}
	e := api.AsError(err)
	decided := e.Outcome() == api.OutcomeDone && e.Code != api.CodeTableNotFound
	if t.unknown != nil && !decided {
		e = t.unknown
	}
	if e.RetryAfter == 0 && api.KindOf(e.Code).Outcome == api.OutcomeNone {
		patient := *e
		patient.RetryAfter = retryAfter
		e = &patient
	}
	if t.unknown == nil && e.Code == api.CodeInternal {
		return err // with its cause, for the log
	}
	return e
}

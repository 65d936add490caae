package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"time"

	"tidal/node/api"
)

const (
	// maxAnswer is the most that is read of an answer: the status of a cluster
	// with 10,000 tables is a few MiB.
	maxAnswer = 64 << 20
	// pause is the wait before the next attempt when the answer names none.
	pause = 100 * time.Millisecond
)

// call is one request of the API.
type call struct {
	method string
	path   string // escaped, with its query
	body   []byte
	header http.Header
	// resend: it does the same when it is applied twice, or is applied once
	// because of its Idempotency-Key.
	resend bool
	writes bool
	long   time.Duration // it may take so long, if that is more than the client's time
	alone  bool          // one node that does not answer may take all of the time
	head   time.Duration // within which an answer is to begin; 0: within the client's time
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// do sends the call to one endpoint after the other until one of them gives a
// final answer, none can be reached, or the time is up.
func (c *Client) do(ctx context.Context, q call) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, max(c.o.Timeout, q.long))
	defer cancel()
	return c.doAfter(ctx, q, &tries{writes: q.writes})
}

// doAfter is do after attempts that went another way.
func (c *Client) doAfter(ctx context.Context, q call, t *tries) (*answer, error) {
	if c.o.Once {
		return c.attempt(ctx, q, t)
	}
	first := int(c.preferred.Load())
	for n := 0; ; n++ {
		i := (first + n) % len(c.endpoints)
		q.head = c.share(ctx, q, n)
		a, err := c.once(ctx, c.endpoints[i], q)
		if err == nil {
			c.preferred.Store(int64(i))
			return a, nil
		}
		wait, again := t.failed(c.endpoints[i], q, err)
		if len(t.silent) > 0 && len(t.silent)%len(c.endpoints) == 0 {
			// Nobody answers. That is an answer too, unless a write is in doubt:
			// then it is worth the rest of the time to find out.
			again = again && t.unknown != nil
			wait = pause
		}
		if !again || !sleep(ctx, wait) {
			return nil, t.final(ctx, err)
		}
	}
}

// share is the time in which the n-th attempt of a call is to be answered: one node that
// stands still must not use up what the others could be asked in.
func (c *Client) share(ctx context.Context, q call, n int) time.Duration {
	left := len(c.endpoints) - n%len(c.endpoints)
	deadline, ok := ctx.Deadline()
	if !ok || !q.resend || q.alone || q.long > 0 || left == 1 {
		return 0
	}
	return max(time.Until(deadline)/time.Duration(left), time.Millisecond)
}

// order does a call whose body is a JSON document, and so is its answer, if to is not nil.
func (c *Client) order(ctx context.Context, q call, body, to any) error {
	var err error
	if q.body, err = json.Marshal(body); err != nil {
		return fmt.Errorf("write the request: %w", err)
	}
	a, err := c.do(ctx, q)
	if err != nil || to == nil {
		return err
	}
	return decode(a.body, to)
}

// one sends the call once to one endpoint, and reads the JSON document that it answers.
func (c *Client) one(ctx context.Context, endpoint string, q call, to any) error {
	ctx, cancel := context.WithTimeout(ctx, max(c.o.Timeout, q.long))
	defer cancel()
	a, err := c.once(ctx, endpoint, q)
	if err != nil {
		return alone(endpoint, err)
	}
	return decode(a.body, to)
}

// attempt sends the call once, to the endpoint whose turn it is.
func (c *Client) attempt(ctx context.Context, q call, t *tries) (*answer, error) {
	endpoint := c.endpoints[uint64(c.preferred.Add(1))%uint64(len(c.endpoints))]
	a, err := c.once(ctx, endpoint, q)
	if err != nil {
		t.failed(endpoint, q, err)
		return nil, t.final(ctx, err)
	}
	return a, nil
}

// tries is what became of a call's attempts.
type tries struct {
	writes  bool
	unknown error            // of an attempt whose outcome is unknown
	refusal error            // the last answer
	silent  []*EndpointError // that gave no answer, since the last answer
}

// failed notes a failed attempt, and returns whether to try the next endpoint,
// and after how long.
func (t *tries) failed(endpoint string, q call, err error) (time.Duration, bool) {
	if silent, ok := errors.AsType[*silenceError](err); ok {
		t.silent = append(t.silent, &EndpointError{Endpoint: endpoint, Err: silent.err})
		if silent.sent && q.writes {
			t.unknown = unknown(t.silent[len(t.silent)-1])
		}
		return 0, !silent.sent || q.resend
	}
	t.silent, t.refusal = nil, err
	var e *api.Error
	if !errors.As(err, &e) {
		return 0, false
	}
	wait := max(e.RetryAfter, pause)
	switch kind := api.KindOf(e.Code); {
	case kind.Outcome == api.OutcomeNone:
		return wait, true
	case kind.Route && kind.Outcome == api.OutcomeUnknown:
		if q.writes {
			t.unknown = err
		}
		return wait, q.resend
	}
	return 0, false
}

// final is the call's error after the last attempt.
func (t *tries) final(ctx context.Context, last error) error {
	var e *api.Error
	decided := errors.As(last, &e) && e.Outcome() == api.OutcomeDone
	switch {
	case decided:
		return last
	case t.unknown != nil:
		return t.unknown
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case len(t.silent) > 0 && t.refusal == nil:
		return &UnreachableError{Causes: t.silent}
	case t.refusal != nil:
		return t.refusal
	}
	return last
}

// sleep waits; false: ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// once sends the call to one endpoint. Its errors are *silenceError, *api.Error, or
// anything else for an answer that is not tidal's.
func (c *Client) once(ctx context.Context, endpoint string, q call) (*answer, error) {
	a, err := c.exchange(ctx, endpoint, q)
	if err == nil && a.status >= http.StatusBadRequest {
		return nil, refusal(endpoint, q.method, a)
	}
	return a, err
}

// exchange sends the call to one endpoint and returns any answer. Its errors are
// *silenceError, but for a request that cannot be made.
func (c *Client) exchange(ctx context.Context, endpoint string, q call) (*answer, error) {
	sent := false
	ctx, begun, end := within(ctx, q.head)
	defer end()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(httptrace.GotConnInfo) { sent = true },
	})
	req, err := http.NewRequestWithContext(ctx, q.method, endpoint+q.path, bytes.NewReader(q.body))
	if err != nil {
		return nil, fmt.Errorf("make a request for %s: %w", endpoint, err)
	}
	maps.Copy(req.Header, q.header)
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if q.head > 0 {
			left = min(left, q.head)
		}
		req.Header.Set(api.HeaderTimeout, serverPatience(left))
	}
	web := c.web()
	defer c.done(web)
	resp, err := web.http.Do(req)
	if begun(); err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err // the endpoint stands before it anyway
		}
		if late, ok := errors.AsType[*lateError](context.Cause(ctx)); ok {
			err = late
		}
		return nil, (&silenceError{err: err, sent: sent}).explain()
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if closeErr := resp.Body.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return nil, &silenceError{err: fmt.Errorf("the answer broke off: %w", err), sent: true}
	}
	return &answer{status: resp.StatusCode, header: resp.Header, body: body}, nil
}

// within returns a ctx that ends after some time unless begun is called before, and what
// gives up its resources. No time is all of it.
func within(ctx context.Context, head time.Duration) (_ context.Context, begun, end func()) {
	if head == 0 {
		return ctx, func() {}, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	t := time.AfterFunc(head, func() { cancel(&lateError{head}) })
	return ctx, func() { t.Stop() }, func() { cancel(nil) }
}

// serverPatience is what the server is told to wait at most: a little less than
// the client does, so that the server's reason arrives in time.
func serverPatience(left time.Duration) string {
	return serverTime(left).Round(time.Millisecond).String()
}

func serverTime(left time.Duration) time.Duration {
	left -= min(left/10, 250*time.Millisecond)
	return max(left, time.Millisecond)
}

// refusal reads the error in an answer.
func refusal(endpoint, method string, a *answer) error {
	e := &api.Error{Code: headCode(a)}
	status := fmt.Sprintf("%d %s", a.status, http.StatusText(a.status))
	if seconds, err := strconv.Atoi(a.header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	if v, err := api.ParseETag(a.header.Get("ETag")); err == nil {
		e.At = v
	}
	if method == http.MethodHead {
		e.Message = endpoint + " answered " + status
		return e
	}
	var p api.Problem
	if err := json.Unmarshal(a.body, &p); err != nil || p.Code == "" {
		return fmt.Errorf("%s answered %s, and not as tidal does: %.200q", endpoint, status, a.body)
	}
	e.Code, e.Message, e.Hint, e.Owner = p.Code, p.Detail, p.Hint, p.Owner
	return e
}

// headCode guesses the code of an answer to HEAD, which has no body.
func headCode(a *answer) api.Code {
	if code := a.header.Get(api.HeaderRouteError); code != "" {
		return api.Code(code)
	}
	switch a.status {
	case http.StatusNotFound:
		return api.CodeRowNotFound
	case http.StatusBadRequest:
		return api.CodeBadRequest
	case http.StatusUnauthorized:
		return api.CodeUnauthorized
	case http.StatusForbidden:
		return api.CodeForbidden
	case http.StatusTooManyRequests:
		return api.CodeTooMany
	}
	return api.CodeInternal
}

package server

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"tidal/node/api"
)

const (
	// headPatience is how long a client may take for the head of a request.
	headPatience = 10 * time.Second

	// bodyPatience is how long a client may take for each bodyChunk of a body.
	bodyPatience = 30 * time.Second
	bodyChunk    = 64 << 10

	// statusClientLeft stands in events for a client that did not wait, or was cut off
	// by the end of the node: nobody is told anything.
	statusClientLeft = 499
)

// exchange is one request and its answer.
type exchange struct {
	s     *Server
	w     http.ResponseWriter
	r     *http.Request
	start time.Time

	rawTable, rawKey string // parts of the path, still escaped
	node             string // of the path; "": the one that is asked
	roll             string // of the path
	who              api.Principal
	patience         time.Duration // of the client; 0: it names none
	expired          bool          // the client's certificate, since the handshake

	rt            *route // nil: there is none
	route, method string // for the event
	status        int
	code          api.Code
	wrote         bool  // the answer has begun
	held          int64 // bytes of bodies
}

// finish reports the request, after turning a panic into an answer.
func (x *exchange) finish() {
	if x.rt != nil && x.rt.counts {
		defer x.s.end() // once it is counted
	}
	defer x.release()
	failure := recover()
	if failure != nil {
		x.s.o.Log.Error("a handler panicked", "route", x.route, "method", x.method,
			"panic", fmt.Sprint(failure), "stack", string(debug.Stack()))
	}
	half := failure != nil && x.wrote
	// A handler that returns without an answer has given one to net/http: 200.
	abort := half || x.status == statusClientLeft
	if failure != nil && !abort {
		x.fail(api.AsError(errPanic))
	}
	x.s.o.Observe(Event{
		Route: x.route, Method: x.method, Status: x.status, Code: x.code,
		Took: time.Since(x.start), Cut: half || x.cut(),
	})
	if abort {
		panic(http.ErrAbortHandler) //nolint:forbidigo // net/http's way to cut an answer off
	}
}

var errPanic = errors.New("a handler panicked")

// fail answers with a problem. It is silent if the request ended before: its client
// left, or the node ends.
func (x *exchange) fail(err error) {
	if x.r.Context().Err() != nil && api.CodeOf(err) == "" {
		x.status = statusClientLeft
		return
	}
	e := api.AsError(err)
	kind := api.KindOf(e.Code)
	if kind.Code == api.CodeInternal && !errors.Is(err, e) {
		x.s.o.Log.Error("a request failed", "route", x.route, "method", x.method, "error", err)
	}
	x.code = e.Code
	h := x.w.Header()
	if kind.Route {
		h.Set(api.HeaderRouteError, string(e.Code))
	}
	if e.Code == api.CodePreconditionFailed && e.At.Index != 0 {
		h.Set("ETag", api.ETag(e.At))
	}
	if e.RetryAfter > 0 {
		seconds := (e.RetryAfter + time.Second - 1) / time.Second
		h.Set("Retry-After", strconv.FormatInt(int64(seconds), 10))
	}
	body, err := json.Marshal(api.Problem{
		Type: "about:blank", Title: http.StatusText(kind.Status), Status: kind.Status,
		Detail: e.Message, Code: e.Code, Hint: e.Hint, Owner: e.Owner,
	})
	if err != nil {
		x.s.o.Log.Error("a problem cannot be written", "error", err)
	}
	x.write(kind.Status, "application/problem+json", body)
}

// json answers with a JSON document.
func (x *exchange) json(status int, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	x.w.Header().Set("Cache-Control", "no-store")
	x.write(status, "application/json", append(body, '\n'))
	return nil
}

// write sends the answer, without its body if the method is HEAD.
func (x *exchange) write(status int, contentType string, body []byte) {
	h := x.w.Header()
	h["Content-Type"] = []string{contentType}
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.begin(status)
	if x.r.Method == http.MethodHead {
		return
	}
	x.send(body)
}

// begin sends the status line and the headers.
func (x *exchange) begin(status int) {
	x.status, x.wrote = status, true
	x.w.WriteHeader(status)
}

// names returns the table of the path and, for a row's path, its key.
func (x *exchange) names() (table, key string, err error) {
	if table, err = url.PathUnescape(x.rawTable); err != nil {
		return "", "", badRequest("the table's name in the path has a broken escape: %s", clip(x.rawTable))
	}
	if err = api.CheckTable(table); err != nil {
		return "", "", err
	}
	if key, err = url.PathUnescape(x.rawKey); err != nil {
		return "", "", badRequest("the key in the path has a broken escape: write %% as %%25")
	}
	return table, key, nil
}

// query returns the query's parameters; one that is not among the known is an error.
func (x *exchange) query(known ...string) (url.Values, error) {
	if x.r.URL.RawQuery == "" {
		return nil, nil
	}
	q, err := url.ParseQuery(x.r.URL.RawQuery)
	if err != nil {
		return nil, badRequest("the query is not well formed: %s", clip(x.r.URL.RawQuery))
	}
	for name, values := range q {
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			return nil, badRequest("unknown query parameter %q: this takes none", clip(name))
		case !slices.Contains(known, name):
			return nil, badRequest("unknown query parameter %q: this takes %s", clip(name), strings.Join(known, ", "))
		case len(values) > 1:
			return nil, badRequest("query parameter %q is given %d times", name, len(values))
		}
	}
	return q, nil
}

// timeout reads the client's patience, 0 if it names none.
func (x *exchange) timeout() (time.Duration, error) {
	given := x.r.Header[api.HeaderTimeout]
	switch {
	case len(given) == 0:
		return 0, nil
	case len(given) > 1:
		return 0, badRequest("header %s is given %d times", api.HeaderTimeout, len(given))
	}
	d, err := time.ParseDuration(given[0])
	if err != nil || d <= 0 {
		return 0, &api.Error{
			Code:    api.CodeBadRequest,
			Message: fmt.Sprintf("header %s: %q is not a positive duration", api.HeaderTimeout, clip(given[0])),
			Hint:    "write it with its unit, as 1.5s or 250ms",
		}
	}
	return d, nil
}

// body reads the request's body of at most limit bytes into a buffer of its own.
func (x *exchange) body(limit int, what string) ([]byte, error) {
	n := x.r.ContentLength
	if n > int64(limit) {
		return nil, tooLarge(what, limit)
	}
	most := limit + 1
	if n >= 0 {
		most = int(n)
	}
	var buf []byte
	for mark := 0; len(buf) <= limit && len(buf) < most; {
		if len(buf) == cap(buf) {
			var err error
			if buf, err = x.grow(buf, most); err != nil {
				return nil, err
			}
		}
		m, err := x.r.Body.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+m]
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, bodyError(err)
		}
		if len(buf)-mark >= bodyChunk {
			mark = len(buf)
			x.expectBody()
		}
	}
	if len(buf) > limit {
		return nil, tooLarge(what, limit)
	}
	return buf, nil
}

// expectBody gives the client some time for the next chunk of its body. Once the
// body is read, net/http takes the deadline away.
func (x *exchange) expectBody() {
	// The error says that this connection knows no deadlines: then it has none.
	_ = http.NewResponseController(x.w).SetReadDeadline(time.Now().Add(bodyPatience))
}

func bodyError(err error) error {
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return badRequest("the body came too slowly: a client has %s for each %d bytes", bodyPatience, bodyChunk)
	}
	return badRequest("the body ended early: it is shorter than announced, or its encoding is broken")
}

func tooLarge(what string, limit int) error {
	return &api.Error{Code: api.CodeTooLarge, Message: fmt.Sprintf("%s is too large: the limit is %d bytes", what, limit)}
}

func badRequest(format string, args ...any) error {
	return &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf(format, args...)}
}

// clip shortens what a client sent before it is shown in an error.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

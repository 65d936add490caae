package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"tidal/node/api"
)

const (
	// eventSilence is how long a stream of events may say nothing: a node sends a
	// heartbeat each second.
	eventSilence = 3500 * time.Millisecond
	// maxEvent is the most bytes of one event.
	maxEvent = 64 << 10
)

// Window returns the cluster as the node at an endpoint sees it, with a part of
// its tables. It asks that one node, once.
func (c *Client) Window(ctx context.Context, endpoint string, q api.TableQuery) (api.Status, error) {
	v := url.Values{"offset": {strconv.Itoa(q.Offset)}, "limit": {strconv.Itoa(q.Limit)}}
	if q.Sort != "" {
		v.Set("sort", q.Sort)
	}
	if q.Filter != "" {
		v.Set("filter", q.Filter)
	}
	if q.Follow != nil {
		v.Set("follow", q.Follow.String())
	}
	var s api.Status
	return s, c.one(ctx, endpoint, call{method: http.MethodGet, path: "/cluster/status?" + v.Encode()}, &s)
}

// Brief is LocalStatus without the list of tables.
func (c *Client) Brief(ctx context.Context, endpoint string) (api.LocalStatus, error) {
	var s api.LocalStatus
	return s, c.one(ctx, endpoint, call{method: http.MethodGet, path: "/cluster/status/local?tables=false"}, &s)
}

// Events calls f for each event that the node at an endpoint tells after the one
// with that id ("": all that it still has), heartbeats too, until ctx ends, the
// stream ends, or it is silent for too long. It never returns nil. A node that does
// not know the id begins with what it has.
func (c *Client) Events(ctx context.Context, endpoint, after string, f func(api.Event)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(eventSilence, func() { cancel(errSilentStream) })
	defer silent.Stop()
	path := "/cluster/events"
	if after != "" {
		path += "?after=" + url.QueryEscape(after)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("make a request for %s: %w", endpoint, err)
	}
	resp, err := c.web().http.Do(req)
	if err != nil {
		if inner, ok := errors.AsType[*url.Error](err); ok {
			err = inner.Err
		}
		return alone(endpoint, (&silenceError{err: err}).explain())
	}
	defer func() { _ = resp.Body.Close() }() // what is left of it is not wanted
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxEvent))
		if err != nil {
			return &EndpointError{Endpoint: endpoint, Err: err}
		}
		return refusal(endpoint, http.MethodGet, &answer{status: resp.StatusCode, header: resp.Header, body: body})
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		silent.Reset(eventSilence)
		var e api.Event
		if err := decode(lines.Bytes(), &e); err != nil {
			return &EndpointError{Endpoint: endpoint, Err: err}
		}
		f(e)
	}
	if cause := context.Cause(ctx); cause != nil {
		return &EndpointError{Endpoint: endpoint, Err: cause}
	}
	if err := lines.Err(); err != nil {
		return &EndpointError{Endpoint: endpoint, Err: err}
	}
	return &EndpointError{Endpoint: endpoint, Err: io.EOF}
}

var errSilentStream = errors.New("the stream of events is silent")

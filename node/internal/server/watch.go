package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"tidal/node/api"
)

const (
	// eventBeat is how often a stream says something although nothing happens.
	eventBeat = time.Second
	// eventPatience is how long a client may take to read a line.
	eventPatience = 10 * time.Second
	// maxStreams is how many clients may follow a node's events at a time.
	maxStreams = 64
)

// Watch shows the cluster to those who look at it.
type Watch interface {
	// Window is a status with a part of the tables. Its errors are *api.Error.
	Window(ctx context.Context, q api.TableQuery) (api.Status, error)
	// After returns the events that came after one, all that there are if id is "",
	// with the id to ask with next and a channel that is closed when there are more.
	// The error is an *api.Error.
	After(id string) (list []api.Event, last string, more <-chan struct{}, err error)
}

// window answers GET /cluster/status with a query.
func (x *exchange) window() error {
	values, err := x.query("sort", "filter", "offset", "limit", "follow")
	if err != nil {
		return err
	}
	q := api.TableQuery{Sort: values.Get("sort"), Filter: values.Get("filter"), Limit: api.MaxWindow}
	if q.Offset, err = number(values.Get("offset"), "offset", 0, 1<<30); err != nil {
		return err
	}
	if q.Limit, err = number(values.Get("limit"), "limit", q.Limit, api.MaxWindow); err != nil {
		return err
	}
	if id := values.Get("follow"); id != "" {
		q.Follow = new(api.TableID)
		if err = q.Follow.UnmarshalText([]byte(id)); err != nil {
			return badRequest("query parameter follow: %v", err)
		}
	}
	s, err := x.s.o.Watch.Window(x.r.Context(), q)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, s)
}

// number reads a query parameter that is a number from 0 to most.
func number(text, name string, otherwise, most int) (int, error) {
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, badRequest("query parameter %s is %q: want 0 to %d", name, clip(text), most)
	}
	return n, nil
}

// events answers GET /cluster/events: one JSON object a line, and no end unless
// follow is false, the client leaves, or the node stops.
func (x *exchange) events() error {
	q, err := x.query("after", "follow")
	if err != nil {
		return err
	}
	follow := q.Get("follow")
	if follow != "" && follow != "true" && follow != "false" {
		return badRequest("query parameter follow is %q: want true or false", clip(follow))
	}
	list, last, more, err := x.s.o.Watch.After(q.Get("after"))
	if err != nil {
		return err
	}
	if n := x.s.streams.Add(1); n > maxStreams && follow != "false" {
		x.s.streams.Add(-1)
		return &api.Error{
			Code: api.CodeTooMany, Message: fmt.Sprintf("%d clients follow the events of this node already", maxStreams),
			RetryAfter: time.Second,
		}
	}
	defer x.s.streams.Add(-1)
	h := x.w.Header()
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Cache-Control", "no-store")
	x.begin(http.StatusOK)
	out := eventWriter{x: x, lines: json.NewEncoder(x.w), control: http.NewResponseController(x.w)}
	if x.r.Method == http.MethodHead || !out.write(list) || follow == "false" {
		return nil
	}
	return x.follow(&out, last, more)
}

func (x *exchange) follow(out *eventWriter, last string, more <-chan struct{}) error {
	beat := time.NewTicker(eventBeat)
	defer beat.Stop()
	for {
		var list []api.Event
		select {
		case <-more:
			next, id, again, err := x.s.o.Watch.After(last)
			if err != nil {
				return nil // the answer has begun: it ends here
			}
			list, last, more = next, id, again
		case <-beat.C:
			list = []api.Event{{ID: last, Time: time.Now().UTC(), Node: x.s.o.Node, Kind: api.EventHeartbeat}}
		case <-x.s.leaving:
			return nil
		case <-x.r.Context().Done():
			return nil
		}
		if !out.write(list) {
			return nil
		}
	}
}

// eventWriter writes lines, and gives the client some time for each.
type eventWriter struct {
	x       *exchange
	lines   *json.Encoder
	control *http.ResponseController
}

// write reports whether the client still reads.
func (o *eventWriter) write(list []api.Event) bool {
	for i := range list {
		// The error says that this connection knows no deadlines: then it has none.
		_ = o.control.SetWriteDeadline(time.Now().Add(eventPatience))
		if err := o.lines.Encode(&list[i]); err != nil {
			return false
		}
	}
	return o.control.Flush() == nil
}

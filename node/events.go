package node

import (
	"context"
	"slices"
	"sync"
	"time"

	"tidal/node/api"
	"tidal/node/internal/router"
)

const (
	// eventsKept is how many events a node keeps for those who come later.
	eventsKept = 1024
	// eventsLook is how often the node looks for what nobody tells it.
	eventsLook = 500 * time.Millisecond
)

// events is the one place where all that a node tells comes together: its log, its
// metrics and GET /cluster/events take it from here.
type events struct {
	n  *node
	mu struct {
		sync.Mutex
		kept    []api.Event // the oldest first
		next    uint64      // number of the next event; the first is 1
		more    chan struct{}
		refused map[api.Code]*api.Event // since the last look
	}
}

func newEvents(n *node) *events {
	e := &events{n: n}
	e.mu.next, e.mu.more, e.mu.refused = 1, make(chan struct{}), map[api.Code]*api.Event{}
	return e
}

// tell takes an event; all but what happened is filled in here.
func (e *events) tell(x api.Event) {
	x.Node, x.Time = e.n.o.Config.Node.ID, time.Now().UTC()
	e.mu.Lock()
	x.ID = api.EventID(e.n.who.Incarnation, e.mu.next)
	e.mu.next++
	e.mu.kept = append(e.mu.kept, x)
	if extra := len(e.mu.kept) - eventsKept; extra > 0 {
		e.mu.kept = slices.Delete(e.mu.kept, 0, extra)
	}
	close(e.mu.more)
	e.mu.more = make(chan struct{})
	e.mu.Unlock()
	e.n.meters.events.WithLabelValues(string(x.Kind)).Inc()
	e.n.log.Info("event", "event_id", x.ID, "kind", string(x.Kind), "text", x.String())
}

// After implements server.Events.
func (e *events) After(id string) (list []api.Event, last string, more <-chan struct{}, err error) { //nolint:revive // all four belong together
	inc, from, known, lost := e.n.who.Incarnation, uint64(0), false, 0
	if id != "" {
		of, n, err := api.ParseEventID(id)
		if err != nil {
			return nil, "", nil, &api.Error{Code: api.CodeBadRequest, Message: err.Error(), Hint: "name the id of the last event that you have, or none"}
		}
		if of == inc {
			from, known = n, true
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	oldest := e.mu.next - uint64(len(e.mu.kept))
	if known && from+1 < oldest {
		lost = int(oldest - from - 1)
	}
	from = min(max(from+1, oldest), e.mu.next)
	if lost > 0 {
		list = append(list, api.Event{
			ID: api.EventID(inc, from-1), Time: time.Now().UTC(), Node: e.n.o.Config.Node.ID, Kind: api.EventGap, Count: lost,
		})
	}
	list = append(list, e.mu.kept[from-oldest:]...)
	return list, api.EventID(inc, e.mu.next-1), e.mu.more, nil
}

// request notes a row request that was refused.
func (e *events) request(r router.Event) {
	if !slices.Contains(refusals(), r.Code) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	x := e.mu.refused[r.Code]
	if x == nil {
		x = &api.Event{Kind: api.EventRefused, Member: e.n.o.Config.Node.ID, Why: string(r.Code)}
		e.mu.refused[r.Code] = x
	}
	x.Count++
	if len(x.Tables) < api.MaxEventTables && !slices.Contains(x.Tables, r.Table) {
		x.Tables = append(x.Tables, r.Table)
	}
}

func (e *events) takeRefused() []*api.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.mu.refused) == 0 {
		return nil
	}
	var out []*api.Event
	for _, code := range refusals() {
		if x := e.mu.refused[code]; x != nil {
			out = append(out, x)
		}
	}
	e.mu.refused = map[api.Code]*api.Event{}
	return out
}

// run tells what has to be looked for, until ctx ends.
func (e *events) run(ctx context.Context) error {
	n, self := e.n, e.n.o.Config.Node.ID
	t := time.NewTicker(eventsLook)
	defer t.Stop()
	var sent, failed, taken uint64
	claimed := ""
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		for _, x := range e.takeRefused() {
			e.tell(*x)
		}
		by := ""
		if claim := n.cluster.Claim(); claim != nil {
			by = claim.By
		}
		if by != claimed {
			e.tell(api.Event{Kind: api.EventClaim, Member: self, From: claimed, To: by})
			claimed = by
		}
		s, f, _ := n.outbox.Sent()
		r := n.receiver.Taken()
		for why, count := range map[string]uint64{"sent": s - sent, "failed": f - failed, "taken": r - taken} {
			if count > 0 {
				e.tell(api.Event{Kind: api.EventSnapshot, Member: self, Count: int(count), Why: why})
			}
		}
		sent, failed, taken = s, f, r
	}
}

package router

import (
	"context"
	"sync/atomic"
	"time"

	"tidal/node/api"
)

// Route is what this node knows of a table's owner.
type Route struct {
	Table api.TableID
	Owner string       // node id, this node's too; "" while nobody owns the table
	Term  uint64       // in which Owner owns the table
	Born  api.Position // highest committed position of the table known here
}

// Directory knows which tables there are and who owns them. It is asked once or
// more for every request, so both methods must be cheap.
type Directory interface {
	// Find returns the route of the table with this name; false: there is none that
	// this node knows of.
	Find(table string) (Route, bool)
	// Fresh returns once this node knows of all tables that were there when it was
	// called, or with an *api.Error.
	Fresh(ctx context.Context) error
	// Changed returns a channel that is closed at the next change of tables,
	// leases or ownership.
	Changed() <-chan struct{}
	// Detour returns a node that this one reaches and that hears another one, or for ""
	// any, which this one does not hear; "" if there is none.
	Detour(node string) string
}

// Local executes requests on the replica that this node holds.
type Local interface {
	// Execute serves the request, or answers with an *api.Error: stale-owner or
	// no-owner if nothing was done, also when this node holds no replica of the
	// table; outcome-unknown if raft accepted the write and its fate is not
	// known when ctx ends; any other code is final. A request with Local set is
	// a read of what the replica has.
	Execute(ctx context.Context, table api.TableID, req *api.Request) (*api.Response, error)
}

// Remote sends requests to other nodes.
type Remote interface {
	// Forward lets that node's router Serve the request. Its errors are those of
	// Local, and owner-unreachable if nothing was delivered, outcome-unknown if
	// the connection broke, or ctx ended, after it was sent.
	Forward(ctx context.Context, node string, req *api.Request) (*api.Response, error)
	// Relay lets that node's router Relay the request. Its errors are Forward's.
	Relay(ctx context.Context, node string, req *api.Request) (*api.Response, error)
}

// Event is one request that ended.
type Event struct {
	Op       api.Op
	Table    string
	Code     api.Code      // "" if it was served, or if the client left
	Took     time.Duration // from entering to the answer
	Waited   time.Duration // of which it waited for an owner
	Attempts int           // how often it was executed or sent
}

// Options are what a Router is made of. Zero values of Patience, Look and
// MaxWaiting mean the defaults; Observe may be nil.
type Options struct {
	Node       string // own id
	Directory  Directory
	Local      Local
	Remote     Remote
	Patience   time.Duration // longest wait for an owner; default api.Patience
	Look       time.Duration // longest time between two tries; default 250 ms
	MaxWaiting int64         // bytes of waiting requests; default 64 MiB
	NoPatience bool          // a fault for tests: the first routing error is final
	Observe    func(Event)   // called once for each request that entered here
}

// Router finds the owner of a request's table. Its methods may be called from
// any goroutine; it starts none.
type Router struct {
	o       Options
	waiting atomic.Int64 // bytes of the requests that wait
	met     positions
}

// New returns a router.
func New(o Options) *Router {
	if o.Patience == 0 {
		o.Patience = api.Patience
	}
	if o.Look == 0 {
		o.Look = 250 * time.Millisecond
	}
	if o.MaxWaiting == 0 {
		o.MaxWaiting = 64 << 20
	}
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	return &Router{o: o}
}

// Waiting returns the bytes of the requests that wait for an owner now.
func (r *Router) Waiting() int64 { return r.waiting.Load() }

// Do serves a request that entered at this node. It waits while the table has
// no owner that answers, for the patience or until the request's Deadline, and
// sends again what may be sent again. It fills in the request's Deadline and
// Born. A Born.Table that is set already pins the request to that life of the
// table; a Born.Index, which is the client's, is kept. The error is an *api.Error,
// or ctx's cause if the client left.
func (r *Router) Do(ctx context.Context, req *api.Request) (*api.Response, error) {
	start := time.Now()
	if limit := start.Add(r.o.Patience); req.Deadline.IsZero() || req.Deadline.After(limit) {
		req.Deadline = limit
	}
	ctx, cancel := context.WithDeadline(ctx, req.Deadline)
	defer cancel()
	t := trip{r: r, req: req, fixed: req.Born.Index != 0}
	defer t.release()
	resp, err := t.run(ctx)
	r.o.Observe(Event{
		Op: req.Op, Table: req.Table, Code: api.CodeOf(err),
		Took: time.Since(start), Waited: t.waited, Attempts: t.attempts,
	})
	return resp, err
}

// Serve serves a request that another node forwarded. It never forwards it
// again: if this node is not the owner, the answer is stale-owner with the
// owner that this node knows, or no-owner, and nothing was done.
func (r *Router) Serve(ctx context.Context, req *api.Request) (*api.Response, error) {
	route, err := r.find(req)
	if err != nil {
		return nil, err
	}
	return r.here(ctx, route, req)
}

// Relay serves a request that another node, which does not reach the owner, sent
// here since this node does. It is the one request that is forwarded twice.
func (r *Router) Relay(ctx context.Context, req *api.Request) (*api.Response, error) {
	route, err := r.find(req)
	if err != nil {
		return nil, err
	}
	if route.Owner == "" || route.Owner == r.o.Node {
		return r.here(ctx, route, req)
	}
	return r.forward(ctx, route.Owner, req)
}

// forward sends the request to its owner.
func (r *Router) forward(ctx context.Context, owner string, req *api.Request) (*api.Response, error) {
	forwarded := *req
	forwarded.Hops++
	resp, err := r.o.Remote.Forward(ctx, owner, &forwarded)
	if err != nil {
		return nil, err
	}
	resp.Owner, resp.Hops = owner, forwarded.Hops
	return resp, nil
}

// find returns the route of a request that another node sent.
func (r *Router) find(req *api.Request) (Route, error) {
	route, ok := r.o.Directory.Find(req.Table)
	switch pinned := req.Born.Table; {
	case !ok || pinned > route.Table:
		// The sender knows a table that has not reached this node yet, or one
		// that is dropped already; its own directory will tell which.
		return Route{}, &api.Error{Code: api.CodeNoOwner, Message: "node " + r.o.Node + " does not know this table yet"}
	case pinned != 0 && pinned < route.Table:
		return Route{}, dropped(req.Table)
	}
	return route, nil
}

// here executes the request on this node.
func (r *Router) here(ctx context.Context, route Route, req *api.Request) (*api.Response, error) {
	resp, err := r.o.Local.Execute(ctx, route.Table, req)
	if err != nil {
		return nil, r.withHint(err, route)
	}
	resp.Owner, resp.Hops = r.o.Node, req.Hops
	return resp, nil
}

// withHint adds the owner that this node knows to a stale-owner error.
func (r *Router) withHint(err error, route Route) error {
	e := api.AsError(err)
	if e.Code != api.CodeStaleOwner || e.Owner != "" || route.Owner == r.o.Node {
		return err
	}
	hinted := *e
	hinted.Owner = route.Owner
	return &hinted
}

func unknownTable(name string) *api.Error {
	return &api.Error{
		Code:    api.CodeTableNotFound,
		Message: "there is no table " + name,
		Hint:    "GET /v1/tables lists the tables; PUT /v1/tables/" + name + " creates it",
	}
}

func dropped(name string) *api.Error {
	return &api.Error{
		Code:    api.CodeTableNotFound,
		Message: "the table " + name + " was dropped while the request was on its way",
	}
}

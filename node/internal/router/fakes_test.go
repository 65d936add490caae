package router_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/router"
)

// directory is a Directory that tests change.
type directory struct {
	mu struct {
		sync.Mutex
		tables  map[string]router.Route
		detours map[string]string
		changed chan struct{}
		asked   int           // calls of Fresh
		late    *router.Route // of table t, which only Fresh finds
		unsure  error         // of Fresh
	}
}

func newDirectory() *directory {
	d := &directory{}
	d.mu.tables = map[string]router.Route{}
	d.mu.changed = make(chan struct{})
	return d
}

func (d *directory) Find(table string) (router.Route, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.mu.tables[table]
	return r, ok
}

// Fresh implements router.Directory: it finds what late holds, or fails as it says.
func (d *directory) Fresh(context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.asked++
	if d.mu.late != nil {
		d.mu.tables["t"] = *d.mu.late
	}
	return d.mu.unsure
}

func (d *directory) Changed() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.changed
}

// Detour implements router.Directory.
func (d *directory) Detour(node string) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.detours[node]
}

// around says who hears a node that this one does not.
func (d *directory) around(node, via string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.detours = map[string]string{node: via}
}

// own says who owns table t, without waking anybody.
func (d *directory) own(owner string, term uint64) {
	d.put(router.Route{Table: 7, Owner: owner, Term: term, Born: api.Position{Table: 7, Index: 100 * term}})
}

// routeTo is a route to an owner, with the position of the table that is known.
func routeTo(owner string, born uint64) router.Route {
	return router.Route{Table: 7, Owner: owner, Term: 1, Born: api.Position{Table: 7, Index: born}}
}

func (d *directory) put(r router.Route) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.tables["t"] = r
}

func (d *directory) drop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.mu.tables, "t")
}

// wake tells the waiting that something changed.
func (d *directory) wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.mu.changed)
	d.mu.changed = make(chan struct{})
}

// call is one request that reached a node.
type call struct {
	node  string
	table api.TableID // of a local execution
	req   api.Request
	relay bool
	at    time.Duration // since the start of the test
}

// cluster is the Local of node a and its Remote: it plays all nodes.
type cluster struct {
	start  time.Time
	answer func(ctx context.Context, c call) error // nil: it is served
	// version is what answers say was written or read.
	version api.Version

	mu struct {
		sync.Mutex
		calls []call
	}
}

func (c *cluster) Execute(ctx context.Context, table api.TableID, req *api.Request) (*api.Response, error) {
	return c.take(ctx, call{node: "a", table: table, req: *req})
}

func (c *cluster) Forward(ctx context.Context, node string, req *api.Request) (*api.Response, error) {
	return c.take(ctx, call{node: node, req: *req})
}

// Relay implements router.Remote. Who relays is asked first, and the owner next.
func (c *cluster) Relay(ctx context.Context, node string, req *api.Request) (*api.Response, error) {
	resp, err := c.take(ctx, call{node: node, req: *req, relay: true})
	if err == nil {
		resp.Owner, resp.Hops = "z", req.Hops+1
	}
	return resp, err
}

func (c *cluster) take(ctx context.Context, one call) (*api.Response, error) {
	one.at = time.Since(c.start)
	c.mu.Lock()
	c.mu.calls = append(c.mu.calls, one)
	c.mu.Unlock()
	if err := c.answer(ctx, one); err != nil {
		return nil, err
	}
	return &api.Response{Found: true, Value: []byte(one.node), Version: c.version}, nil
}

func (c *cluster) calls() []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]call(nil), c.mu.calls...)
}

// nodes returns whom the request reached, in order.
func (c *cluster) nodes() string {
	var nodes strings.Builder
	for _, one := range c.calls() {
		nodes.WriteString(one.node)
	}
	return nodes.String()
}

// rig is a router of node a with its fakes.
type rig struct {
	*router.Router
	dir     *directory
	cluster *cluster

	mu struct {
		sync.Mutex
		events []router.Event
	}
}

func (g *rig) observe(e router.Event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.mu.events = append(g.mu.events, e)
}

func (g *rig) events() []router.Event {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.events
}

func newRig(t *testing.T, change func(*router.Options)) *rig {
	t.Helper()
	g := &rig{dir: newDirectory(), cluster: &cluster{start: time.Now()}}
	g.cluster.answer = func(context.Context, call) error { return nil }
	o := router.Options{
		Node: "a", Directory: g.dir, Local: g.cluster, Remote: g.cluster,
		Observe: g.observe,
	}
	if change != nil {
		change(&o)
	}
	g.Router = router.New(o)
	t.Cleanup(func() {
		if n := g.Waiting(); n != 0 {
			t.Errorf("%d bytes are still counted as waiting", n)
		}
	})
	return g
}

// failing lets every node answer with this code.
func failing(code api.Code) func(context.Context, call) error {
	return func(context.Context, call) error { return &api.Error{Code: code, Message: string(code)} }
}

// firstly lets the first call answer with this code and serves the others.
func firstly(code api.Code) func(context.Context, call) error {
	first := true
	return func(context.Context, call) error {
		if !first {
			return nil
		}
		first = false
		return &api.Error{Code: code, Message: string(code)}
	}
}

func put() *api.Request {
	return &api.Request{ID: api.RequestID{1}, Op: api.OpPut, Table: "t", Key: "k", Value: []byte("v")}
}

func read() *api.Request { return &api.Request{Op: api.OpGet, Table: "t", Key: "k"} }

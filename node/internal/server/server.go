package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/api"
)

// Rows serves row requests; the router does.
type Rows interface {
	// Do owns the request from here on. Its errors are *api.Error, or anything
	// else if the client left.
	Do(ctx context.Context, req *api.Request) (*api.Response, error)
}

// Tables creates, drops and describes tables.
type Tables interface {
	// CreateTable returns once the table has an owner and every live node can
	// route to it. The same settings again are the same table, not created.
	CreateTable(ctx context.Context, name string, settings api.TableSettings) (table api.Table, created bool, err error)
	// DropTable returns once no node routes to the table any more.
	DropTable(ctx context.Context, name string) error
	// Table and Tables describe what there is now.
	Table(ctx context.Context, name string) (api.Table, error)
	Tables(ctx context.Context) ([]api.Table, error)
}

// Check is one of the three questions about health.
type Check uint8

// The questions.
const (
	CheckReady   Check = iota // may traffic be sent here
	CheckStartup              // has it started, and if not, how far is it
	CheckLive                 // do its loops turn
)

// State is what the node says about itself.
type State interface {
	Status() api.Status
	// Fresh returns once Status is not older than the call, as a quorum knows.
	Fresh(ctx context.Context) error
	Local(tables bool) api.LocalStatus // with the replicas here, or without
	Health(check Check) api.Health     // Status is "ok" or why not
	Requests() api.RequestReport       // row requests that clients sent here
}

// Event is one HTTP request that was answered.
type Event struct {
	Route  string // as in docs/http-api.md: "/v1/tables/{table}", or "" of an unknown path
	Method string // "" of a method that the route does not have
	Status int
	Code   api.Code // "" unless the answer is an error
	Took   time.Duration
	Cut    bool // the node broke it off: the client got no answer, or not all of one
}

// Options are what a Server is made of. All are needed, but for Observe,
// Metrics and Peer, which may be nil.
type Options struct {
	Node    string // own id
	Rows    Rows
	Tables  Tables
	State   State
	Nodes   Nodes
	Members Members
	Watch   Watch
	Rolls   Rolls
	Certs   Certs
	Level   Level

	Programs Programs
	// TableID is the id that a table's name has now. Its errors are *api.Error.
	TableID func(ctx context.Context, name string) (api.TableID, error)
	// CheckTable compares the replicas of a table. Its errors are *api.Error.
	CheckTable func(ctx context.Context, name string) (api.TableCheck, error)
	// Identify names who sits at the other end of a connection by its verified
	// client certificate; nil is the connection of a plaintext cluster. The
	// error is shown to the client.
	Identify func(*tls.ConnectionState) (api.Principal, error)
	NewID    func() api.RequestID
	Observe  func(Event)
	Metrics  http.Handler // GET /metrics
	Peer     http.Handler // GET /internal/peer; admits peers by its own rules
	Log      *slog.Logger
}

// Server answers HTTP requests. Its methods may be called from any goroutine; it
// starts none.
type Server struct {
	o          Options
	web        *http.Server // that HTTPServer returned
	fixed      map[string]*route
	table, row *route
	rows       *route            // many
	nodes      map[string]*route // orders to any node, by action
	conns      conns
	bodies     bodies
	replicas   *route            // of a table
	roll       *route            // one
	rollDo     map[string]*route // what is done with one, by action
	check      *route
	owner      *route // of a table
	nodeHeader []string
	draining   atomic.Bool
	leaving    chan struct{} // closed by Draining
	leave      sync.Once
	streams    atomic.Int64 // clients that follow events
	inFlight   atomic.Int64
	since      time.Time    // of New, with the monotonic clock
	last       atomic.Int64 // when a request last began or ended, from since
}

// New returns a server.
func New(o Options) *Server {
	if o.Observe == nil {
		o.Observe = func(Event) {}
	}
	s := &Server{o: o, nodeHeader: []string{o.Node}, since: time.Now(), leaving: make(chan struct{})}
	s.conns.open = map[net.Conn]*conn{}
	s.fixed = fixedRoutes(o)
	s.table, s.row, s.rows = tableRoute(), rowRoute(), rowsRoute()
	s.nodes = nodeRoutes("/v1/nodes/{node}/")
	s.nodes["replace"] = replaceRoute()
	s.replicas, s.owner = replicasRoute(), ownerRoute()
	s.roll, s.rollDo = rollRoutes()
	s.check = newRoute("/v1/tables/{table}/check", verb{http.MethodPost, needAdmin, (*exchange).checkTable})
	return s
}

// Handler returns the handler of every path.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// HTTPServer returns an http.Server with the handler and the limits of time and
// size that keep slow clients from holding the node. HTTP/2 is off. The caller
// sets TLSConfig and what it needs of BaseContext; ConnState is the server's own.
// Requests that end with BaseContext, if that has a cause, count as cut.
func (s *Server) HTTPServer() *http.Server {
	s.web = &http.Server{
		Handler:           s.Handler(),
		ReadHeaderTimeout: headPatience,
		WriteTimeout:      5 * time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ConnState:         s.conns.track,
		ConnContext:       connContext,
		TLSNextProto:      map[string]func(*http.Server, *tls.Conn, http.Handler){},
		// OPTIONS * is a path as others are, and gets the answer of one that is not there.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(s.o.Log.Handler(), slog.LevelDebug),
	}
	return s.web
}

// Draining makes every answer from now on the last one of its connection, and ends
// the streams of events.
func (s *Server) Draining() { s.drainSince(&s.conns.drained) }

// Thin is Draining, but for the requests for single rows on connections that come later:
// those go on until Draining. Whoever is silent can be waited for meanwhile, and whoever
// is not does not pay for a handshake with each request.
func (s *Server) Thin() { s.drainSince(&s.conns.thinned) }

func (s *Server) drainSince(when *time.Time) {
	s.conns.mu.Lock()
	*when = time.Now()
	s.conns.mu.Unlock()
	s.draining.Store(true)
	s.leave.Do(func() { close(s.leaving) })
	s.conns.leave()
}

// onLeave calls f once the server drains, unless ctx ends before.
func (s *Server) onLeave(ctx context.Context, f func()) {
	select {
	case <-s.leaving:
		f()
	case <-ctx.Done():
	}
}

// Activity returns how many row and table requests are in flight, and when the
// last of them began or ended (the time of New if there was none). Health,
// status and metrics do not count.
func (s *Server) Activity() (inFlight int, last time.Time) {
	return int(s.inFlight.Load()), s.since.Add(time.Duration(s.last.Load()))
}

// begin and end count one row or table request.
func (s *Server) begin() {
	s.inFlight.Add(1)
	s.last.Store(int64(time.Since(s.since)))
}

func (s *Server) end() {
	s.last.Store(int64(time.Since(s.since)))
	s.inFlight.Add(-1)
}

// serve answers one request, and maybe those that follow on its connection.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if x := s.answer(w, r); x.mayLane() {
		x.lane(r.Context())
	}
}

// answer answers one request.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) (x *exchange) {
	x = &exchange{s: s, w: w, r: r, start: time.Now(), status: http.StatusOK}
	defer x.finish() //nolint:contextcheck // it has the context of its request
	h := w.Header()
	h[api.HeaderNode] = s.nodeHeader
	var last, stays bool
	if nc, ok := r.Context().Value(connKey{}).(net.Conn); ok {
		last, x.expired, stays = s.conns.ending(nc, x.start)
	}
	rt := s.find(x)
	if last || s.draining.Load() && (!stays || rt != s.row) {
		h["Connection"] = []string{"close"}
	}
	if rt == nil {
		x.fail(&api.Error{
			Code:    api.CodeNotFound,
			Message: "there is nothing at this path",
			Hint:    "rows are at /v1/tables/{table}/rows/{key}, tables at /v1/tables",
		})
		return x
	}
	x.rt, x.route = rt, rt.path
	if r.ContentLength != 0 {
		x.expectBody() // net/http reads on after an answer that left a body unread
	}
	if rt.counts {
		s.begin() // until finish
	}
	v := rt.verb(r.Method)
	if v == nil {
		h.Set("Allow", rt.allow)
		x.fail(&api.Error{
			Code:    api.CodeMethodNotAllowed,
			Message: fmt.Sprintf("%s is not possible at %s: it takes %s", clip(r.Method), rt.path, rt.allow),
		})
		return x
	}
	x.method = r.Method
	if err := x.admit(v.needs); err != nil {
		x.fail(err)
		return x
	}
	var err error
	if x.patience, err = x.timeout(); err == nil { // also where nothing waits: a header that is wrong is nowhere ignored
		err = v.do(x)
	}
	if err != nil {
		x.fail(err)
	}
	return x
}

// find returns the route of the request's path, nil if it has none. Paths are
// cut as they were sent, so that any bytes can be a row's key.
func (s *Server) find(x *exchange) *route {
	path := x.r.URL.RawPath
	if path == "" {
		path = x.r.URL.EscapedPath()
	}
	if rt, ok := s.fixed[path]; ok {
		return rt
	}
	rest, ok := strings.CutPrefix(path, "/v1/tables/")
	if !ok {
		return s.anyNode(x, path)
	}
	table, rest, more := strings.Cut(rest, "/")
	x.rawTable = table
	if !more {
		return s.table
	}
	switch rest {
	case "rows":
		return s.rows
	case "replicas":
		return s.replicas
	case "check":
		return s.check
	case "owner":
		return s.owner
	}
	key, ok := strings.CutPrefix(rest, "rows/")
	if !ok {
		return nil
	}
	x.rawKey = key
	return s.row
}

// admit finds out who asks, and refuses who may not.
func (x *exchange) admit(n need) error {
	if n == needNothing {
		return nil
	}
	cs := x.r.TLS
	if cs != nil && len(cs.PeerCertificates) == 0 {
		return &api.Error{
			Code:    api.CodeUnauthorized,
			Message: "this needs a client certificate, and the connection has none",
			Hint:    "connect with a certificate that tidal certs made for a client",
		}
	}
	if x.expired {
		return errExpired()
	}
	if n == needCertificate {
		return nil
	}
	who, err := x.s.o.Identify(cs)
	if err != nil {
		if _, ok := errors.AsType[*api.Error](err); ok {
			return err
		}
		return &api.Error{Code: api.CodeForbidden, Message: "the client certificate gives no role here: " + err.Error()}
	}
	x.who = who
	return allowed(who, n)
}

func errExpired() error {
	return &api.Error{
		Code:    api.CodeUnauthorized,
		Message: "the client certificate of this connection has expired meanwhile",
		Hint:    "tidal certs renew renews it; connect again with the new one",
	}
}

// allowed refuses who has not the role that is needed.
func allowed(who api.Principal, n need) error {
	if who.Role >= n.role() {
		return nil
	}
	return &api.Error{
		Code:    api.CodeForbidden,
		Message: fmt.Sprintf("%s has the role %s: this needs the role %s", who.Name, who.Role, n.role()),
	}
}

package server_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"tidal/node/api"
	"tidal/node/internal/server"
)

// below is all that is below the server: it keeps the last request and answers
// as the test says.
type below struct {
	many     sync.Mutex // of a stream's calls
	req      *api.Request
	born     api.Position // the router's word on the table
	resp     api.Response
	err      error
	panics   bool
	name     string
	settings api.TableSettings
	created  bool
	health   api.Health
	check    server.Check
	deadline bool
	order    api.NodeOrder
	hand     api.HandOver
	query    api.TableQuery
	after    string
	more     chan struct{} // closed once there are more events
	action   api.NodeAction
	to       string // node that got the order
	roll     api.RollAction
	rollID   uint64
	change   api.RollChange
	level    uint64        // that was asked for
	binary   string        // that was sent or asked for
	sent     int           // bytes of it that came
	slow     bool          // what others are asked for lasts until its ctx ends
	block    chan struct{} // if not nil, Do waits for it
	entered  chan struct{}
	deaf     bool // Do does not hear that its ctx ends
}

func (b *below) Do(ctx context.Context, req *api.Request) (*api.Response, error) {
	b.many.Lock()
	b.req = req
	b.many.Unlock()
	if b.block != nil {
		b.entered <- struct{}{}
		ended := ctx.Done()
		if b.deaf {
			ended = nil
		}
		select {
		case <-b.block:
		case <-ended:
			return nil, context.Cause(ctx)
		}
	}
	if b.panics {
		panic("for the test")
	}
	if b.err != nil {
		return nil, b.err
	}
	if req.Born.Index == 0 && b.born.Index != 0 {
		req.Born = b.born
	}
	resp := b.resp
	return &resp, nil
}

func (b *below) await(ctx context.Context) {
	_, b.deadline = ctx.Deadline()
	if b.slow {
		<-ctx.Done()
	}
}

func (b *below) CreateTable(ctx context.Context, name string, settings api.TableSettings) (api.Table, bool, error) {
	b.name, b.settings = name, settings
	b.await(ctx)
	return api.Table{Name: name, ID: 2}, b.created, b.err
}

func (b *below) DropTable(ctx context.Context, name string) error {
	b.name = name
	b.await(ctx)
	return b.err
}

func (b *below) MoveReplica(ctx context.Context, table, from, to string) (api.Table, error) {
	b.name = table + " from " + from + " to " + to
	b.await(ctx)
	return api.Table{Name: table, ID: 2, Replicas: []api.Replica{}}, b.err
}

func (b *below) HandTable(ctx context.Context, table string, o api.HandOver, by api.Principal) (api.Table, error) {
	b.name, b.hand = table+" for "+by.Name, o
	b.await(ctx)
	return api.Table{Name: table, ID: 2, Owner: o.To, Replicas: []api.Replica{}}, b.err
}

func (b *below) ReplaceNode(ctx context.Context, node string) error {
	b.name = "replace " + node
	b.await(ctx)
	return b.err
}

func (b *below) Found(ctx context.Context, members []string) (api.Founded, error) {
	b.name = "found " + strings.Join(members, ",")
	b.await(ctx)
	return api.Founded{Cluster: "prod", Proposer: members[0], Members: members, Without: []string{}}, b.err
}

func (b *below) Table(ctx context.Context, name string) (api.Table, error) {
	b.name = name
	b.await(ctx)
	return api.Table{Name: name, ID: 2, Owner: "b", Term: 4, Replicas: []api.Replica{}}, b.err
}

func (b *below) checkTable(ctx context.Context, name string) (api.TableCheck, error) {
	b.name = "check " + name
	b.await(ctx)
	return api.TableCheck{Table: name, ID: 2, Replicas: []api.CheckedReplica{}}, b.err
}

func (b *below) Tables(context.Context) ([]api.Table, error) { return nil, b.err }
func (b *below) Status() api.Status                          { return api.Status{Cluster: "prod"} }

func (b *below) Local(tables bool) api.LocalStatus { //nolint:revive // the flag is the client's
	s := api.LocalStatus{Node: "a", Phase: "serving"}
	if tables {
		s.Tables = []api.LocalTable{{Name: "t"}}
	}
	return s
}

func (b *below) Window(_ context.Context, q api.TableQuery) (api.Status, error) {
	b.query = q
	return api.Status{Cluster: "prod", Window: &api.Window{Total: 7}}, b.err
}

func (b *below) After(id string) ([]api.Event, string, <-chan struct{}, error) { //nolint:revive // all four belong together
	b.after = id
	if b.err != nil {
		return nil, "", nil, b.err
	}
	if id == "" {
		return []api.Event{{ID: "a.1.00000000/1", Kind: api.EventLease, Member: "b"}}, "a.1.00000000/1", b.more, nil
	}
	return []api.Event{{ID: "a.1.00000000/2", Kind: api.EventOwner, To: "b"}}, "a.1.00000000/2", nil, nil
}

func (b *below) Health(c server.Check) (answer api.Health) { b.check = c; return b.health }

func (b *below) tableID(ctx context.Context, name string) (api.TableID, error) {
	if b.slow {
		<-ctx.Done()
		return 0, &api.Error{Code: api.CodeNotReady, Message: "nobody can say"}
	}
	if name != "t" {
		return 0, &api.Error{Code: api.CodeTableNotFound, Message: "there is no table " + name}
	}
	return 2, nil
}

func (b *below) Nodes(context.Context) ([]api.Node, error) {
	return []api.Node{{Member: api.Member{Node: "a"}, Owned: 2}}, b.err
}

func (b *below) Rotation() api.Rotation { return api.Rotation{Phase: api.RotateSoak} }

func (b *below) Rotate(ctx context.Context, r api.Rotation) error {
	b.name = r.Phase + " by " + r.By
	b.await(ctx)
	return b.err
}

func (b *below) Programs(context.Context) (api.Programs, error) {
	return api.Programs{Node: "a", Staged: []api.Program{}}, b.err
}

func (b *below) CheckProgram(_ context.Context, sha256 string) (api.Program, error) {
	b.binary = sha256
	return api.Program{SHA256: sha256}, b.err
}

func (b *below) StageProgram(_ context.Context, sha256 string, content io.Reader) (api.Program, error) {
	n, err := io.Copy(io.Discard, content)
	b.binary, b.sent = sha256, int(n)
	return api.Program{SHA256: sha256}, errors.Join(err, b.err)
}

func (b *below) Level(ctx context.Context) (api.ClusterLevel, error) {
	b.await(ctx)
	return api.ClusterLevel{Level: 1, Possible: 2, Members: []api.MemberLevels{}}, b.err
}

func (b *below) RaiseLevel(ctx context.Context, level uint64) (api.ClusterLevel, error) {
	b.name, b.level = "raise", level
	b.await(ctx)
	return api.ClusterLevel{Level: max(level, 2)}, b.err
}

func (b *below) Revoked() []api.Revocation {
	return []api.Revocation{{Serial: "12ab", Reason: "lost", By: "ann"}}
}

func (b *below) Revoke(ctx context.Context, r api.Revocation) error {
	b.name = r.Serial + " " + r.Reason + " by " + r.By
	b.await(ctx)
	return b.err
}

func (b *below) Order(_ context.Context, node string, a api.NodeAction, o api.NodeOrder, by api.Principal) (api.NodeReport, error) {
	b.to, b.action, b.order, b.name = node, a, o, by.Name
	return api.NodeReport{Node: "a", Owned: 2}, b.err
}

func (b *below) Fresh(ctx context.Context) error {
	b.name = "fresh"
	b.await(ctx)
	return b.err
}

func (b *below) Requests() api.RequestReport { return api.RequestReport{Node: "a"} }

func (b *below) Rolls(ctx context.Context) ([]api.Roll, error) {
	b.await(ctx)
	return []api.Roll{{ID: 3}}, b.err
}

func (b *below) Roll(ctx context.Context, id uint64) (api.Roll, error) {
	b.rollID = id
	b.await(ctx)
	return api.Roll{ID: id}, b.err
}

func (b *below) ChangeRoll(_ context.Context, a api.RollAction, id uint64, c api.RollChange) (api.Roll, error) {
	b.roll, b.rollID, b.change = a, id, c
	return api.Roll{ID: max(id, 3)}, b.err
}

// rig is a server with its fakes.
type rig struct {
	t *testing.T
	*server.Server
	*below
	log  bytes.Buffer
	base func(net.Listener) context.Context // of the HTTP server; nil: its own
	mu   struct {
		sync.Mutex
		events []server.Event
	}
}

func newRig(t *testing.T) *rig {
	t.Helper()
	g := &rig{t: t, below: &below{
		resp:   api.Response{Found: true, Version: api.Version{Table: 2, Index: 18}, Owner: "b", Lag: 5},
		health: api.Health{Status: "ok", Node: "a"},
	}}
	g.Server = server.New(server.Options{
		Node: "a", Rows: g.below, Tables: g.below, State: g.below, Nodes: g.below, Members: g.below, Certs: g.below, Watch: g.below, Rolls: g.below, Level: g.below, Programs: g.below, TableID: g.tableID, CheckTable: g.checkTable,
		Identify: identify,
		NewID:    func() api.RequestID { return api.RequestID{0xee} },
		Observe: func(e server.Event) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.mu.events = append(g.mu.events, e)
			if n, _ := g.Activity(); n == 0 && strings.HasPrefix(e.Route, "/v1/tables/{table}/rows") {
				t.Errorf("who waits for requests to end misses this one: %+v", e)
			}
		},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "tidal_up 1\n") }),
		Peer:    http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }),
		Log:     slog.New(slog.NewTextHandler(&g.log, nil)),
	})
	return g
}

func (g *rig) events() []server.Event {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.events
}

// identify takes role and name from the certificate's common name, "role" or
// "role:name", as no real node does.
func identify(cs *tls.ConnectionState) (api.Principal, error) {
	if cs == nil {
		return api.Principal{Name: "local", Role: api.RoleAdmin}, nil
	}
	word, name, named := strings.Cut(cs.PeerCertificates[0].Subject.CommonName, ":")
	role, ok := api.ParseRole(word)
	if !ok {
		return api.Principal{}, errors.New("it names " + word)
	}
	if !named {
		name = "the-" + word
	}
	return api.Principal{Name: name, Role: role}, nil
}

// as makes the request come over TLS, with a certificate of that name if it is
// not "".
func as(name string) func(*http.Request) {
	return func(r *http.Request) {
		r.TLS = &tls.ConnectionState{}
		if name != "" {
			cert := &x509.Certificate{}
			cert.Subject.CommonName = name
			r.TLS.PeerCertificates = []*x509.Certificate{cert}
		}
	}
}

// header adds a header line, "Name: value".
func header(line string) func(*http.Request) {
	return func(r *http.Request) {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Add(name, value)
	}
}

// ask sends one request through the handler.
func (g *rig) ask(method, target, body string, change ...func(*http.Request)) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for _, f := range change {
		f(r)
	}
	w := httptest.NewRecorder()
	g.Handler().ServeHTTP(w, r)
	g.documented(w.Code)
	return w
}

// documented holds that docs/openapi.json has the answer that was given last.
func (g *rig) documented(status int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.mu.events) == 0 {
		return
	}
	e := g.mu.events[len(g.mu.events)-1]
	line := e.Method + " " + e.Route
	need, known := g.Needs()[line]
	if !known && e.Method == http.MethodHead {
		line = http.MethodGet + " " + e.Route
		need, known = g.Needs()[line]
	}
	if known && e.Route != "/internal/peer" && status != http.StatusMethodNotAllowed && !slices.Contains(statuses(line, need), status) {
		g.t.Errorf("%s answered %d %s, which docs/openapi.json does not say", line, status, e.Code)
	}
}

// problemOf reads a problem, and checks what all problems have in common.
func problemOf(t *testing.T, w *httptest.ResponseRecorder) api.Problem {
	t.Helper()
	var p api.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatalf("the answer %d %q is no problem: %v", w.Code, w.Body, err)
	}
	kind := api.KindOf(p.Code)
	if w.Code != kind.Status || p.Status != kind.Status || p.Title == "" || p.Detail == "" {
		t.Errorf("problem %+v with status %d", p, w.Code)
	}
	if got := w.Header().Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type %q", got)
	}
	if got := w.Header().Get(api.HeaderRouteError); kind.Route != (got == string(p.Code)) {
		t.Errorf("header %s is %q for %s", api.HeaderRouteError, got, p.Code)
	}
	return p
}

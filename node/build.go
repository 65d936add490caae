package node

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"time"

	"tidal/node/api"
	"tidal/node/internal/cluster"
	"tidal/node/internal/owner"
	"tidal/node/internal/peer"
	"tidal/node/internal/place"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/router"
	"tidal/node/internal/server"
	"tidal/node/internal/store"
	"tidal/node/internal/table"
	"tidal/node/internal/wire"
)

// build makes the parts and ties them together. They do nothing yet.
func (n *node) build() error {
	c, f, limits := n.o.Config, n.o.Faults, n.o.Limits
	err := n.buildSnapshots()
	if err != nil {
		return err
	}
	defect := rafthost.Sound
	if f.AckBeforeSync {
		defect = rafthost.AckBeforeSync
	}
	n.stepper, err = rafthost.NewStepper(rafthost.Options{
		DB: n.db, Sender: sender{n}, Events: n.observe, Shipper: n.outbox,
		Memo:     func(b *store.Batch) { n.cluster.Remember(b) },
		Clock:    func() time.Duration { return n.host.Clock() },
		Prefer:   func(group uint64, node string) uint64 { return place.Preference(api.TableID(group), node) },
		LogBytes: limits.LogBytes, NodeLogBytes: limits.NodeLogBytes, Restless: f.NeverQuiet, Defect: defect,
	})
	if err != nil {
		return err
	}
	n.host = rafthost.NewHost(n.stepper, 0)
	n.tables = owner.New(owner.Options{
		Node: c.Node.ID, DB: n.db, Host: n.host, Hold: f.HandOverHold, NoIDs: f.NoRequestIDs, StaleReads: f.StaleReads,
		AnyTarget: f.AnyTarget, Defect: tableDefect(f),
		MayWrite: func(id api.TableID) error { return n.cluster.MayWrite(id) },
		Spent:    func(id api.TableID, keyed bool) string { return n.cluster.Spent(id, keyed) },
		Sound:    func(id api.TableID, node string) bool { return n.cluster.Sound(id, node) },
		OnFence:  n.tellFence,
	})
	p := peer.Options{
		Node:    c.Node.ID,
		Hello:   func(k wire.ConnKind) wire.Hello { return n.cluster.Hello(k) },
		Admit:   func(h wire.Hello) error { return n.cluster.Admit(h) },
		Fenced:  func(by api.Incarnation, why *api.Error) { n.cluster.Fenced(by, why) },
		Refused: func(h wire.Hello, why *api.Error) { n.cluster.Refused(h, why) },
		Dial:    n.o.Dial,
		Beat:    func(to string, full bool) *wire.Heartbeat { return n.cluster.Beat(to, full) },
		Handler: handler{n},
		Log:     n.log,

		Snapshot: n.receiveSnapshot,
	}
	if n.keys != nil {
		p.TLS, p.Names = n.keys.NodeTLS, n.keys.Names
	}
	n.net = peer.New(p)
	n.events = newEvents(n)
	n.cluster = cluster.New(cluster.Options{
		Node: c.Node.ID, Name: c.Cluster.Name, Members: c.Cluster.Members, Join: c.Cluster.Join, Advertise: c.Node.Advertise,
		Zone: c.Node.Zone, Version: n.o.Version, Levels: n.o.Levels, Identity: n.who,
		Leveled: func(level uint64) error { return store.WriteNote(n.o.Disk, levelFile(c), level) },
		DB:      n.db, Host: n.host, Tables: replicas{n.tables}, Net: n.net, Log: n.log,
		Receiving: n.receiver.Progress, Events: n.events.tell, Positions: n.positions,
		Spent: n.tables.Spent, Unsound: n.unsound,
		SuspectAfter: f.SuspectAfter, StallAfter: f.StallAfter, ReturnAfter: f.ReturnAfter,
		AdvertiseMember: f.AdvertiseMember, NoAddressProof: f.NoAddressProof, NoFrontier: f.NoFrontier,
		UnsetFrontier: f.UnsetFrontier, AdmitOlder: f.AdmitOlder,
	})
	n.cluster.SetCrowded(n.space.full.Load())
	n.meters = newMeters(n)
	n.router = router.New(router.Options{
		Node: c.Node.ID, Directory: directory{n.cluster}, Local: n.tables, Remote: remote{n},
		NoPatience: f.NoPatience, Observe: n.request,
	})
	n.server = server.New(server.Options{
		Node: c.Node.ID, Rows: rows{n}, Tables: n.cluster, State: state{n}, Nodes: nodes{n}, Members: n.cluster, Rolls: n.cluster, Certs: certs{n.cluster, n}, Level: n.cluster, Programs: programs{n}, Watch: watch{n}, TableID: n.cluster.TableID, CheckTable: n.CheckTable,
		Identify: n.principal, NewID: newRequest, Observe: n.answered,
		Metrics: n.meters.handler(), Peer: n.net, Log: n.log,
	})
	return nil
}

func newDisk() (id api.DiskID) {
	_, _ = crand.Read(id[:]) // never fails
	return id
}

func newRequest() (id api.RequestID) {
	_, _ = crand.Read(id[:]) // never fails
	return id
}

// request counts a row request that entered here.
func (n *node) request(e router.Event) {
	n.meters.request(e)
	n.events.request(e)
}

// watch shows the cluster to those who look at it.
type watch struct{ n *node }

// Window implements server.Watch.
func (w watch) Window(ctx context.Context, q api.TableQuery) (api.Status, error) {
	return w.n.cluster.Window(ctx, q)
}

// After implements server.Watch.
func (w watch) After(id string) ([]api.Event, string, <-chan struct{}, error) { //nolint:revive // all four belong together
	return w.n.events.After(id)
}

// answered counts an HTTP request.
func (n *node) answered(e server.Event) {
	n.meters.answer(e)
	n.requests.answered(e, time.Now())
}

// observe passes on what the host tells of a group, from its loop.
func (n *node) observe(e rafthost.Event) {
	n.tables.Observe(e)
	n.cluster.Observe(e)
	n.meters.group(e)
}

// sender sends raft messages to peers. What is dropped raft sends again.
type sender struct{ n *node }

func (s sender) Send(node string, batch []byte) { s.n.net.SendRaft(node, batch) }

// rows serves requests while the node takes part in the cluster.
type rows struct{ n *node }

// Do implements server.Rows.
func (r rows) Do(ctx context.Context, req *api.Request) (*api.Response, error) {
	if err := r.n.cluster.Outcast(); err != nil {
		return nil, err
	}
	return r.n.router.Do(ctx, req)
}

// replicas shows the tables here to the cluster in its own words.
type replicas struct{ *owner.Tables }

// Local implements cluster.Tables.
func (r replicas) Local(id api.TableID) (cluster.Replica, bool) {
	l, ok := r.Tables.Local(id)
	return cluster.Replica(l), ok
}

// All implements cluster.Tables.
func (r replicas) All() []cluster.Replica {
	all := r.Tables.All()
	out := make([]cluster.Replica, len(all))
	for i, l := range all {
		out[i] = cluster.Replica(l)
	}
	return out
}

// positions shows them how far the replicas are.
func (n *node) positions(f func(cluster.Position)) {
	n.tables.Positions(func(p owner.Position) { f(cluster.Position(p)) })
}

// directory shows the cluster's routes to the router in its own words.
type directory struct{ *cluster.Cluster }

// Find implements router.Directory.
func (d directory) Find(name string) (router.Route, bool) {
	r, ok := d.Cluster.Find(name)
	return router.Route(r), ok
}

// handler takes what peers send.
type handler struct{ n *node }

func (h handler) Raft(from api.Incarnation, frame []byte) {
	h.n.cluster.Passed(from, wire.RaftPass(frame))
	h.n.host.Deliver(from.Node, from.Start, frame)
}

func (h handler) Heartbeat(from api.Incarnation, hb *wire.Heartbeat) {
	h.n.cluster.Heartbeat(from, hb)
}

func (h handler) Up(remote wire.Hello) { h.n.cluster.Up(remote) }

func (h handler) Down(node string, inc api.Incarnation, why error) {
	h.n.cluster.Down(node, inc, errors.Is(why, peer.ErrRefused), why)
}

func (h handler) Call(ctx context.Context, from wire.Hello, m wire.Method, payload []byte) ([]byte, error) {
	switch m {
	case wire.MethodNode:
		return h.n.answerOrder(ctx, from, payload)
	case wire.MethodDigest:
		return h.n.answerDigest(ctx, from, payload)
	case wire.MethodForward, wire.MethodRelay:
	default:
		return h.n.cluster.Call(ctx, from, m, payload)
	}
	if from.ClusterID.IsZero() {
		return nil, &api.Error{Code: api.CodeForbidden, Message: "node " + from.Incarnation.Node + " does not belong to the cluster"}
	}
	req, err := wire.DecodeRequest(payload, time.Now())
	if err != nil {
		return nil, err
	}
	if err = allowed(req); err != nil {
		return nil, err
	}
	serve := h.n.router.Serve
	if m == wire.MethodRelay {
		serve = h.n.router.Relay
	}
	resp, err := serve(ctx, req)
	if err != nil {
		return nil, err
	}
	return wire.AppendResponse(nil, resp), nil
}

// allowed checks the role of a forwarded request's client again.
func allowed(req *api.Request) error {
	need := api.RoleReader
	if req.Op.Writes() {
		need = api.RoleWriter
	}
	if req.Principal.Role >= need {
		return nil
	}
	return &api.Error{
		Code:    api.CodeForbidden,
		Message: fmt.Sprintf("%s has the role %s: this needs the role %s", req.Principal.Name, req.Principal.Role, need),
	}
}

// remote lets other nodes serve requests.
type remote struct{ n *node }

// Forward implements router.Remote.
func (r remote) Forward(ctx context.Context, node string, req *api.Request) (*api.Response, error) {
	return r.ask(ctx, node, wire.MethodForward, req)
}

// Relay implements router.Remote.
func (r remote) Relay(ctx context.Context, node string, req *api.Request) (*api.Response, error) {
	return r.ask(ctx, node, wire.MethodRelay, req)
}

func (r remote) ask(ctx context.Context, node string, m wire.Method, req *api.Request) (*api.Response, error) {
	b, err := r.n.cluster.Ask(ctx, node, m, wire.AppendRequest(nil, req, time.Now()))
	if err == nil {
		return wire.DecodeResponse(b)
	}
	var answered *api.Error
	switch {
	case errors.As(err, &answered):
		return nil, answered
	case errors.Is(err, peer.ErrUnreachable):
		return nil, &api.Error{Code: api.CodeOwnerUnreachable, Message: "the owner cannot be reached: " + err.Error(), RetryAfter: time.Second}
	}
	return nil, &api.Error{Code: api.CodeOutcomeUnknown, Message: "the connection to the owner broke after the request was sent: " + err.Error()}
}

// tellFence tells that this node's replica of a table is fenced.
func (n *node) tellFence(name string) {
	n.events.tell(api.Event{Kind: api.EventFenced, Member: n.o.Config.Node.ID, Tables: []string{name}, Count: 1})
}

// unsound returns the tables whose replicas here are fenced.
func (n *node) unsound() (out []api.TableID) {
	for _, l := range n.tables.Fenced() {
		out = append(out, l.ID)
	}
	return out
}

// tableDefect is how faults break the tables' machines.
func tableDefect(f Faults) table.Defect {
	if f.FlipValues {
		return table.ValueFlipped
	}
	return table.Sound
}

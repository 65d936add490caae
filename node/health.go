package node

import (
	"context"
	"strconv"
	"time"

	"tidal/node/api"
	"tidal/node/internal/ready"
	"tidal/node/internal/server"
)

// liveAfter is how long the raft loop may stand still before the node says that it
// does not live: who asks that restarts it, which a disk that is slow for a moment
// is no reason for.
const liveAfter = 10 * time.Second

// state is what the node says about itself.
type state struct{ n *node }

// Status implements server.State.
func (s state) Status() api.Status { return s.n.cluster.Status() }

// Fresh implements server.State.
func (s state) Fresh(ctx context.Context) error { return s.n.cluster.Fresh(ctx) }

// Local implements server.State.
func (s state) Local(tables bool) api.LocalStatus { //nolint:revive // the flag is the client's
	n := s.n
	reasons := n.reasons()
	out := api.LocalStatus{
		Ready: len(reasons) == 0, Reasons: reasons, Started: n.started.UTC(), Claim: n.cluster.Claim(),
		Owned: n.cluster.Owned(), Held: n.tables.Len(), Space: n.space.show(), Requests: s.Requests().Total,
		Node: n.o.Config.Node.ID, Incarnation: n.who.Incarnation, Disk: n.who.Disk,
		Version: n.o.Version, Draining: n.cluster.Draining(), Phase: string(*n.phase.Load()),
		ClusterID: n.cluster.ID(), Tables: []api.LocalTable{},
		Certificates: n.certsReport(), Connections: n.certConns(),
	}
	if n.keys != nil {
		expires := n.keys.Leaf().NotAfter.UTC()
		out.Certificate = &expires
	}
	if !tables {
		return out
	}
	for _, l := range n.tables.All() {
		out.Tables = append(out.Tables, api.LocalTable{
			Name: l.Name, ID: l.ID, Replica: strconv.FormatUint(l.State.Replica, 16), Leads: l.State.Leads,
			Owns: l.State.Owns, Term: l.State.Term, Commit: l.Commit, Applied: l.Applied,
		})
	}
	return out
}

// Health implements server.State.
func (s state) Health(check server.Check) api.Health {
	h := api.Health{Status: "ok", Node: s.n.o.Config.Node.ID, Phase: string(*s.n.phase.Load())}
	switch check {
	case server.CheckLive:
		if still, _ := s.n.dog.Still(); still >= max(liveAfter, s.n.dog.after) {
			h.Reasons = []api.Reason{ready.Stalled(still)}
		}
	case server.CheckStartup:
		if p := *s.n.phase.Load(); p == ready.Prepare || p == ready.Listen || p == ready.Start {
			h.Reasons = s.n.reasons()
		}
	case server.CheckReady:
		h.Reasons = s.n.reasons()
	}
	if len(h.Reasons) > 0 {
		h.Status = "unavailable"
	}
	return h
}

// reasons is why the node is not ready; none if it is.
func (n *node) reasons() []api.Reason {
	in := ready.Input{Phase: *n.phase.Load()}
	n.cluster.Ready(&in)
	if still, stalled := n.dog.Still(); stalled {
		in.Stalled = still
	}
	in.Full = n.space.complaint()
	for _, l := range n.tables.Fenced() {
		in.Fenced = append(in.Fenced, l.Name)
	}
	out := ready.Reasons(in)
	if len(out) == 0 {
		return nil
	}
	explain(out, n.cluster.Waiting())
	for _, why := range n.cluster.RefusedBy() {
		out = append(out, api.Reason{Code: "refused", Detail: why})
	}
	return out
}

// explain adds what the node waits for to the one reason that is nearest to it.
func explain(reasons []api.Reason, waiting string) {
	if waiting == "" {
		return
	}
	for _, code := range []string{"forming", "no-lease", "starting"} {
		for i := range reasons {
			if reasons[i].Code == code {
				reasons[i].Detail += ": " + waiting
				return
			}
		}
	}
}

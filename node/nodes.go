package node

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"tidal/node/api"
	"tidal/node/internal/peer"
	"tidal/node/internal/wire"
)

// askNode bounds how long GET /v1/nodes waits for what a node says of itself.
const askNode = time.Second

// nodes lists the members and gives them orders.
type nodes struct{ n *node }

// Nodes implements server.Nodes.
func (s nodes) Nodes(ctx context.Context) ([]api.Node, error) {
	list := s.n.cluster.NodeStatus()
	ctx, cancel := context.WithTimeout(ctx, askNode)
	defer cancel()
	var g errgroup.Group
	for i := range list {
		x := &list[i]
		if !x.Live {
			continue
		}
		g.Go(func() error {
			r, err := s.Order(ctx, x.Node, api.NodeState, api.NodeOrder{}, api.Principal{Role: api.RoleReader})
			if err != nil {
				x.Silent = publicText(err)
				return nil
			}
			x.Phase, x.Claim, x.Certificates = r.Phase, r.Claim, r.Certificates
			return nil
		})
	}
	_ = g.Wait() // the functions return no errors
	return list, nil
}

func publicText(err error) string {
	switch e, ok := errors.AsType[*api.Error](err); {
	case ok:
		return e.Message
	case errors.Is(err, peer.ErrUnreachable):
		return "it cannot be reached"
	}
	return "it did not answer in time"
}

// Order implements server.Nodes.
func (s nodes) Order(ctx context.Context, node string, action api.NodeAction, o api.NodeOrder, by api.Principal) (api.NodeReport, error) {
	n := s.n
	if node == "" || node == n.o.Config.Node.ID {
		return n.obey(ctx, wire.Order{Action: action, Order: o, Principal: by})
	}
	if _, known := n.cluster.View().Member(node); !known {
		return api.NodeReport{}, api.NoNode(node)
	}
	b, err := n.net.Call(ctx, node, wire.MethodNode, wire.AppendOrder(nil, &wire.Order{Action: action, Order: o, Principal: by}))
	if err == nil {
		return wire.DecodeReport(b)
	}
	if answered, ok := errors.AsType[*api.Error](err); ok {
		return api.NodeReport{}, answered
	}
	if errors.Is(err, peer.ErrUnreachable) {
		return api.NodeReport{}, &api.Error{Code: api.CodeNotReady, Message: "node " + node + " cannot be reached from node " + n.o.Config.Node.ID + ": nothing was done", RetryAfter: time.Second}
	}
	return api.NodeReport{}, &api.Error{Code: api.CodeOutcomeUnknown, Message: "node " + node + " was told, and its answer did not come"}
}

// obey does what an order says, on this node.
func (n *node) obey(ctx context.Context, w wire.Order) (api.NodeReport, error) {
	var err error
	if w.Action != api.NodeState && w.Principal.Role < api.RoleAdmin {
		return api.NodeReport{}, &api.Error{Code: api.CodeForbidden, Message: w.Principal.Name + " is no admin: orders to nodes need the role admin"}
	}
	if w.Order.Roll != 0 && w.Action != api.NodeState {
		if err = n.cluster.HoldsRoll(ctx, w.Order.Roll, w.Order.Epoch); err != nil {
			return api.NodeReport{}, err
		}
	}
	switch w.Action {
	case api.NodeState:
	case api.NodeDrain:
		var ttl time.Duration
		if ttl, err = w.Order.Duration(); err == nil {
			err = n.cluster.ClaimDrain(w.Order, ttl)
		}
	case api.NodeUndrain:
		err = n.cluster.ReleaseDrain(w.Order)
	case api.NodeRestart:
		err = n.orderRestart(ctx, w.Order)
	case api.NodeCerts:
		err = n.orderCerts(ctx)
	default:
		err = &api.Error{Code: api.CodeBadRequest, Message: "node " + n.o.Config.Node.ID + " does not know the order " + w.Action.String()}
	}
	if err != nil {
		return api.NodeReport{}, err
	}
	return api.NodeReport{
		Node: n.o.Config.Node.ID, Incarnation: n.who.Incarnation, Phase: string(*n.phase.Load()),
		Draining: n.cluster.Draining(), Owned: n.cluster.Owned(), Claim: n.cluster.Claim(),
		Certificates: n.certsReport(),
	}, nil
}

// answerOrder answers an order that came through another node.
func (n *node) answerOrder(ctx context.Context, from wire.Hello, payload []byte) ([]byte, error) {
	if from.ClusterID.IsZero() {
		return nil, &api.Error{Code: api.CodeForbidden, Message: "node " + from.Incarnation.Node + " does not belong to the cluster"}
	}
	w, err := wire.DecodeOrder(payload)
	if err != nil {
		return nil, err
	}
	r, err := n.obey(ctx, w)
	if err != nil {
		return nil, err
	}
	return wire.AppendReport(nil, &r), nil
}

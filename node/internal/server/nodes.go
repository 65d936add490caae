package server

import (
	"context"
	"net/http"
	"strings"

	"tidal/node/api"
)

// Nodes lists the members and gives them orders.
type Nodes interface {
	Nodes(ctx context.Context) ([]api.Node, error)
	// Order has a node do something, "" being the one that is asked. It returns
	// once the node has begun.
	Order(ctx context.Context, node string, action api.NodeAction, o api.NodeOrder, by api.Principal) (api.NodeReport, error)
}

// maxOrder is the limit of the body of an order.
const maxOrder = 4 << 10

// nodeRoutes returns the routes of orders, by the action's name: to the node that
// is asked, or to any.
func nodeRoutes(prefix string) map[string]*route {
	post := func(a api.NodeAction, do func(*exchange) error) *route {
		return newRoute(prefix+a.String(), verb{http.MethodPost, needAdmin, do})
	}
	return map[string]*route{
		api.NodeDrain.String():   post(api.NodeDrain, (*exchange).drainNode),
		api.NodeUndrain.String(): post(api.NodeUndrain, (*exchange).undrainNode),
		api.NodeRestart.String(): post(api.NodeRestart, (*exchange).restartNode),
		api.NodeCerts.String():   post(api.NodeCerts, (*exchange).reloadCerts),
	}
}

// anyNode returns the route of /v1/nodes/{node}/ACTION or of a roll, nil if it is
// neither.
func (s *Server) anyNode(x *exchange, path string) *route {
	rest, ok := strings.CutPrefix(path, "/v1/nodes/")
	if !ok {
		return s.anyRoll(x, path)
	}
	node, action, _ := strings.Cut(rest, "/")
	if node == "" {
		return nil // it would mean the node that is asked
	}
	x.node = node
	return s.nodes[action]
}

// listNodes answers GET /v1/nodes.
func (x *exchange) listNodes() error {
	if _, err := x.query(); err != nil {
		return err
	}
	nodes, err := x.s.o.Nodes.Nodes(x.r.Context())
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, api.NodeList{Nodes: nodes})
}

// drainNode answers POST /v1/node/drain and POST /v1/nodes/{node}/drain.
func (x *exchange) drainNode() error { return x.order(api.NodeDrain, http.StatusOK) }

// undrainNode answers POST /v1/node/undrain and POST /v1/nodes/{node}/undrain.
func (x *exchange) undrainNode() error { return x.order(api.NodeUndrain, http.StatusOK) }

// restartNode answers POST /v1/node/restart and POST /v1/nodes/{node}/restart.
func (x *exchange) restartNode() error { return x.order(api.NodeRestart, http.StatusAccepted) }

// reloadCerts answers POST /v1/node/certs/reload and
// POST /v1/nodes/{node}/certs/reload.
func (x *exchange) reloadCerts() error { return x.order(api.NodeCerts, http.StatusOK) }

func (x *exchange) order(action api.NodeAction, status int) error {
	if _, err := x.query(); err != nil {
		return err
	}
	if x.node != "" {
		if err := api.CheckNode(x.node); err != nil {
			return err
		}
	}
	body, err := x.body(maxOrder, "the order")
	if err != nil {
		return err
	}
	var o api.NodeOrder
	if err = parseObject(body, &o, "the order", `"ttl", "epoch", "by", "roll" and "binary"`); err != nil {
		return err
	}
	if _, err = o.Duration(); err != nil {
		return err
	}
	if o.By == "" {
		o.By = x.who.Name
	}
	if o.Roll != 0 && o.Epoch == 0 {
		return badRequest("the order is of roll %d and names no epoch", o.Roll)
	}
	if o.Binary != "" {
		if action != api.NodeRestart {
			return badRequest("%s takes no %q", action, "binary")
		}
		if err = api.CheckSHA256(o.Binary); err != nil {
			return err
		}
	}
	report, err := x.s.o.Nodes.Order(x.r.Context(), x.node, action, o, x.who)
	if err != nil {
		return err
	}
	return x.json(status, report)
}

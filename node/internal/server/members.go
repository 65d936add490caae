package server

import (
	"context"
	"fmt"
	"net/http"

	"tidal/node/api"
)

// Members changes which nodes hold what. Its errors are *api.Error.
type Members interface {
	// MoveReplica returns once it is decided that a table's replica goes from one
	// node to another; the move itself takes as long as it takes.
	MoveReplica(ctx context.Context, table, from, to string) (api.Table, error)
	// HandTable has a table owned by another node. It returns once that one owns it.
	HandTable(ctx context.Context, table string, o api.HandOver, by api.Principal) (api.Table, error)
	// ReplaceNode lets a member whose disk is gone come back with an empty one.
	ReplaceNode(ctx context.Context, node string) error
	// Found has the cluster form with these of the listed members alone.
	Found(ctx context.Context, members []string) (api.Founded, error)
}

func replicasRoute() *route {
	rt := newRoute("/v1/tables/{table}/replicas", verb{http.MethodPost, needAdmin, (*exchange).moveReplica})
	rt.counts = true
	return rt
}

func replaceRoute() *route {
	return newRoute("/v1/nodes/{node}/replace", verb{http.MethodPost, needAdmin, (*exchange).replaceNode})
}

// moveReplica answers POST /v1/tables/{table}/replicas.
func (x *exchange) moveReplica() error {
	name, err := x.tableName()
	if err != nil {
		return err
	}
	body, err := x.body(maxSettings, "the move")
	if err != nil {
		return err
	}
	m, err := parseMove(body)
	if err != nil {
		return err
	}
	ctx, cancel := x.patiently()
	defer cancel()
	table, err := x.s.o.Members.MoveReplica(ctx, name, m.From, m.To)
	if err != nil {
		return x.late(ctx, err)
	}
	return x.json(http.StatusAccepted, table)
}

// parseMove reads the body of POST /v1/tables/{table}/replicas.
func parseMove(body []byte) (api.Move, error) {
	var m api.Move
	if err := parseObject(body, &m, "the move", `"from" and "to"`); err != nil {
		return m, err
	}
	for _, n := range []struct{ field, node string }{{"from", m.From}, {"to", m.To}} {
		if api.CheckNode(n.node) != nil {
			return m, &api.Error{
				Code: api.CodeBadRequest, Message: fmt.Sprintf("the move: %s is %q, which is no node id", n.field, clip(n.node)),
				Hint: `it is a JSON object with the node ids "from" and "to"`,
			}
		}
	}
	return m, nil
}

// replaceNode answers POST /v1/nodes/{node}/replace.
func (x *exchange) replaceNode() error {
	if _, err := x.query(); err != nil {
		return err
	}
	if api.CheckNode(x.node) != nil {
		return badRequest("%q in the path is no node id", clip(x.node))
	}
	ctx, cancel := x.patiently()
	defer cancel()
	if err := x.s.o.Members.ReplaceNode(ctx, x.node); err != nil {
		return x.late(ctx, err)
	}
	x.begin(http.StatusNoContent)
	return nil
}

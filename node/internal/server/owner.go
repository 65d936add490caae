package server

import (
	"net/http"

	"tidal/node/api"
)

func ownerRoute() *route {
	rt := newRoute("/v1/tables/{table}/owner", verb{http.MethodPut, needAdmin, (*exchange).handTable})
	rt.counts = true
	return rt
}

// handTable answers PUT /v1/tables/{table}/owner.
func (x *exchange) handTable() error {
	name, err := x.tableName()
	if err != nil {
		return err
	}
	body, err := x.body(maxOrder, "the order")
	if err != nil {
		return err
	}
	var o api.HandOver
	if err = parseObject(body, &o, "the order", `"to", "ttl", "id", "owner" and "by"`); err != nil {
		return err
	}
	if o.To != "" {
		if err = api.CheckNode(o.To); err != nil {
			return err
		}
	}
	if _, err = o.Duration(); err != nil {
		return err
	}
	if o.By == "" {
		o.By = x.who.Name
	}
	ctx, cancel := x.patiently()
	defer cancel()
	table, err := x.s.o.Members.HandTable(ctx, name, o, x.who)
	if err != nil {
		return x.late(ctx, err)
	}
	return x.json(http.StatusOK, table)
}

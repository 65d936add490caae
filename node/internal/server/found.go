package server

import (
	"net/http"

	"tidal/node/api"
)

// maxFounding is the limit of the body of POST /v1/cluster/init.
const maxFounding = 4 << 10

func foundRoute() *route {
	return newRoute("/v1/cluster/init", verb{http.MethodPost, needAdmin, (*exchange).found})
}

// found answers POST /v1/cluster/init.
func (x *exchange) found() error {
	if _, err := x.query(); err != nil {
		return err
	}
	body, err := x.body(maxFounding, "the founding")
	if err != nil {
		return err
	}
	var f api.Founding
	if err = parseObject(body, &f, "the founding", `"members"`); err != nil {
		return err
	}
	if err = f.Check(); err != nil {
		return err
	}
	ctx, cancel := x.patiently()
	defer cancel()
	out, err := x.s.o.Members.Found(ctx, f.Members)
	if err != nil {
		return x.late(ctx, err)
	}
	return x.json(http.StatusOK, out)
}

package server

import (
	"net/http"
	"time"

	"tidal/node/api"
)

// rowsRoute is the route of many rows.
func rowsRoute() *route {
	rt := newRoute(rowsPath,
		verb{http.MethodGet, needReader, (*exchange).listRows},
		verb{http.MethodPost, needWriter, (*exchange).postRows},
	)
	rt.counts = true
	return rt
}

// postRows answers a batch.
func (x *exchange) postRows() error {
	req, err := x.batchRequest()
	if err != nil {
		return err
	}
	body, err := x.body(api.MaxBatch, "the batch")
	if err != nil {
		return err
	}
	// What the changes take beside the body: values that must be decoded, and what
	// is handed down.
	if err = x.hold(api.ParseBytes(body)); err != nil {
		return err
	}
	if req.Changes, err = api.ParseChanges(body, 1); err != nil {
		return err
	}
	if err = x.identify(req); err != nil {
		return err
	}
	resp, err := x.s.o.Rows.Do(x.r.Context(), req)
	if err != nil {
		return err
	}
	x.position(req, resp)
	x.w.Header()[api.HeaderOwner] = []string{resp.Owner}
	return x.json(http.StatusOK, api.BatchAnswer{Changes: len(req.Changes), Version: resp.Version})
}

// batchRequest reads what a batch has beside its body.
func (x *exchange) batchRequest() (*api.Request, error) {
	table, err := x.tableName()
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"If-Match", "If-None-Match"} {
		if len(x.r.Header[name]) > 0 {
			return nil, badRequest("header %s is for a single row: a batch takes no conditions", name)
		}
	}
	return &api.Request{Op: api.OpBatch, Table: table, Principal: x.who, Deadline: x.deadline()}, nil
}

// deadline is that of the request, zero if the client names none.
func (x *exchange) deadline() time.Time {
	if x.patience == 0 {
		return time.Time{}
	}
	return x.start.Add(x.patience)
}

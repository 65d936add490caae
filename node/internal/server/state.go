package server

import "net/http"

// health answers one of the questions about health.
func health(check Check) func(*exchange) error {
	return func(x *exchange) error {
		if _, err := x.query(); err != nil {
			return err
		}
		answer := x.s.o.State.Health(check)
		status := http.StatusOK
		if answer.Status != "ok" {
			status = http.StatusServiceUnavailable
		}
		return x.json(status, answer)
	}
}

// clusterStatus answers GET /cluster/status.
func (x *exchange) clusterStatus() error {
	switch query := x.r.URL.RawQuery; {
	case query == "consistency=linearizable":
		ctx, cancel := x.patiently()
		defer cancel()
		if err := x.s.o.State.Fresh(ctx); err != nil {
			return err
		}
	case query != "":
		return x.window()
	}
	return x.json(http.StatusOK, x.s.o.State.Status())
}

// localStatus answers GET /cluster/status/local.
func (x *exchange) localStatus() error {
	q, err := x.query("tables")
	if err != nil {
		return err
	}
	tables := q.Get("tables")
	if tables != "" && tables != "true" && tables != "false" {
		return badRequest("query parameter tables is %q: want true or false", clip(tables))
	}
	return x.json(http.StatusOK, x.s.o.State.Local(tables != "false"))
}

// requests answers GET /v1/node/requests.
func (x *exchange) requests() error {
	if _, err := x.query(); err != nil {
		return err
	}
	return x.json(http.StatusOK, x.s.o.State.Requests())
}

// handled lets another handler answer.
func handled(h http.Handler) func(*exchange) error {
	return func(x *exchange) error {
		x.wrote = true
		h.ServeHTTP(x.w, x.r)
		return nil
	}
}

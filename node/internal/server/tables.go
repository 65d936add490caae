package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"tidal/node/api"
)

const (
	// maxSettings is the limit of the body of PUT /v1/tables/{table}.
	maxSettings = 64 << 10
	// tablePatience is how long a table may take to be made or dropped.
	tablePatience = 30 * time.Second
)

// listTables answers GET /v1/tables.
func (x *exchange) listTables() error {
	if _, err := x.query(); err != nil {
		return err
	}
	tables, err := x.s.o.Tables.Tables(x.r.Context())
	if err != nil {
		return err
	}
	if tables == nil {
		tables = []api.Table{} // [] and not null
	}
	return x.json(http.StatusOK, api.TableList{Tables: tables})
}

// getTable answers GET /v1/tables/{table}.
func (x *exchange) getTable() error {
	name, err := x.tableName()
	if err != nil {
		return err
	}
	ctx, cancel := x.patiently()
	defer cancel()
	table, err := x.s.o.Tables.Table(ctx, name)
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, table)
}

// putTable answers PUT /v1/tables/{table}.
func (x *exchange) putTable() error {
	name, err := x.tableName()
	if err != nil {
		return err
	}
	body, err := x.body(maxSettings, "the table's settings")
	if err != nil {
		return err
	}
	settings, err := parseSettings(body)
	if err != nil {
		return err
	}
	ctx, cancel := x.patiently()
	defer cancel()
	table, created, err := x.s.o.Tables.CreateTable(ctx, name, settings)
	if err != nil {
		return x.late(ctx, err)
	}
	if !created {
		return x.json(http.StatusOK, table)
	}
	x.w.Header().Set("Location", "/v1/tables/"+name)
	return x.json(http.StatusCreated, table)
}

// dropTable answers DELETE /v1/tables/{table}.
func (x *exchange) dropTable() error {
	name, err := x.tableName()
	if err != nil {
		return err
	}
	ctx, cancel := x.patiently()
	defer cancel()
	if err := x.s.o.Tables.DropTable(ctx, name); err != nil {
		return x.late(ctx, err)
	}
	x.begin(http.StatusNoContent)
	return nil
}

// tableName returns the name in the path; these routes take no query.
func (x *exchange) tableName() (string, error) {
	name, _, err := x.names()
	if err != nil {
		return "", err
	}
	_, err = x.query()
	return name, err
}

// patiently returns a context that ends when the client's patience does.
func (x *exchange) patiently() (context.Context, context.CancelFunc) { return x.within(tablePatience) }

// within is patiently for what may take up to most.
func (x *exchange) within(most time.Duration) (context.Context, context.CancelFunc) {
	if x.patience > 0 {
		most = min(most, x.patience)
	}
	return context.WithDeadline(x.r.Context(), x.start.Add(most))
}

// late says what became of a change that the patience was too short for.
func (x *exchange) late(ctx context.Context, err error) error {
	if api.CodeOf(err) != "" || !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	return &api.Error{
		Code:       api.CodeOutcomeUnknown,
		Message:    "the change was not seen to be done in time; it may be done later",
		Hint:       "send it again: it changes nothing if it is done",
		RetryAfter: time.Second,
	}
}

// parseSettings reads the body of PUT /v1/tables/{table}; none at all means the
// defaults.
func parseSettings(body []byte) (api.TableSettings, error) {
	var settings api.TableSettings
	if err := parseObject(body, &settings, "the table's settings", `"replicas"`); err != nil {
		return settings, err
	}
	if settings.Replicas < 0 || settings.Replicas > api.MaxReplicas {
		return settings, badRequest("the table's replicas are %d: want 1 to %d, or 0 for the default", settings.Replicas, api.MaxReplicas)
	}
	return settings, nil
}

// checkPatience is how long a check of a table may take unless its client says less.
const checkPatience = 4 * time.Minute

// checkTable answers POST /v1/tables/{table}/check. It reads for minutes, and a node that
// leaves does not wait for that.
func (x *exchange) checkTable() error {
	name, err := x.tableName()
	if err != nil {
		return err
	}
	ctx, cancel := x.within(checkPatience)
	defer cancel()
	go x.s.onLeave(ctx, cancel) // ends with ctx
	check, err := x.s.o.CheckTable(ctx, name)
	if errors.Is(ctx.Err(), context.Canceled) && x.r.Context().Err() == nil {
		return &api.Error{Code: api.CodeNotReady, Message: "the node stops or restarts: the check has not ended", Hint: "begin it again", RetryAfter: time.Second}
	}
	if err != nil {
		return err
	}
	return x.json(http.StatusOK, check)
}

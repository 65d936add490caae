package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"tidal/node/api"
)

// PutTable creates a table, or finds it made with the same settings already
// (created is false then). It returns once every live node can route to it.
func (c *Client) PutTable(ctx context.Context, name string, s api.TableSettings) (table api.Table, created bool, err error) {
	body, err := json.Marshal(s)
	if err != nil {
		return api.Table{}, false, fmt.Errorf("write the table's settings: %w", err)
	}
	a, err := c.do(ctx, call{method: http.MethodPut, path: tablePath(name), body: body, resend: true, writes: true})
	if err != nil {
		return api.Table{}, false, err
	}
	err = decode(a.body, &table)
	return table, a.status == http.StatusCreated, err
}

// Table describes a table.
func (c *Client) Table(ctx context.Context, name string) (api.Table, error) {
	var table api.Table
	err := c.get(ctx, tablePath(name), &table)
	return table, err
}

// Tables describes all tables.
func (c *Client) Tables(ctx context.Context) ([]api.Table, error) {
	var list api.TableList
	err := c.get(ctx, "/v1/tables", &list)
	return list.Tables, err
}

// CheckTable compares the replicas of a table. Each is read as a whole, so it may
// take minutes.
func (c *Client) CheckTable(ctx context.Context, name string) (api.TableCheck, error) {
	var check api.TableCheck
	a, err := c.do(ctx, call{method: http.MethodPost, path: tablePath(name) + "/check", resend: true, long: 4 * time.Minute})
	if err != nil {
		return check, err
	}
	return check, decode(a.body, &check)
}

// DropTable drops a table and all of its rows.
func (c *Client) DropTable(ctx context.Context, name string) error {
	// Not to be sent again after a doubt: it would find no table, or another one
	// that was made in the meantime.
	_, err := c.do(ctx, call{method: http.MethodDelete, path: tablePath(name), writes: true})
	return err
}

// Status returns the cluster as the node that answers sees it.
func (c *Client) Status(ctx context.Context) (api.Status, error) {
	var s api.Status
	err := c.get(ctx, "/cluster/status", &s)
	return s, err
}

// FreshStatus is Status, not older than the call: the node asks the metadata's
// leader, and that one a quorum, before it answers.
func (c *Client) FreshStatus(ctx context.Context) (api.Status, error) {
	var s api.Status
	err := c.get(ctx, "/cluster/status?consistency=linearizable", &s)
	return s, err
}

// StatusOf returns the cluster as the node at one of the endpoints sees it.
func (c *Client) StatusOf(ctx context.Context, endpoint string) (api.Status, error) {
	var s api.Status
	return s, c.one(ctx, endpoint, call{method: http.MethodGet, path: "/cluster/status"}, &s)
}

// LocalStatus returns what the node at one of the endpoints says of itself.
func (c *Client) LocalStatus(ctx context.Context, endpoint string) (api.LocalStatus, error) {
	var s api.LocalStatus
	return s, c.one(ctx, endpoint, call{method: http.MethodGet, path: "/cluster/status/local"}, &s)
}

// Health asks the node at an endpoint whether it is ready. A node that is not is
// no error: its Health says why.
func (c *Client) Health(ctx context.Context, endpoint string) (api.Health, error) {
	var h api.Health
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	a, err := c.exchange(ctx, endpoint, call{method: http.MethodGet, path: "/health"})
	if err != nil {
		return h, alone(endpoint, err)
	}
	if a.status != http.StatusOK && a.status != http.StatusServiceUnavailable {
		return h, refusal(endpoint, http.MethodGet, a)
	}
	return h, decode(a.body, &h)
}

// get reads a JSON document.
func (c *Client) get(ctx context.Context, path string, to any) error {
	a, err := c.do(ctx, call{method: http.MethodGet, path: path, resend: true})
	if err != nil {
		return err
	}
	return decode(a.body, to)
}

// alone is the error of a call to one endpoint.
func alone(endpoint string, err error) error {
	if silent, ok := errors.AsType[*silenceError](err); ok {
		return &UnreachableError{Causes: []*EndpointError{{Endpoint: endpoint, Err: silent.err}}}
	}
	return err
}

func decode(body []byte, to any) error {
	if err := json.Unmarshal(body, to); err != nil {
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}

func tablePath(name string) string { return "/v1/tables/" + url.PathEscape(name) }

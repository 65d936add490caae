package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"tidal/node/api"
)

// Nodes lists the members, with what those that answer say of themselves.
func (c *Client) Nodes(ctx context.Context) ([]api.Node, error) {
	var list api.NodeList
	err := c.get(ctx, "/v1/nodes", &list)
	return list.Nodes, err
}

// DrainNode makes or renews a claim on a node's drain; see api.NodeOrder.
func (c *Client) DrainNode(ctx context.Context, node string, o api.NodeOrder) (api.NodeReport, error) {
	// Without an epoch, a claim that is sent again renews what was sent before.
	return c.order(ctx, node, api.NodeDrain, o)
}

// UndrainNode ends a claim on a node's drain.
func (c *Client) UndrainNode(ctx context.Context, node string, o api.NodeOrder) (api.NodeReport, error) {
	return c.order(ctx, node, api.NodeUndrain, o)
}

// RestartNode has a node restart in place. It returns once that has begun; the
// report's incarnation is the one that ends.
func (c *Client) RestartNode(ctx context.Context, node string, o api.NodeOrder) (api.NodeReport, error) {
	return c.order(ctx, node, api.NodeRestart, o)
}

// ReloadCerts has a node look at the files of its certificates. The report says
// what it uses then, and why not what they hold.
func (c *Client) ReloadCerts(ctx context.Context, node string) (api.NodeReport, error) {
	return c.order(ctx, node, api.NodeCerts, api.NodeOrder{})
}

func (c *Client) order(ctx context.Context, node string, action api.NodeAction, o api.NodeOrder) (api.NodeReport, error) {
	var r api.NodeReport
	body, err := json.Marshal(o)
	if err != nil {
		return r, fmt.Errorf("write the order: %w", err)
	}
	a, err := c.do(ctx, call{
		method: http.MethodPost, path: "/v1/nodes/" + url.PathEscape(node) + "/" + action.String(), body: body,
		writes: true, resend: action != api.NodeRestart, // a second restart would be one too many
	})
	if err != nil {
		return r, err
	}
	return r, decode(a.body, &r)
}

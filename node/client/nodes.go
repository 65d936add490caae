package client

import (
	"context"
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
	return c.orderNode(ctx, node, api.NodeDrain, o)
}

// UndrainNode ends a claim on a node's drain.
func (c *Client) UndrainNode(ctx context.Context, node string, o api.NodeOrder) (api.NodeReport, error) {
	return c.orderNode(ctx, node, api.NodeUndrain, o)
}

// RestartNode has a node restart in place. It returns once that has begun; the
// report's incarnation is the one that ends.
func (c *Client) RestartNode(ctx context.Context, node string, o api.NodeOrder) (api.NodeReport, error) {
	return c.orderNode(ctx, node, api.NodeRestart, o)
}

// ReloadCerts has a node look at the files of its certificates. The report says
// what it uses then, and why not what they hold.
func (c *Client) ReloadCerts(ctx context.Context, node string) (api.NodeReport, error) {
	return c.orderNode(ctx, node, api.NodeCerts, api.NodeOrder{})
}

// Revoke has the cluster refuse a certificate. Sending it again changes nothing.
func (c *Client) Revoke(ctx context.Context, r api.Revocation) error {
	return c.order(ctx, call{method: http.MethodPost, path: "/v1/certs/revoked", writes: true, resend: true}, r, nil)
}

// Rotation returns the rotation of the authority that is under way, or the last.
func (c *Client) Rotation(ctx context.Context) (r api.Rotation, err error) {
	err = c.get(ctx, "/v1/certs/rotation", &r)
	return r, err
}

// Rotate takes a step of a rotation. Sending it again changes nothing.
func (c *Client) Rotate(ctx context.Context, r api.Rotation) error {
	return c.order(ctx, call{method: http.MethodPut, path: "/v1/certs/rotation", writes: true, resend: true}, r, nil)
}

// Level returns the cluster's feature level, and which levels its members speak.
func (c *Client) Level(ctx context.Context) (l api.ClusterLevel, err error) {
	err = c.get(ctx, "/v1/cluster/level", &l)
	return l, err
}

// RaiseLevel raises the cluster's feature level for ever, 0 being to the highest that
// every member speaks. Sending it again changes nothing.
func (c *Client) RaiseLevel(ctx context.Context, level uint64) (l api.ClusterLevel, err error) {
	q := call{method: http.MethodPut, path: "/v1/cluster/level", writes: true, resend: true}
	return l, c.order(ctx, q, api.LevelChange{Level: level}, &l)
}

// Revoked lists the certificates that the cluster refuses.
func (c *Client) Revoked(ctx context.Context) ([]api.Revocation, error) {
	var list api.RevocationList
	err := c.get(ctx, "/v1/certs/revoked", &list)
	return list.Revoked, err
}

func (c *Client) orderNode(ctx context.Context, node string, action api.NodeAction, o api.NodeOrder) (api.NodeReport, error) {
	var r api.NodeReport
	return r, c.order(ctx, call{
		method: http.MethodPost, path: "/v1/nodes/" + url.PathEscape(node) + "/" + action.String(),
		writes: true, resend: action != api.NodeRestart, // a second restart would be one too many
	}, o, &r)
}

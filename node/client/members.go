package client

import (
	"context"
	"net/http"
	"net/url"

	"tidal/node/api"
)

// MoveReplica has a replica of a table go from one node to another. It returns once
// that is decided; Table tells how far it is.
func (c *Client) MoveReplica(ctx context.Context, table, from, to string) (api.Table, error) {
	var t api.Table
	q := call{method: http.MethodPost, path: tablePath(table) + "/replicas", resend: true, writes: true}
	return t, c.order(ctx, q, api.Move{From: from, To: to}, &t)
}

// HandTable has a table owned by another node, and returns it once that one owns it.
func (c *Client) HandTable(ctx context.Context, table string, o api.HandOver) (api.Table, error) {
	var t api.Table
	// To any other node, it would go on to a third when it is sent again after a doubt.
	return t, c.order(ctx, call{method: http.MethodPut, path: tablePath(table) + "/owner", resend: o.To != "", writes: true}, o, &t)
}

// ReplaceNode lets a member whose disk is gone for good come back with an empty one.
func (c *Client) ReplaceNode(ctx context.Context, node string) error {
	_, err := c.do(ctx, call{method: http.MethodPost, path: "/v1/nodes/" + url.PathEscape(node) + "/replace", resend: true, writes: true})
	return err
}

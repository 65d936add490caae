package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"tidal/node/api"
)

// MoveReplica has a replica of a table go from one node to another. It returns once
// that is decided; Table tells how far it is.
func (c *Client) MoveReplica(ctx context.Context, table, from, to string) (api.Table, error) {
	body, err := json.Marshal(api.Move{From: from, To: to})
	if err != nil {
		return api.Table{}, fmt.Errorf("write the move: %w", err)
	}
	a, err := c.do(ctx, call{method: http.MethodPost, path: tablePath(table) + "/replicas", body: body, resend: true, writes: true})
	if err != nil {
		return api.Table{}, err
	}
	var t api.Table
	return t, decode(a.body, &t)
}

// HandTable has a table owned by another node, and returns it once that one owns it.
func (c *Client) HandTable(ctx context.Context, table string, o api.HandOver) (api.Table, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return api.Table{}, fmt.Errorf("write the order: %w", err)
	}
	// To any other node, it would go on to a third when it is sent again after a doubt.
	a, err := c.do(ctx, call{method: http.MethodPut, path: tablePath(table) + "/owner", body: body, resend: o.To != "", writes: true})
	if err != nil {
		return api.Table{}, err
	}
	var t api.Table
	return t, decode(a.body, &t)
}

// ReplaceNode lets a member whose disk is gone for good come back with an empty one.
func (c *Client) ReplaceNode(ctx context.Context, node string) error {
	_, err := c.do(ctx, call{method: http.MethodPost, path: "/v1/nodes/" + url.PathEscape(node) + "/replace", resend: true, writes: true})
	return err
}

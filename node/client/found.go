package client

import (
	"context"
	"net/http"

	"tidal/node/api"
)

// Found has a cluster form that waits for members, without them. It is not sent again:
// a second one is refused by what the first did.
func (c *Client) Found(ctx context.Context, members []string) (api.Founded, error) {
	var out api.Founded
	return out, c.order(ctx, call{method: http.MethodPost, path: "/v1/cluster/init", writes: true}, api.Founding{Members: members}, &out)
}

package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"tidal/node/api"
)

// Found has a cluster form that waits for members, without them. It is not sent again:
// a second one is refused by what the first did.
func (c *Client) Found(ctx context.Context, members []string) (api.Founded, error) {
	var out api.Founded
	body, err := json.Marshal(api.Founding{Members: members})
	if err != nil {
		return out, fmt.Errorf("write the members: %w", err)
	}
	a, err := c.do(ctx, call{method: http.MethodPost, path: "/v1/cluster/init", body: body, writes: true})
	if err != nil {
		return out, err
	}
	return out, decode(a.body, &out)
}

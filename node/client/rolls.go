package client

import (
	"context"
	"net/http"
	"strconv"

	"tidal/node/api"
)

// Rolls lists the last rolls, the newest first, without plans, reports and nodes.
func (c *Client) Rolls(ctx context.Context) ([]api.Roll, error) {
	var list api.RollList
	err := c.get(ctx, "/v1/rolls", &list)
	return list.Rolls, err
}

// Roll returns a roll with its journal; 0 is the newest.
func (c *Client) Roll(ctx context.Context, id uint64) (api.Roll, error) {
	var r api.Roll
	err := c.get(ctx, "/v1/rolls/"+rollPath(id), &r)
	return r, err
}

// ChangeRoll does something with a roll; see api.RollAction. To start one, id is 0.
func (c *Client) ChangeRoll(ctx context.Context, a api.RollAction, id uint64, ch api.RollChange) (api.Roll, error) {
	var r api.Roll
	path := "/v1/rolls"
	if a != api.RollStart {
		path += "/" + rollPath(id) + "/" + a.String()
	}
	// A lock that was taken twice would be taken from oneself.
	resend := a != api.RollStart && a != api.RollTake && a != api.RollUnlock
	return r, c.order(ctx, call{method: http.MethodPost, path: path, writes: true, resend: resend}, ch, &r)
}

func rollPath(id uint64) string {
	if id == 0 {
		return "last"
	}
	return strconv.FormatUint(id, 10)
}

// Requests returns what the node at one of the endpoints counted of row requests.
func (c *Client) Requests(ctx context.Context, endpoint string) (api.RequestReport, error) {
	var r api.RequestReport
	return r, c.one(ctx, endpoint, call{method: http.MethodGet, path: "/v1/node/requests"}, &r)
}

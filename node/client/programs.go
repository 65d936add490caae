package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"tidal/node/api"
)

// Times of calls about binaries.
const (
	checkMost = time.Minute      // a check runs the binary twice
	sendMost  = 10 * time.Minute // for a binary to be sent
)

// Programs lists the binaries of the node at one of the endpoints.
func (c *Client) Programs(ctx context.Context, endpoint string) (api.Programs, error) {
	var list api.Programs
	err := c.program(ctx, endpoint, call{method: http.MethodGet, long: checkMost}, &list)
	return list, err
}

// CheckProgram has the node at an endpoint find out whether a binary that it has could
// run it.
func (c *Client) CheckProgram(ctx context.Context, endpoint, sha256 string) (api.Program, error) {
	var p api.Program
	body, err := json.Marshal(api.ProgramCheck{SHA256: sha256})
	if err != nil {
		return p, fmt.Errorf("write the check: %w", err)
	}
	err = c.program(ctx, endpoint, call{method: http.MethodPost, body: body, long: checkMost}, &p)
	return p, err
}

// SendProgram sends a binary to the node at an endpoint, which checks it.
func (c *Client) SendProgram(ctx context.Context, endpoint, sha256 string, content []byte) (api.Program, error) {
	var p api.Program
	err := c.program(ctx, endpoint, call{method: http.MethodPut, path: "?sha256=" + sha256, body: content, long: sendMost}, &p)
	return p, err
}

func (c *Client) program(ctx context.Context, endpoint string, q call, to any) error {
	ctx, cancel := context.WithTimeout(ctx, max(c.o.Timeout, q.long))
	defer cancel()
	q.path = "/v1/node/binary" + q.path
	a, err := c.once(ctx, endpoint, q)
	if err != nil {
		return alone(endpoint, err)
	}
	return decode(a.body, to)
}

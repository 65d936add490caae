package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"tidal/node/api"
)

const programPath = "/v1/node/binary"

// Times of calls about binaries.
const (
	checkMost = time.Minute      // a check runs the binary twice
	sendMost  = 10 * time.Minute // for a binary to be sent
)

// Programs lists the binaries of the node at one of the endpoints.
func (c *Client) Programs(ctx context.Context, endpoint string) (api.Programs, error) {
	var list api.Programs
	return list, c.one(ctx, endpoint, call{method: http.MethodGet, path: programPath, long: checkMost}, &list)
}

// CheckProgram has the node at an endpoint find out whether a binary that it has could
// run it.
func (c *Client) CheckProgram(ctx context.Context, endpoint, sha256 string) (api.Program, error) {
	var p api.Program
	body, err := json.Marshal(api.ProgramCheck{SHA256: sha256})
	if err != nil {
		return p, fmt.Errorf("write the check: %w", err)
	}
	return p, c.one(ctx, endpoint, call{method: http.MethodPost, path: programPath, body: body, long: checkMost}, &p)
}

// SendProgram sends a binary to the node at an endpoint, which checks it.
func (c *Client) SendProgram(ctx context.Context, endpoint, sha256 string, content []byte) (api.Program, error) {
	var p api.Program
	q := call{method: http.MethodPut, path: programPath + "?sha256=" + sha256, body: content, long: sendMost}
	return p, c.one(ctx, endpoint, q, &p)
}

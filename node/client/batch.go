package client

import (
	"context"

	"tidal/node/api"
)

// BatchOptions say how to send a batch.
type BatchOptions struct {
	// Key and Position are as in WriteOptions, of the batch as a whole.
	Key      string
	Position api.Position
}

// Batch makes the changes in their order, all or, with an error, none, and returns
// the version of the rows that it put. A batch has up to api.MaxChanges changes and
// takes up to api.MaxBatch bytes as api.AppendChange writes them.
func (c *Client) Batch(ctx context.Context, table string, changes []api.Change, o BatchOptions) (api.Version, error) {
	var body []byte
	for i := range changes {
		body = api.AppendChange(body, &changes[i])
	}
	return c.BatchLines(ctx, table, body, o)
}

// BatchLines is Batch for changes that are written already, one on a line.
func (c *Client) BatchLines(ctx context.Context, table string, body []byte, o BatchOptions) (api.Version, error) {
	r, err := c.write(ctx, api.Request{Op: api.OpBatch, Table: table, Value: body}, WriteOptions{Key: o.Key, Position: o.Position})
	return r.Version, err
}

func rowsPath(table string) string { return tablePath(table) + "/rows" }

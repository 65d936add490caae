package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"tidal/node/api"
)

// Row is a row as a node gave it.
type Row struct {
	Value   []byte // nil from Head
	Size    int64  // bytes of the value; -1: the node did not say
	Version api.Version
	Lag     uint64 // of a local read: entries that the replica is known to lack
	Node    string // that answered
	Owner   string // that served the request; "" of a local read
	// Position is one of the table that was committed before the answer; zero: the
	// node knew none.
	Position api.Position
}

// ReadOptions say how to read.
type ReadOptions struct {
	Local bool // what the answering node's replica has, however old
}

// WriteOptions say under which conditions to write. If they do not hold, nothing
// is done, and the error's code is api.CodePreconditionFailed; its At is the
// version of the row that is there.
type WriteOptions struct {
	IfMatch  []api.Version // only if the row's version is one of these
	IfExists bool          // only if there is such a row, as IfMatch says too
	IfAbsent bool          // only if there is no such row

	// Key is the Idempotency-Key; "": a new one. A write that was sent with it
	// before, in this call or another, is done once.
	Key string
	// Position, with a Key, is of an answer that came before the write was first
	// sent with it: then it is not done twice however late it is sent again. One
	// that is too late ends with api.CodeOutcomeUnknown. Zero: not said, and a copy
	// that arrives more than 15 minutes later may be done again.
	Position api.Position
}

// Get reads a row. If there is none, the error's code is api.CodeRowNotFound.
func (c *Client) Get(ctx context.Context, table, key string, o ReadOptions) (Row, error) {
	return c.read(ctx, http.MethodGet, rowPath(table, key), o)
}

// Head reads a row without its value. If there is none, the error's code is
// api.CodeRowNotFound; so it is if there is no such table.
func (c *Client) Head(ctx context.Context, table, key string, o ReadOptions) (Row, error) {
	return c.read(ctx, http.MethodHead, rowPath(table, key), o)
}

func (c *Client) read(ctx context.Context, method, path string, o ReadOptions) (Row, error) {
	if o.Local {
		path += "?consistency=local"
	}
	a, err := c.do(ctx, call{method: method, path: path, resend: true})
	if err != nil {
		return Row{}, err
	}
	row := Row{Value: a.body, Size: int64(len(a.body)), Node: a.header.Get(api.HeaderNode), Owner: a.header.Get(api.HeaderOwner)}
	if method == http.MethodHead {
		row.Value, row.Size = nil, -1
		if n, bad := strconv.ParseInt(a.header.Get("Content-Length"), 10, 64); bad == nil {
			row.Size = n
		}
	}
	if lag := a.header.Get(api.HeaderLag); lag != "" {
		if row.Lag, err = strconv.ParseUint(lag, 10, 64); err != nil {
			return Row{}, fmt.Errorf("read the answer: header %s: %w", api.HeaderLag, err)
		}
	}
	row.Position, _ = api.ParsePosition(a.header.Get(api.HeaderPosition)) // zero if it is not there
	if row.Version, err = api.ParseETag(a.header.Get("ETag")); err != nil {
		return Row{}, fmt.Errorf("read the answer: %w", err)
	}
	return row, nil
}

// Put writes a row and returns its version.
func (c *Client) Put(ctx context.Context, table, key string, value []byte, o WriteOptions) (api.Version, error) {
	a, err := c.write(ctx, http.MethodPut, rowPath(table, key), value, o)
	if err != nil {
		return api.Version{}, err
	}
	v, err := api.ParseETag(a.header.Get("ETag"))
	if err != nil {
		return api.Version{}, fmt.Errorf("read the answer: %w", err)
	}
	return v, nil
}

// Delete removes a row. A row that is not there is no error.
func (c *Client) Delete(ctx context.Context, table, key string, o WriteOptions) error {
	_, err := c.write(ctx, http.MethodDelete, rowPath(table, key), nil, o)
	return err
}

func (c *Client) write(ctx context.Context, method, path string, value []byte, o WriteOptions) (*answer, error) {
	if o.Key == "" {
		o.Key = rand.Text()
	}
	h := http.Header{api.HeaderIdempotency: {o.Key}}
	if o.Position.Index != 0 {
		h.Set(api.HeaderPosition, o.Position.String())
	}
	for _, v := range o.IfMatch {
		h.Add("If-Match", api.ETag(v))
	}
	if o.IfExists && len(o.IfMatch) == 0 {
		h.Add("If-Match", "*")
	}
	if o.IfAbsent {
		h.Set("If-None-Match", "*")
	}
	return c.do(ctx, call{method: method, path: path, body: value, header: h, resend: true, writes: true})
}

func rowPath(table, key string) string { return tablePath(table) + "/rows/" + url.PathEscape(key) }

package client

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"tidal/node/api"
	"tidal/node/internal/wire"
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

// rowAnswer is what came of a request for a row, whichever way it went.
type rowAnswer struct {
	api.Response

	position api.Position
	node     string
}

// Get reads a row. If there is none, the error's code is api.CodeRowNotFound.
func (c *Client) Get(ctx context.Context, table, key string, o ReadOptions) (Row, error) {
	return c.read(ctx, api.OpGet, table, key, o)
}

// Head reads a row without its value. If there is none, the error's code is
// api.CodeRowNotFound; so it is if there is no such table.
func (c *Client) Head(ctx context.Context, table, key string, o ReadOptions) (Row, error) {
	return c.read(ctx, api.OpHead, table, key, o)
}

func (c *Client) read(ctx context.Context, op api.Op, table, key string, o ReadOptions) (Row, error) {
	r, err := c.row(ctx, &wire.ClientRequest{Request: api.Request{Op: op, Table: table, Key: key, Local: o.Local}})
	if err != nil {
		return Row{}, err
	}
	row := Row{
		Value: r.Value, Size: int64(r.Size), Version: r.Version, Lag: r.Lag, Node: r.node, Owner: r.Owner, Position: r.position,
	}
	if op == api.OpGet && row.Value == nil {
		row.Value = []byte{}
	}
	if o.Local {
		row.Owner = ""
	}
	return row, nil
}

// Put writes a row and returns its version.
func (c *Client) Put(ctx context.Context, table, key string, value []byte, o WriteOptions) (api.Version, error) {
	r, err := c.write(ctx, api.Request{Op: api.OpPut, Table: table, Key: key, Value: value}, o)
	return r.Version, err
}

// Delete removes a row. A row that is not there is no error.
func (c *Client) Delete(ctx context.Context, table, key string, o WriteOptions) error {
	_, err := c.write(ctx, api.Request{Op: api.OpDelete, Table: table, Key: key}, o)
	return err
}

func (c *Client) write(ctx context.Context, req api.Request, o WriteOptions) (rowAnswer, error) { //nolint:gocritic // it is the start of what is sent
	if o.Key == "" && !c.o.Once {
		o.Key = rand.Text()
	}
	req.IfMatch, req.IfExists, req.IfNoneMatch = o.IfMatch, o.IfExists && len(o.IfMatch) == 0, o.IfAbsent
	req.Born = o.Position
	return c.row(ctx, &wire.ClientRequest{Request: req, Idem: o.Key})
}

// row does a request for a row, on streams if the client has them and one is to be had.
func (c *Client) row(ctx context.Context, q *wire.ClientRequest) (rowAnswer, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	t := &tries{writes: q.Op.Writes()}
	if c.streams != nil && fits(q) {
		if r, done, err := c.streams.row(ctx, q, t); done {
			return r, err
		}
	}
	return c.rowByHTTP(ctx, q, t)
}

// fits reports whether a stream carries the request: what no node takes is for a node
// to refuse, in its own words.
func fits(q *wire.ClientRequest) bool {
	most := api.MaxValue
	if q.Op == api.OpBatch {
		most = api.MaxBatch
	}
	return len(q.Table) <= api.MaxTable && len(q.Key) <= api.MaxKey && len(q.Value) <= most &&
		len(q.Idem) <= api.MaxIdem && len(q.IfMatch) <= api.MaxTags
}

// rowByHTTP does a request for a row over HTTP. t is what came of it before.
func (c *Client) rowByHTTP(ctx context.Context, q *wire.ClientRequest, t *tries) (r rowAnswer, err error) {
	path := rowPath(q.Table, q.Key)
	switch {
	case q.Op == api.OpBatch:
		path = rowsPath(q.Table)
	case q.Local:
		path += "?consistency=local"
	}
	t.silent = nil // streams are another way than the endpoints that are tried now
	// A write that waits for its table's owner says in the end that it was not done; one that is
	// cut short, and done elsewhere, is in doubt for longer.
	ask := call{method: rowMethod(q.Op), path: path, body: q.Value, header: rowHeader(q), resend: true, writes: q.Op.Writes(), alone: q.Op.Writes()}
	a, err := c.doAfter(ctx, ask, t)
	if err != nil {
		return r, err
	}
	r.Value, r.Size, r.Owner, r.node = a.body, len(a.body), a.header.Get(api.HeaderOwner), a.header.Get(api.HeaderNode)
	if q.Op == api.OpHead {
		r.Value, r.Size = nil, -1
		if n, bad := strconv.Atoi(a.header.Get("Content-Length")); bad == nil {
			r.Size = n
		}
	}
	if lag := a.header.Get(api.HeaderLag); lag != "" {
		if r.Lag, err = strconv.ParseUint(lag, 10, 64); err != nil {
			return r, fmt.Errorf("read the answer: header %s: %w", api.HeaderLag, err)
		}
	}
	r.position, _ = api.ParsePosition(a.header.Get(api.HeaderPosition)) // zero if it is not there
	switch q.Op {
	case api.OpDelete:
		return r, nil
	case api.OpBatch:
		var answer api.BatchAnswer
		err = decode(a.body, &answer)
		r.Version = answer.Version
		return r, err
	default:
	}
	if r.Version, err = api.ParseETag(a.header.Get("ETag")); err != nil {
		return r, fmt.Errorf("read the answer: %w", err)
	}
	return r, nil
}

func rowMethod(op api.Op) string {
	switch op {
	case api.OpHead:
		return http.MethodHead
	case api.OpPut:
		return http.MethodPut
	case api.OpDelete:
		return http.MethodDelete
	case api.OpBatch:
		return http.MethodPost
	case api.OpGet, api.OpScan:
	}
	return http.MethodGet
}

func rowHeader(q *wire.ClientRequest) http.Header {
	h := http.Header{}
	if q.Idem != "" {
		h.Set(api.HeaderIdempotency, q.Idem)
	}
	if q.Born.Index != 0 {
		h.Set(api.HeaderPosition, q.Born.String())
	}
	for _, v := range q.IfMatch {
		h.Add("If-Match", api.ETag(v))
	}
	if q.IfExists {
		h.Add("If-Match", "*")
	}
	if q.IfNoneMatch {
		h.Set("If-None-Match", "*")
	}
	return h
}

func rowPath(table, key string) string { return tablePath(table) + "/rows/" + url.PathEscape(key) }

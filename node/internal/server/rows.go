package server

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"tidal/node/api"
)

func (x *exchange) getRow() error  { return x.readRow(api.OpGet) }
func (x *exchange) headRow() error { return x.readRow(api.OpHead) }

// readRow answers a GET or a HEAD of a row.
func (x *exchange) readRow(op api.Op) error {
	req, err := x.rowRequest(op, "consistency")
	if err != nil {
		return err
	}
	resp, err := x.s.o.Rows.Do(x.r.Context(), req)
	if err != nil {
		return err
	}
	h := x.w.Header()
	x.position(req, resp)
	x.answeredBy(req, resp)
	if !resp.Found {
		return &api.Error{Code: api.CodeRowNotFound, Message: "there is no row with this key in the table " + req.Table}
	}
	tag := api.ETag(resp.Version)
	h["Etag"] = []string{tag}
	if anyTag(x.r.Header["If-None-Match"], tag) {
		x.begin(http.StatusNotModified)
		return nil
	}
	if op == api.OpGet {
		if err := x.hold(len(resp.Value)); err != nil {
			return err
		}
		x.write(http.StatusOK, "application/octet-stream", resp.Value)
		return nil
	}
	h["Content-Type"] = []string{"application/octet-stream"}
	if resp.Size > 0 {
		h["Content-Length"] = []string{strconv.Itoa(resp.Size)}
	}
	x.begin(http.StatusOK)
	return nil
}

// putRow answers a PUT of a row.
func (x *exchange) putRow() error {
	req, err := x.rowRequest(api.OpPut)
	if err != nil {
		return err
	}
	if err = x.conditions(req); err != nil {
		return err
	}
	if len(x.r.Header["Content-Range"]) > 0 {
		return badRequest("header Content-Range: the body of a PUT is the row's whole value, and never a part of it")
	}
	if req.Value, err = x.body(api.MaxValue, "the row's value"); err != nil {
		return err
	}
	return x.writeRow(req)
}

// deleteRow answers a DELETE of a row.
func (x *exchange) deleteRow() error {
	req, err := x.rowRequest(api.OpDelete)
	if err != nil {
		return err
	}
	if err := x.conditions(req); err != nil {
		return err
	}
	return x.writeRow(req)
}

// writeRow hands a write down and answers.
func (x *exchange) writeRow(req *api.Request) error {
	if err := x.identify(req); err != nil {
		return err
	}
	resp, err := x.s.o.Rows.Do(x.r.Context(), req)
	if err != nil {
		return err
	}
	h := x.w.Header()
	x.position(req, resp)
	h[api.HeaderOwner] = []string{resp.Owner}
	h["Etag"] = []string{api.ETag(resp.Version)}
	x.begin(http.StatusNoContent)
	return nil
}

// rowRequest reads what all row requests have: path, query and patience.
func (x *exchange) rowRequest(op api.Op, params ...string) (*api.Request, error) {
	table, key, err := x.names()
	if err != nil {
		return nil, err
	}
	if err = api.CheckKey(key); err != nil {
		return nil, err
	}
	q, err := x.query(params...)
	if err != nil {
		return nil, err
	}
	req := &api.Request{Op: op, Table: table, Key: key, Principal: x.who, Deadline: x.deadline()}
	if op.Writes() {
		return req, nil
	}
	return req, x.reads(req, q)
}

// reads takes what all reads have beside a patience.
func (x *exchange) reads(req *api.Request, q url.Values) error {
	if q.Has("consistency") {
		switch c := q.Get("consistency"); c {
		case "local":
			req.Local = true
		case "linearizable":
		default:
			return badRequest("query parameter consistency: %q is neither local nor linearizable", clip(c))
		}
	}
	if len(x.r.Header["If-Match"]) > 0 {
		return badRequest("header If-Match is for PUT and DELETE: a read takes If-None-Match")
	}
	return nil
}

// position tells a position of the table that is committed for certain.
func (x *exchange) position(req *api.Request, resp *api.Response) {
	if at := reached(req, resp); at.Index != 0 {
		x.w.Header()[api.HeaderPosition] = []string{at.String()}
	}
}

// reached is a position of the table that is committed for certain.
func reached(req *api.Request, resp *api.Response) api.Position {
	at := req.Born
	if resp.Version.Table == at.Table {
		at.Index = max(at.Index, resp.Version.Index)
	}
	return at
}

// conditions reads the conditions of a write. The table decides them.
func (x *exchange) conditions(req *api.Request) (err error) {
	if match := x.r.Header["If-Match"]; len(match) > 0 {
		if req.IfMatch, req.IfExists, err = api.ParseETags(match); err != nil {
			return err
		}
	}
	if none := x.r.Header["If-None-Match"]; len(none) > 0 {
		if len(none) > 1 || strings.TrimSpace(none[0]) != "*" || len(req.IfMatch) > 0 || req.IfExists {
			return badRequest("header If-None-Match of a write is * and goes without If-Match")
		}
		req.IfNoneMatch = true
	}
	return nil
}

// identify reads the headers that say which write this is, and gives it its id.
func (x *exchange) identify(req *api.Request) error {
	keys, known := x.r.Header[api.HeaderIdempotency], x.r.Header[api.HeaderPosition]
	if len(keys) == 0 {
		if len(known) > 0 {
			return badRequest("header %s goes with an %s", api.HeaderPosition, api.HeaderIdempotency)
		}
		return x.s.identify(x.r.Context(), req, x.who, "")
	}
	if len(keys) > 1 || keys[0] == "" || len(keys[0]) > api.MaxIdem {
		return badRequest("header %s has 1 to %d bytes and stands once", api.HeaderIdempotency, api.MaxIdem)
	}
	if len(known) > 0 {
		at, ok := api.ParsePosition(known[0])
		if !ok || len(known) > 1 {
			return badRequest("header %s is the one of an earlier answer about this table: %q is none", api.HeaderPosition, clip(known[0]))
		}
		req.Born = at
	}
	return x.s.identify(x.r.Context(), req, x.who, keys[0])
}

// identify gives a write its id: a new one, or the one that its Idempotency-Key had
// before. The id covers the table's id, so that a name that is made again starts
// anew. Born is the position that the client names, if it names one.
func (s *Server) identify(ctx context.Context, req *api.Request, who api.Principal, key string) error {
	if key == "" {
		req.ID = s.o.NewID()
		return nil
	}
	if !req.Deadline.IsZero() { // a node that has not heard of the table asks others
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, req.Deadline)
		defer cancel()
	}
	table, err := s.o.TableID(ctx, req.Table)
	if err != nil {
		return err
	}
	req.Keyed = true
	req.ID = keyedID(table, who.Name, key)
	switch {
	case req.Born == (api.Position{}):
		req.Born.Table = table
	case req.Born.Table != table:
		return &api.Error{
			Code:    api.CodeTableNotFound,
			Message: "the table " + req.Table + " that header " + api.HeaderPosition + " is about was dropped",
		}
	}
	return nil
}

// keyedID is the request id of an Idempotency-Key.
func keyedID(table api.TableID, name, key string) api.RequestID {
	b := make([]byte, 0, 16+len(name)+len(key))
	b = binary.BigEndian.AppendUint64(b, uint64(table))
	b = binary.AppendUvarint(b, uint64(len(name)))
	b = append(b, name...)
	b = append(b, key...)
	sum := sha256.Sum256(b)
	return api.RequestID(sum[:16])
}

// anyTag reports whether the lists of an If-None-Match header hold the tag, or
// are "*"; a weak tag counts as its strong one.
func anyTag(lists []string, tag string) bool {
	if len(lists) == 1 && strings.TrimSpace(lists[0]) == "*" {
		return true
	}
	for _, list := range lists {
		for t := range strings.SplitSeq(list, ",") {
			t = strings.TrimSpace(t)
			if strings.TrimPrefix(t, "W/") == tag {
				return true
			}
		}
	}
	return false
}

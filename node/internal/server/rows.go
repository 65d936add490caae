package server

import (
	"crypto/sha256"
	"encoding/binary"
	"net/http"
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
	if req.Local {
		h[api.HeaderLag] = []string{strconv.FormatUint(resp.Lag, 10)}
	} else {
		h[api.HeaderOwner] = []string{resp.Owner}
	}
	if !resp.Found {
		return &api.Error{Code: api.CodeRowNotFound, Message: "there is no row with this key in the table " + req.Table}
	}
	tag := etag(resp.Version)
	h["Etag"] = []string{tag}
	if anyTag(x.r.Header["If-None-Match"], tag) {
		x.begin(http.StatusNotModified)
		return nil
	}
	if op == api.OpGet {
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
	h[api.HeaderOwner] = []string{resp.Owner}
	if req.Op == api.OpPut {
		h["Etag"] = []string{etag(resp.Version)}
	}
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
	req := &api.Request{Op: op, Table: table, Key: key, Principal: x.who}
	if q.Has("consistency") {
		switch c := q.Get("consistency"); c {
		case "local":
			req.Local = true
		case "linearizable":
		default:
			return nil, badRequest("query parameter consistency: %q is neither local nor linearizable", clip(c))
		}
	}
	patience, err := x.timeout()
	if err != nil {
		return nil, err
	}
	if patience > 0 {
		req.Deadline = x.start.Add(patience)
	}
	if !op.Writes() && len(x.r.Header["If-Match"]) > 0 {
		return nil, badRequest("header If-Match is for PUT and DELETE: a read takes If-None-Match")
	}
	return req, nil
}

// conditions reads the conditions of a write.
func (x *exchange) conditions(req *api.Request) error {
	match, none := x.r.Header["If-Match"], x.r.Header["If-None-Match"]
	if len(match) > 0 {
		if len(match) > 1 || strings.Contains(match[0], ",") || match[0] == "*" {
			return badRequest("header If-Match takes exactly one entity tag, of the row's ETag")
		}
		v, err := api.ParseETag(match[0])
		if err != nil {
			return err
		}
		req.IfMatch = &v
	}
	if len(none) > 0 {
		if req.Op != api.OpPut || len(none) > 1 || none[0] != "*" || req.IfMatch != nil {
			return badRequest("header If-None-Match of a write is * and goes with PUT and without If-Match")
		}
		req.IfNoneMatch = true
	}
	return nil
}

// identify gives a write its id: a new one, or the one that its Idempotency-Key
// had before. The id covers the table's id, so that a name that is made again
// starts anew.
func (x *exchange) identify(req *api.Request) error {
	keys := x.r.Header[api.HeaderIdempotency]
	if len(keys) == 0 {
		req.ID = x.s.o.NewID()
		return nil
	}
	if len(keys) > 1 || keys[0] == "" || len(keys[0]) > api.MaxIdem {
		return badRequest("header %s has 1 to %d bytes and stands once", api.HeaderIdempotency, api.MaxIdem)
	}
	table, ok := x.s.o.TableID(req.Table)
	if !ok {
		return &api.Error{Code: api.CodeTableNotFound, Message: "there is no table " + req.Table}
	}
	req.Keyed = true
	req.Born.Table = table
	req.ID = keyedID(table, x.who.Name, keys[0])
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

// etag is api.ETag without reflection.
func etag(v api.Version) string {
	b := make([]byte, 0, 36)
	b = append(b, '"')
	b = strconv.AppendUint(b, uint64(v.Table), 16)
	b = append(b, '-')
	b = strconv.AppendUint(b, v.Index, 16)
	return string(append(b, '"'))
}

// anyTag reports whether the lists of an If-None-Match header hold the tag, or
// are "*"; a weak tag counts as its strong one.
func anyTag(lists []string, tag string) bool {
	for _, list := range lists {
		for t := range strings.SplitSeq(list, ",") {
			t = strings.TrimSpace(t)
			if t == "*" || strings.TrimPrefix(t, "W/") == tag {
				return true
			}
		}
	}
	return false
}

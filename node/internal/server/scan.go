package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"tidal/node/api"
)

// ndjson is the type of a body that has a JSON object on each line.
const ndjson = "application/x-ndjson"

// listRows answers a scan.
func (x *exchange) listRows() error {
	req, q, err := x.scanRequest()
	if err != nil {
		return err
	}
	resp, err := x.s.o.Rows.Do(x.r.Context(), req)
	if err != nil {
		return err
	}
	x.position(req, resp)
	x.answeredBy(req, resp)
	page := api.Page{Rows: resp.Rows}
	if page.Rows == nil {
		page.Rows = []api.Row{} // [] and not null
	}
	if resp.More && len(resp.Rows) > 0 {
		page.Next = resp.Rows[len(resp.Rows)-1].Key
		q.Set("after", page.Next)
		x.w.Header()["Link"] = []string{"</v1/tables/" + req.Table + "/rows?" + q.Encode() + `>; rel="next"`}
	}
	return x.page(&page)
}

// answeredBy tells who answered a read, or how old it may be.
func (x *exchange) answeredBy(req *api.Request, resp *api.Response) {
	if req.Local {
		x.w.Header()[api.HeaderLag] = []string{strconv.FormatUint(resp.Lag, 10)}
	} else {
		x.w.Header()[api.HeaderOwner] = []string{resp.Owner}
	}
}

// page answers with a page, in the form that the client asks for.
func (x *exchange) page(p *api.Page) error {
	size := 0
	for i := range p.Rows {
		if p.Rows[i].Value == nil {
			p.Rows[i].Value = []byte{} // "" and not null
		}
		size += 2*len(p.Rows[i].Value) + len(p.Rows[i].Key) + rowBytes
	}
	if err := x.hold(size); err != nil {
		return err
	}
	var body bytes.Buffer
	body.Grow(size)
	e := json.NewEncoder(&body)
	e.SetEscapeHTML(false)
	lines := strings.Contains(strings.Join(x.r.Header["Accept"], ","), ndjson)
	contentType, err := "application/json", error(nil)
	if lines {
		contentType = ndjson
		for i := range p.Rows {
			if err == nil {
				err = e.Encode(&p.Rows[i])
			}
		}
	} else {
		err = e.Encode(p)
	}
	if err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	x.w.Header()["Cache-Control"] = []string{"no-store"}
	x.write(http.StatusOK, contentType, body.Bytes())
	return nil
}

// rowBytes is what a row takes in an answer beside its key and value, or nearly.
const rowBytes = 80

// scanRequest reads what a scan asks for, and the parameters of its query.
func (x *exchange) scanRequest() (*api.Request, url.Values, error) {
	table, _, err := x.names()
	if err != nil {
		return nil, nil, err
	}
	q, err := x.query("prefix", "from", "to", "after", "limit", "consistency")
	if err != nil {
		return nil, nil, err
	}
	if q == nil {
		q = url.Values{}
	}
	req := &api.Request{Op: api.OpScan, Table: table, Principal: x.who, Deadline: x.deadline()}
	if req.Range, err = scanRange(q); err != nil {
		return nil, nil, err
	}
	if err := x.reads(req, q); err != nil {
		return nil, nil, err
	}
	return req, q, nil
}

// scanRange reads the range that a query names.
func scanRange(q url.Values) (r api.Range, err error) {
	for _, name := range []string{"prefix", "from", "to", "after"} {
		if v := q.Get(name); len(v) > api.MaxKey || !utf8.ValidString(v) {
			return r, badRequest("query parameter %s is not up to %d bytes of UTF-8, as a row's key is", name, api.MaxKey)
		}
	}
	prefix := q.Get("prefix")
	r = api.Range{From: max(prefix, q.Get("from")), To: q.Get("to"), Limit: api.DefaultRows}
	if q.Has("after") && q.Get("after") != "" {
		r.From = max(r.From, q.Get("after")+"\x00")
	}
	if end := afterPrefix(prefix); end != "" && (r.To == "" || end < r.To) {
		r.To = end
	}
	if q.Has("limit") {
		r.Limit, err = strconv.Atoi(q.Get("limit"))
		if err != nil || r.Limit < 1 || r.Limit > api.MaxRows {
			return r, badRequest("query parameter limit: %q is no number from 1 to %d", clip(q.Get("limit")), api.MaxRows)
		}
	}
	return r, nil
}

// afterPrefix returns the first string after all that begin with a prefix, "" if
// there is none or the prefix is empty.
func afterPrefix(prefix string) string {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] < 0xff {
			return prefix[:i] + string([]byte{prefix[i] + 1})
		}
	}
	return ""
}

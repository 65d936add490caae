package client

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"tidal/node/api"
)

// ScanOptions say which rows to read. The zero value is all of them.
type ScanOptions struct {
	Prefix   string // only keys that begin with it
	From, To string // only keys from From on, and before To; "": no such bound
	After    string // only keys after it
	Limit    int    // rows at most; 0: of Page, api.DefaultRows, of Rows, all
	Local    bool   // what the answering node's replica has, however old
}

// Page is a part of a scan: the table as it was at one moment.
type Page struct {
	api.Page
	Lag  uint64 // of a local read: entries that the replica is known to lack
	Node string // that answered
}

// Page reads rows in the order of their keys' bytes. It may give less than the limit
// while more follow: then Next is what After of the next call should be.
func (c *Client) Page(ctx context.Context, table string, o ScanOptions) (Page, error) {
	q := url.Values{}
	for name, v := range map[string]string{"prefix": o.Prefix, "from": o.From, "to": o.To, "after": o.After} {
		if v != "" {
			q.Set(name, v)
		}
	}
	if o.Limit != 0 {
		q.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Local {
		q.Set("consistency", "local")
	}
	path := rowsPath(table)
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	a, err := c.do(ctx, call{method: http.MethodGet, path: path, resend: true})
	if err != nil {
		return Page{}, err
	}
	p := Page{Node: a.header.Get(api.HeaderNode)}
	if lag := a.header.Get(api.HeaderLag); lag != "" {
		if p.Lag, err = strconv.ParseUint(lag, 10, 64); err != nil {
			return Page{}, fmt.Errorf("read the answer: header %s: %w", api.HeaderLag, err)
		}
	}
	return p, decode(a.body, &p.Page)
}

// Rows reads rows page by page, up to the limit; an error ends them. Each page is the
// table as it was at one moment, and no two need be the same.
func (c *Client) Rows(ctx context.Context, table string, o ScanOptions) iter.Seq2[api.Row, error] {
	return func(yield func(api.Row, error) bool) {
		left := o.Limit
		for {
			one := o
			if one.Limit = 0; o.Limit > 0 {
				one.Limit = min(left, api.MaxRows)
			}
			p, err := c.Page(ctx, table, one)
			if err != nil {
				yield(api.Row{}, err)
				return
			}
			for _, row := range p.Rows {
				if !yield(row, nil) {
					return
				}
			}
			if left -= len(p.Rows); p.Next == "" || left == 0 {
				return
			}
			o.After = p.Next
		}
	}
}

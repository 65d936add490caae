package client_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"tidal/node/api"
	"tidal/node/client"
)

// pages answers scans of the rows 0 to 9, three at a time.
func pages(_ int, w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	first, limit := 0, 3
	_, _ = fmt.Sscan(q.Get("after"), &first)
	if q.Has("after") {
		first++
	}
	if q.Has("limit") {
		var asked int
		if _, err := fmt.Sscan(q.Get("limit"), &asked); err != nil || asked < 1 {
			problem(w, api.CodeBadRequest)
			return
		}
		limit = min(limit, asked)
	}
	var rows []string
	for i := first; i < min(first+limit, 10); i++ {
		rows = append(rows, fmt.Sprintf(`{"key":"%d","version":"2-%x","value_base64":"dg=="}`, i, i+1))
	}
	next := ""
	if last := first + len(rows) - 1; last < 9 {
		next = fmt.Sprintf(`,"next":"%d"`, last)
	}
	w.Header().Set(api.HeaderLag, "7")
	_, _ = fmt.Fprintf(w, `{"rows":[%s]%s}`, strings.Join(rows, ","), next)
}

func TestScan(t *testing.T) {
	s := newNode(t, pages)
	c := newClient(t, s.URL)
	for _, tt := range []struct {
		o     client.ScanOptions
		want  string
		calls int
	}{
		{client.ScanOptions{}, "0123456789", 4},
		{client.ScanOptions{Limit: 5}, "01234", 2},
		{client.ScanOptions{Limit: 3, After: "4"}, "567", 1},
		{client.ScanOptions{Limit: 20}, "0123456789", 4},
	} {
		before := len(s.asked())
		got := ""
		for row, err := range c.Rows(t.Context(), "t", tt.o) {
			if err != nil {
				t.Fatal(err)
			}
			if got += row.Key; string(row.Value) != "v" || row.Version.Table != 2 {
				t.Errorf("row %+v", row)
			}
		}
		if calls := len(s.asked()) - before; got != tt.want || calls != tt.calls {
			t.Errorf("%+v: %s in %d calls, want %s in %d", tt.o, got, calls, tt.want, tt.calls)
		}
	}
	for row := range c.Rows(t.Context(), "t", client.ScanOptions{}) {
		if row.Key == "1" {
			break
		}
	}
	p, err := c.Page(t.Context(), "t", client.ScanOptions{Prefix: "a/", From: "b", To: "c&", Local: true})
	if err != nil || p.Lag != 7 {
		t.Errorf("%+v, %v", p, err)
	}
	all := s.asked()
	if last := all[len(all)-1]; last.path != "/v1/tables/t/rows" || last.query != "consistency=local&from=b&prefix=a%2F&to=c%26" {
		t.Errorf("asked for %s?%s", last.path, last.query)
	}
	for _, err := range c.Rows(t.Context(), "t", client.ScanOptions{Limit: -1}) {
		if err != nil {
			t.Errorf("a limit below 0 is none: %v", err)
		}
	}
}

func TestBatch(t *testing.T) {
	s := newNode(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 0 {
			breakOff(w) // sent again: it is done once
			return
		}
		_, _ = w.Write([]byte(`{"changes":2,"version":"2-12"}`))
	})
	c := newClient(t, s.URL)
	changes := []api.Change{{Key: "a", Value: []byte("1")}, {Key: "b", Delete: true}}
	v, err := c.Batch(t.Context(), "t", changes, client.BatchOptions{Position: api.Position{Table: 2, Index: 1}})
	if err != nil || v != (api.Version{Table: 2, Index: 18}) {
		t.Errorf("%v, %v", v, err)
	}
	all := s.asked()
	if len(all) != 2 {
		t.Fatalf("%d requests, want 2", len(all))
	}
	for _, q := range all {
		if q.method != http.MethodPost || q.path != "/v1/tables/t/rows" || q.body != "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"b\",\"delete\":true}\n" ||
			q.header.Get(api.HeaderIdempotency) == "" || q.header.Get(api.HeaderIdempotency) != all[0].header.Get(api.HeaderIdempotency) || q.header.Get(api.HeaderPosition) != "2-1" {
			t.Errorf("%+v", q)
		}
	}
}

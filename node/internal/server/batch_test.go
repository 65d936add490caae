package server_test

import (
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
)

const rowsT = "/v1/tables/t/rows"

func TestBatch(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		g := newRig(t)
		body := `{"key":"a","value":"1"}` + "\n" + `{"key":"b","value_base64":"AP8="}` + "\n\n" + `{"key":"c","delete":true}` + "\n"
		w := g.ask("POST", rowsT, body, as("writer"), header("Tidal-Timeout: 2s"), func(r *http.Request) {
			if chunked {
				r.ContentLength = -1
			}
		})
		if w.Code != http.StatusOK || w.Body.String() != `{"changes":3,"version":"2-12"}`+"\n" || w.Header().Get(api.HeaderOwner) != "b" {
			t.Fatalf("%d %v %q", w.Code, w.Header(), w.Body)
		}
		q := g.req
		want := []api.Change{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte{0, 0xff}}, {Key: "c", Delete: true}}
		if q.Op != api.OpBatch || q.Table != "t" || q.Key != "" || !reflect.DeepEqual(q.Changes, want) || q.Keyed || q.ID != (api.RequestID{0xee}) {
			t.Errorf("request %+v", q)
		}
		if left := time.Until(q.Deadline); left > 2*time.Second || left < time.Second {
			t.Errorf("deadline in %v, want 2 s", left)
		}
	}
}

// TestBatchOnce: an Idempotency-Key covers a batch as it does a row.
func TestBatchOnce(t *testing.T) {
	g := newRig(t)
	g.born = api.Position{Table: 2, Index: 19}
	const line = `{"key":"a","value":"1"}`
	w := g.ask("POST", rowsT, line, header("Idempotency-Key: one"))
	id := g.req.ID
	if !g.req.Keyed || g.req.Born.Table != 2 || w.Header().Get(api.HeaderPosition) != "2-13" {
		t.Errorf("%+v, %v", g.req, w.Header())
	}
	if g.ask("PUT", rowK, "v", header("Idempotency-Key: one")); g.req.ID != id {
		t.Error("the same key for the same table gives another id")
	}
	g.ask("POST", rowsT, line, headers([]string{"Idempotency-Key: two", "Tidal-Position: 2-ff"}))
	if g.req.ID == id || g.req.Born != (api.Position{Table: 2, Index: 255}) {
		t.Errorf("%+v", g.req)
	}
}

func TestBatchRefuses(t *testing.T) {
	const good = `{"key":"a","value":"1"}` + "\n"
	for _, c := range []struct {
		target, body, header string
		code                 api.Code
		says                 string
	}{
		{rowsT, good + `{"key":"a"}`, "", api.CodeBadRequest, "line 2: it has not one of value, value_base64 and delete"},
		{rowsT, "", "", api.CodeBadRequest, "at least one line"},
		{rowsT, good, "If-Match: *", api.CodeBadRequest, "header If-Match is for a single row"},
		{rowsT, good, "If-None-Match: *", api.CodeBadRequest, "header If-None-Match is for a single row"},
		{rowsT, good, "Tidal-Timeout: soon", api.CodeBadRequest, "soon"},
		{rowsT, good, "Idempotency-Key: " + strings.Repeat("k", 257), api.CodeBadRequest, "256 bytes"},
		{rowsT, good, "Tidal-Position: 2-1", api.CodeBadRequest, "goes with an Idempotency-Key"},
		{rowsT + "?limit=1", good, "", api.CodeBadRequest, `"limit"`},
		{"/v1/tables/T/rows", good, "", api.CodeBadRequest, "table name"},
		{rowsT, strings.Repeat(" ", api.MaxBatch+1), "", api.CodeTooLarge, "8388608"},
		{rowsT, strings.Repeat(`{"key":"k","delete":true}`+"\n", api.MaxChanges+1), "", api.CodeTooLarge, "line 10001"},
		{rowsT, `{"key":"k","value":"` + strings.Repeat("v", api.MaxValue+1) + `"}`, "", api.CodeTooLarge, "line 1: the row's value has 1048577 bytes"},
	} {
		g := newRig(t)
		w := g.ask("POST", c.target, c.body, func(r *http.Request) {
			if c.header != "" {
				header(c.header)(r)
			}
		})
		if p := problemOf(t, w); p.Code != c.code || !strings.Contains(p.Detail, c.says) || g.req != nil {
			t.Errorf("%s %.60q, %s: %+v, want %s with %q", c.target, c.body, c.header, p, c.code, c.says)
		}
		if n := g.Bodies(); n != 0 {
			t.Errorf("%.60q: %d bytes are held after the answer", c.body, n)
		}
	}
}

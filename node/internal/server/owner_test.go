package server_test

import (
	"net/http"
	"strings"
	"testing"

	"tidal/node/api"
)

func TestHandTable(t *testing.T) {
	g := newRig(t)
	w := g.ask(http.MethodPut, "/v1/tables/orders/owner", `{"to":"b","ttl":"1m","id":"7","owner":"a.17.3f2a9c1b"}`, as("admin:ann"))
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"owner":"b"`) || g.name != "orders for ann" || !g.deadline {
		t.Errorf("%d %s, asked for %q with a deadline %t", w.Code, w.Body, g.name, g.deadline)
	}
	if h := g.hand; h.To != "b" || h.TTL != "1m" || *h.ID != 7 || h.Owner.String() != "a.17.3f2a9c1b" || h.By != "ann" {
		t.Errorf("%+v", h)
	}
	if w := g.ask(http.MethodPut, "/v1/tables/orders/owner", ""); w.Code != http.StatusOK || g.hand.To != "" {
		t.Errorf("to any: %d %s", w.Code, w.Body)
	}
	for body, want := range map[string]string{
		"{":               "cut off",
		`{"to":"B"}`:      "node id",
		`{"ttl":"1ms"}`:   "1s to 24h",
		`{"ttl":"25h"}`:   "1s to 24h",
		`{"node":"b"}`:    `unknown field "node"`,
		`{"owner":"a"}`:   "incarnation",
		`{"id":"x"}`:      "table id",
		`{"to":"b"} more`: "something follows",
		`["b"]`:           "does not fit",
		`{"to":` + strings.Repeat(" ", 5<<10) + `"b"}`: "too large",
	} {
		p := problemOf(t, g.ask(http.MethodPut, "/v1/tables/orders/owner", body))
		if p.Code != api.CodeBadRequest && p.Code != api.CodeTooLarge || !strings.Contains(p.Detail, want) {
			t.Errorf("%.40s: %+v", body, p)
		}
	}
	if p := problemOf(t, g.ask(http.MethodPut, "/v1/tables/orders/owner", "", as("writer"))); p.Code != api.CodeForbidden {
		t.Errorf("as a writer: %+v", p)
	}
	if w := g.ask(http.MethodGet, "/v1/tables/orders/owner", ""); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodPut {
		t.Errorf("GET: %d, allowed %q", w.Code, w.Header().Get("Allow"))
	}
	g.err = &api.Error{Code: api.CodeConflict, Message: "node d cannot own table orders"}
	if p := problemOf(t, g.ask(http.MethodPut, "/v1/tables/orders/owner", `{"to":"d"}`)); p.Code != api.CodeConflict {
		t.Errorf("%+v", p)
	}
}

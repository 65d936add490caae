package server_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
)

func TestMoveReplica(t *testing.T) {
	g := newRig(t)
	w := g.ask(http.MethodPost, "/v1/tables/orders/replicas", `{"from":"a","to":"d"}`)
	if w.Code != http.StatusAccepted || !strings.Contains(w.Body.String(), `"name":"orders"`) || g.name != "orders from a to d" || !g.deadline {
		t.Errorf("%d %s, asked for %q with a deadline %t", w.Code, w.Body, g.name, g.deadline)
	}
	for _, body := range []string{"", "{", `{"from":"a"}`, `{"from":"a","to":"D"}`, `{"from":"a","to":"d","by":"x"}`, `{"from":"a","to":"d"} more`, `["a","d"]`} {
		if p := problemOf(t, g.ask(http.MethodPost, "/v1/tables/orders/replicas", body)); p.Code != api.CodeBadRequest || p.Hint == "" {
			t.Errorf("%s: %+v", body, p)
		}
	}
	g.err = &api.Error{Code: api.CodeConflict, Message: "node a holds no replica of table orders"}
	if p := problemOf(t, g.ask(http.MethodPost, "/v1/tables/orders/replicas", `{"from":"a","to":"d"}`)); p.Code != api.CodeConflict {
		t.Errorf("%+v", p)
	}
}

func TestReplaceNode(t *testing.T) {
	g := newRig(t)
	if w := g.ask(http.MethodPost, "/v1/nodes/b/replace", ""); w.Code != http.StatusNoContent || g.name != "replace b" || !g.deadline {
		t.Errorf("%d %s, asked for %q with a deadline %t", w.Code, w.Body, g.name, g.deadline)
	}
	if p := problemOf(t, g.ask(http.MethodPost, "/v1/nodes/B/replace", "")); p.Code != api.CodeBadRequest {
		t.Errorf("a bad id: %+v", p)
	}
	for _, path := range []string{"/v1/nodes/b", "/v1/nodes/b/c/replace", "/v1/nodes/replace"} {
		if p := problemOf(t, g.ask(http.MethodPost, path, "")); p.Code != api.CodeNotFound {
			t.Errorf("%s: %+v", path, p)
		}
	}
	if w := g.ask(http.MethodGet, "/v1/nodes/b/replace", ""); w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != http.MethodPost {
		t.Errorf("GET: %d, allowed %q", w.Code, w.Header().Get("Allow"))
	}
	for _, role := range []string{"reader", "writer"} {
		for _, path := range []string{"/v1/nodes/b/replace", "/v1/tables/orders/replicas"} {
			if p := problemOf(t, g.ask(http.MethodPost, path, `{"from":"a","to":"d"}`, as(role))); p.Code != api.CodeForbidden {
				t.Errorf("%s as %s: %+v", path, role, p)
			}
		}
	}
}

func TestCheckTable(t *testing.T) {
	g := newRig(t)
	w := g.ask(http.MethodPost, "/v1/tables/orders/check", "")
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"table":"orders"`) || g.name != "check orders" || !g.deadline {
		t.Errorf("%d %s, asked for %q with a deadline %t", w.Code, w.Body, g.name, g.deadline)
	}
	if p := problemOf(t, g.ask(http.MethodPost, "/v1/tables/orders/check", "", as("writer"))); p.Code != api.CodeForbidden {
		t.Errorf("as a writer: %+v", p)
	}
	for _, target := range []string{"/v1/tables/T/check", "/v1/tables/t/check?deep=yes"} {
		if p := problemOf(t, g.ask(http.MethodPost, target, "")); p.Code != api.CodeBadRequest {
			t.Errorf("%s: %+v", target, p)
		}
	}
	if p := problemOf(t, g.ask(http.MethodPost, "/v1/tables/t/check", "", header("Tidal-Timeout: soon"))); p.Code != api.CodeBadRequest {
		t.Errorf("a bad timeout: %+v", p)
	}
	g.err = &api.Error{Code: api.CodeTableNotFound, Message: "there is no table"}
	if p := problemOf(t, g.ask(http.MethodPost, "/v1/tables/t/check", "")); p.Code != api.CodeTableNotFound {
		t.Errorf("%+v", p)
	}
}

// TestCheckEndsWithTheNode: a check of a table reads for minutes; a node that leaves ends it.
func TestCheckEndsWithTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		g.slow = true
		time.AfterFunc(time.Minute, g.Draining)
		begun := time.Now()
		w := g.ask(http.MethodPost, "/v1/tables/orders/check", "")
		if p := problemOf(t, w); p.Code != api.CodeNotReady || time.Since(begun) != time.Minute {
			t.Errorf("%+v after %v", p, time.Since(begun))
		}
	})
}

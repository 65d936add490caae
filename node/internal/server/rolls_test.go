package server_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tidal/node/api"
)

func TestRolls(t *testing.T) {
	for _, tc := range []struct {
		method, path, body, as string
		status                 int
		action                 api.RollAction
		id                     uint64
		change                 api.RollChange
		detail                 string
	}{
		{method: "GET", path: "/v1/rolls", as: "reader", status: 200},
		{method: "GET", path: "/v1/rolls/3", as: "reader", status: 200, id: 3},
		{method: "GET", path: "/v1/rolls/last", as: "reader", status: 200},
		{method: "GET", path: "/v1/rolls/x", as: "reader", status: 400, detail: "no number of a roll"},
		{method: "GET", path: "/v1/rolls/0", as: "reader", status: 400, detail: "no number of a roll"},
		{
			method: "POST", path: "/v1/rolls", as: "admin:ann", body: `{"data":{"kind":"tidal"}}`, status: 201,
			action: api.RollStart, change: api.RollChange{By: "ann", Data: []byte(`{"kind":"tidal"}`)},
		},
		{
			method: "POST", path: "/v1/rolls/3/take", as: "admin", body: `{"epoch":7,"by":"bob","force":true}`, status: 200,
			action: api.RollTake, id: 3, change: api.RollChange{Epoch: 7, By: "bob", Force: true},
		},
		{
			method: "POST", path: "/v1/rolls/3/note", as: "admin", body: `{"epoch":7,"node":"a","state":"drain"}`, status: 200,
			action: api.RollNote, id: 3, change: api.RollChange{Epoch: 7, By: "the-admin", Node: "a", State: "drain"},
		},
		{
			method: "POST", path: "/v1/rolls/3/end", as: "admin", body: `{"epoch":7,"status":"paused","why":"so"}`, status: 200,
			action: api.RollEnd, id: 3, change: api.RollChange{Epoch: 7, By: "the-admin", Status: api.RollPaused, Why: "so"},
		},
		{
			method: "POST", path: "/v1/rolls/3/ask", as: "admin", body: `{"ask":"pause"}`, status: 200,
			action: api.RollAsk, id: 3, change: api.RollChange{By: "the-admin", Ask: "pause"},
		},
		{
			method: "POST", path: "/v1/rolls/3/unlock", as: "admin", body: `{"why":"gone"}`, status: 200,
			action: api.RollUnlock, id: 3, change: api.RollChange{By: "the-admin", Why: "gone"},
		},
		{method: "POST", path: "/v1/rolls/3/renew", as: "admin", body: `{"epoch":7}`, status: 200, action: api.RollRenew, id: 3, change: api.RollChange{By: "the-admin", Epoch: 7}},
		{method: "POST", path: "/v1/rolls", as: "writer", status: 403},
		{method: "POST", path: "/v1/rolls/3/take", as: "reader", status: 403},
		{method: "POST", path: "/v1/rolls/3/unlock", status: 401},
		{method: "POST", path: "/v1/rolls/3/start", as: "admin", status: 404},
		{method: "DELETE", path: "/v1/rolls/3", as: "admin", status: 405},
		{method: "POST", path: "/v1/rolls/3/end", as: "admin", body: `{"epoch":7,"status":"running"}`, status: 400, detail: "want paused, done or aborted"},
		{method: "POST", path: "/v1/rolls/3/ask", as: "admin", body: `{"ask":"hurry"}`, status: 400, detail: "want pause or abort"},
		{method: "POST", path: "/v1/rolls/3/note", as: "admin", body: `{"node":"A","state":"x"}`, status: 400, detail: `node id "A"`},
		{method: "POST", path: "/v1/rolls/3/note", as: "admin", body: `{"node":"a"}`, status: 400, detail: "no state"},
		{method: "POST", path: "/v1/rolls/3/end", as: "admin", body: `{"status":"done","why":"` + strings.Repeat("w", 3000) + `"}`, status: 413, detail: "the limit is 2048"},
		{method: "POST", path: "/v1/rolls", as: "admin", body: `{"who":1}`, status: 400, detail: `unknown field "who"`},
	} {
		g := newRig(t)
		w := g.ask(tc.method, tc.path, tc.body, as(tc.as))
		if w.Code != tc.status || g.roll != tc.action || g.rollID != tc.id || !cmp.Equal(g.change, tc.change) {
			t.Errorf("%s %s %s as %s: %d %q; %s of %d: %+v", tc.method, tc.path, tc.body, tc.as, w.Code, w.Body, g.roll, g.rollID, g.change)
		}
		if w.Code >= 400 && tc.detail != "" {
			if p := problemOf(t, w); !strings.Contains(p.Detail, tc.detail) {
				t.Errorf("%s %s: %q, want %q", tc.method, tc.path, p.Detail, tc.detail)
			}
		}
	}
}

func TestFreshStatus(t *testing.T) {
	for query, want := range map[string]string{"": "", "?consistency=linearizable": "fresh"} {
		g := newRig(t)
		if w := g.ask("GET", "/cluster/status"+query, ""); w.Code != 200 || g.name != want {
			t.Errorf("%q: %d, asked for %q", query, w.Code, g.name)
		}
	}
	g := newRig(t)
	if p := problemOf(t, g.ask("GET", "/cluster/status?consistency=some", "")); !strings.Contains(p.Detail, "consistency") {
		t.Errorf("%+v", p)
	}
	g.err = &api.Error{Code: api.CodeNotReady, Message: "no quorum"}
	if p := problemOf(t, g.ask("GET", "/cluster/status?consistency=linearizable", "")); p.Code != api.CodeNotReady {
		t.Errorf("without a quorum: %+v", p)
	}
}

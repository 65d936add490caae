package server_test

import (
	"strings"
	"testing"

	"tidal/node/api"
)

func TestLevel(t *testing.T) {
	for _, tc := range []struct {
		method, body, as string
		err              error
		status           int
		level            uint64
		raised           bool
		want             string
	}{
		{method: "GET", as: "reader", status: 200, want: `{"level":1,"possible":2,"members":[]}`},
		{method: "PUT", as: "admin", body: `{"level":2}`, status: 200, level: 2, raised: true, want: `"level":2`},
		{method: "PUT", as: "admin", status: 200, raised: true},
		{method: "PUT", as: "admin", err: &api.Error{Code: api.CodeConflict, Message: "node c speaks level 1"}, status: 409, raised: true, want: "node c speaks level 1"},
		{method: "PUT", as: "writer", status: 403},
		{method: "GET", status: 401},
		{method: "PUT", as: "admin", body: `{"level":-1}`, status: 400},
		{method: "POST", as: "admin", status: 405},
	} {
		g := newRig(t)
		g.err = tc.err
		w := g.ask(tc.method, "/v1/cluster/level", tc.body, as(tc.as))
		if w.Code != tc.status || g.level != tc.level || (g.name == "raise") != tc.raised || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s %s as %q: %d %s, raised %t to %d", tc.method, tc.body, tc.as, w.Code, w.Body, g.name == "raise", g.level)
		}
	}
}

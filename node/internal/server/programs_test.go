package server_test

import (
	"net/http"
	"strings"
	"testing"

	"tidal/node/api"
)

func TestPrograms(t *testing.T) {
	sha := strings.Repeat("5a", 32)
	for _, tc := range []struct {
		method, query, body, as string
		err                     error
		status                  int
		binary                  string
		sent                    int
		want                    string
	}{
		{method: "GET", as: "admin", status: 200, want: `"node":"a"`},
		{method: "POST", as: "admin", body: `{"sha256":"` + sha + `"}`, status: 200, binary: sha, want: sha},
		{method: "PUT", as: "admin", query: "?sha256=" + sha, body: strings.Repeat("x", 300_000), status: 200, binary: sha, sent: 300_000, want: sha},
		{
			method: "PUT", as: "admin", query: "?sha256=" + sha, body: "x", err: &api.Error{Code: api.CodeCheckFailed, Message: "exec format error"},
			status: 409, binary: sha, sent: 1, want: "exec format error",
		},
		{method: "PUT", as: "admin", body: "x", status: 400, want: "want 64 digits"},
		{method: "PUT", as: "admin", query: "?sha256=" + strings.ToUpper(sha), body: "x", status: 400, want: "want 64 digits"},
		{method: "POST", as: "admin", body: `{"sha256":"../../x"}`, status: 400, want: "want 64 digits"},
		{method: "POST", as: "admin", status: 400, want: "want 64 digits"},
		{method: "PUT", as: "writer", query: "?sha256=" + sha, body: "x", status: 403},
		{method: "GET", as: "reader", status: 403},
		{method: "POST", body: `{}`, status: 401},
	} {
		g := newRig(t)
		g.err = tc.err
		w := g.ask(tc.method, "/v1/node/binary"+tc.query, tc.body, as(tc.as))
		if w.Code != tc.status || g.binary != tc.binary || g.sent != tc.sent || !strings.Contains(w.Body.String(), tc.want) {
			t.Errorf("%s %s as %q: %d %s; %d bytes of %q", tc.method, tc.query, tc.as, w.Code, w.Body, g.sent, g.binary)
		}
	}
}

// TestProgramTooLarge: a body without end is cut off at the limit, whatever it said.
func TestProgramTooLarge(t *testing.T) {
	g := newRig(t)
	long := func(r *http.Request) { r.Body, r.ContentLength = endless{}, -1 }
	if w := g.ask("PUT", "/v1/node/binary?sha256="+strings.Repeat("5a", 32), "", as("admin"), long); w.Code != 413 || !strings.Contains(w.Body.String(), "the limit is 268435456 bytes") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }
func (endless) Close() error               { return nil }

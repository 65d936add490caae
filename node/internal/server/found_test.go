package server_test

import (
	"net/http"
	"strings"
	"testing"

	"tidal/node/api"
)

func TestFound(t *testing.T) {
	g := newRig(t)
	w := g.ask(http.MethodPost, "/v1/cluster/init", `{"members":["b","a"]}`)
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"proposer":"b"`) || g.name != "found b,a" || !g.deadline {
		t.Errorf("%d %s, asked for %q with a deadline %t", w.Code, w.Body, g.name, g.deadline)
	}
	for _, body := range []string{"", "{}", "{", `{"members":[]}`, `{"members":["A"]}`, `{"members":["a","a"]}`, `{"members":["a"],"by":"x"}`, `["a"]`} {
		if p := problemOf(t, g.ask(http.MethodPost, "/v1/cluster/init", body)); p.Code != api.CodeBadRequest {
			t.Errorf("%s: %+v", body, p)
		}
	}
	if p := problemOf(t, g.ask(http.MethodPost, "/v1/cluster/init", `{"members":["a"]}`, as("writer"))); p.Code != api.CodeForbidden {
		t.Errorf("as a writer: %+v", p)
	}
	g.err = &api.Error{Code: api.CodeConflict, Message: "1 of the 3 listed members are named"}
	if p := problemOf(t, g.ask(http.MethodPost, "/v1/cluster/init", `{"members":["a"]}`)); p.Code != api.CodeConflict {
		t.Errorf("%+v", p)
	}
}

package server_test

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/internal/server"
)

func TestTables(t *testing.T) {
	g := newRig(t)
	if w := g.ask("GET", "/v1/tables", "", as("reader")); w.Code != http.StatusOK || w.Body.String() != `{"tables":[]}`+"\n" {
		t.Errorf("list: %d %q", w.Code, w.Body)
	}
	w := g.ask("GET", "/v1/tables/t-1", "", as("reader"))
	var table api.Table
	if err := json.Unmarshal(w.Body.Bytes(), &table); err != nil || table.Owner != "b" || table.Term != 4 || g.name != "t-1" {
		t.Errorf("get: %d %q, %v", w.Code, w.Body, err)
	}
	for created, want := range map[bool]int{true: http.StatusCreated, false: http.StatusOK} {
		g.created = created
		w := g.ask("PUT", "/v1/tables/t", `{"replicas":5}`, as("admin"))
		if w.Code != want || g.settings.Replicas != 5 || !g.deadline {
			t.Errorf("put: %d %q, %+v", w.Code, w.Body, g.settings)
		}
		if got := w.Header().Get("Location") != ""; got != created {
			t.Errorf("location %q", w.Header().Get("Location"))
		}
	}
	if w := g.ask("DELETE", "/v1/tables/t", "", as("admin")); w.Code != http.StatusNoContent || !g.deadline {
		t.Errorf("drop: %d %q", w.Code, w.Body)
	}
}

func TestTableSettings(t *testing.T) {
	for _, body := range []string{"", " \n", "{}", `{"replicas":0}`, `{"replicas":7}`} {
		if w := newRig(t).ask("PUT", "/v1/tables/t", body); w.Code != http.StatusOK {
			t.Errorf("%q: %d %q", body, w.Code, w.Body)
		}
	}
	for body, want := range map[string]string{
		"{\n\"replica\":3}":            `line 2 of the table's settings: unknown field "replica"`,
		"{\"replicas\":3,\n\"x\":1}":   `unknown field "x"`,
		"{\n\n\"replicas\":\"3\"}":     `line 3 of the table's settings: replicas: a string does not fit`,
		`{"replicas":1.5}`:             `replicas: a number 1.5 does not fit`,
		`{"replicas":8}`:               "want 1 to 7",
		`{"replicas":-1}`:              "want 1 to 7",
		`{"replicas":3} {}`:            "something follows",
		`{"replicas":3`:                "cut off",
		`[]`:                           "a array does not fit",
		"{\n}}":                        "line 2",
		"replicas=3":                   "line 1 of the table's settings: invalid character 'r'",
		`{"replicas":3}` + "\n\n junk": "something follows",
	} {
		g := newRig(t)
		w := g.ask("PUT", "/v1/tables/t", body)
		if p := problemOf(t, w); p.Code != api.CodeBadRequest || !strings.Contains(p.Detail, want) || g.name != "" {
			t.Errorf("%q: %+v, want %q", body, p, want)
		}
	}
	w := newRig(t).ask("PUT", "/v1/tables/t", strings.Repeat(" ", 65537))
	if p := problemOf(t, w); p.Code != api.CodeTooLarge || !strings.Contains(p.Detail, "65536") {
		t.Errorf("%+v", p)
	}
	for _, target := range []string{"/v1/tables/T", "/v1/tables/", "/v1/tables/" + strings.Repeat("t", 65), "/v1/tables/t%ZZ"} {
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			if strings.Contains(target, "%") {
				continue // net/http refuses it before us
			}
			if p := problemOf(t, newRig(t).ask(method, target, "")); p.Code != api.CodeBadRequest {
				t.Errorf("%s %s: %+v", method, target, p)
			}
		}
	}
	if p := problemOf(t, newRig(t).ask("PUT", "/v1/tables/t?replicas=3", "")); !strings.Contains(p.Detail, `"replicas"`) {
		t.Errorf("%+v", p)
	}
}

func TestHealth(t *testing.T) {
	for path, check := range map[string]server.Check{
		"/health": server.CheckReady, "/readyz": server.CheckReady, "/health/startup": server.CheckStartup,
		"/health/live": server.CheckLive, "/livez": server.CheckLive,
	} {
		g := newRig(t)
		g.check = 99
		if w := g.ask("GET", path, "", as("")); w.Code != http.StatusOK || g.check != check {
			t.Errorf("%s: %d %q, check %d", path, w.Code, w.Body, g.check)
		}
		g.health = api.Health{Status: "unavailable", Reasons: []api.Reason{{Code: "draining", Detail: "it stops"}}}
		w := g.ask("GET", path, "", as(""))
		var h api.Health
		if err := json.Unmarshal(w.Body.Bytes(), &h); err != nil || w.Code != http.StatusServiceUnavailable || len(h.Reasons) != 1 {
			t.Errorf("%s: %d %q, %v", path, w.Code, w.Body, err)
		}
	}
}

func TestStatus(t *testing.T) {
	g := newRig(t)
	for path, want := range map[string]string{
		"/cluster/status": `"cluster":"prod"`, "/cluster/status/local": `"phase":"serving"`, "/metrics": "tidal_up 1",
	} {
		if w := g.ask("GET", path, "", as("reader")); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %q", path, w.Code, w.Body)
		}
	}
	if w := g.ask("HEAD", "/cluster/status", ""); w.Code != http.StatusOK || w.Body.Len() != 0 {
		t.Errorf("head: %d %q", w.Code, w.Body)
	}
}

// TestRoles says for each route what each client gets.
func TestRoles(t *testing.T) {
	const no, none = "403", "401"
	tests := map[string]map[string]string{ // route: certificate: status
		"GET /health":                {"": "200", "node": "200", "reader": "200"},
		"GET /metrics":               {"": none, "node": "200", "reader": "200"},
		"GET /internal/peer":         {"": "418", "node": "418"},
		"GET /cluster/status":        {"": none, "node": no, "reader": "200", "admin": "200"},
		"GET /cluster/status/local":  {"": none, "node": no, "reader": "200"},
		"GET /v1/stream":             {"": none, "node": no, "reader": "400", "admin": "400"},
		"GET /v1/tables":             {"": none, "node": no, "reader": "200"},
		"GET /v1/tables/t":           {"": none, "node": no, "reader": "200"},
		"PUT /v1/tables/t":           {"": none, "node": no, "reader": no, "writer": no, "admin": "200"},
		"DELETE /v1/tables/t":        {"": none, "node": no, "reader": no, "writer": no, "admin": "204"},
		"GET /v1/tables/t/rows/k":    {"": none, "node": no, "reader": "200", "writer": "200", "admin": "200"},
		"HEAD /v1/tables/t/rows/k":   {"": none, "node": no, "reader": "200"},
		"PUT /v1/tables/t/rows/k":    {"": none, "node": no, "reader": no, "writer": "204", "admin": "204"},
		"GET /v1/tables/t/rows":      {"": none, "node": no, "reader": "200", "admin": "200"},
		"POST /v1/tables/t/rows":     {"": none, "node": no, "reader": no, "writer": "400", "admin": "400"},
		"DELETE /v1/tables/t/rows/k": {"": none, "node": no, "reader": no, "writer": "204", "admin": "204"},
	}
	for line, certs := range tests {
		method, path, _ := strings.Cut(line, " ")
		for cert, want := range certs {
			w := newRig(t).ask(method, path, "", as(cert))
			if got := strconv.Itoa(w.Code); got != want {
				t.Errorf("%s with %q: %s %s, want %s", line, cert, got, w.Body, want)
			}
		}
		// In a plaintext cluster everybody is what Identify says: an admin here.
		if w := newRig(t).ask(method, path, ""); w.Code == http.StatusUnauthorized || w.Code == http.StatusForbidden {
			t.Errorf("%s in plaintext: %d", line, w.Code)
		}
	}
	if p := problemOf(t, newRig(t).ask("PUT", rowK, "", as("reader"))); !strings.Contains(p.Detail, "the-reader has the role reader: this needs the role writer") {
		t.Errorf("%+v", p)
	}
}

func TestUnknownPathsAndMethods(t *testing.T) {
	for _, path := range []string{"/", "/v1", "/v2/tables", "/health/", "//health", "/v1/tables/t/", "/v1/../health", "/internal/peer/x", "/metrics/"} {
		w := newRig(t).ask("GET", path, "")
		if p := problemOf(t, w); p.Code != api.CodeNotFound || p.Hint == "" {
			t.Errorf("%s: %+v", path, p)
		}
	}
	for line, allow := range map[string]string{
		"POST /health":              "GET, HEAD",
		"OPTIONS /v1/tables":        "GET, HEAD",
		"POST /v1/tables/t":         "GET, HEAD, PUT, DELETE",
		"PATCH " + rowK:             "GET, HEAD, PUT, DELETE",
		"DELETE /cluster/status":    "GET, HEAD",
		"MADEUP /cluster/status":    "GET, HEAD",
		"get /cluster/status":       "GET, HEAD",
		"PUT /health?no=such":       "GET, HEAD",
		"PUT /v1/tables?no=such":    "GET, HEAD",
		"DELETE /internal/peer":     "GET, HEAD",
		"CONNECT /internal/peer":    "GET, HEAD",
		"PUT /cluster/status":       "GET, HEAD",
		"TRACE /health/live":        "GET, HEAD",
		"PUT /health/startup":       "GET, HEAD",
		"POST /metrics":             "GET, HEAD",
		"PUT /livez":                "GET, HEAD",
		"PUT /readyz":               "GET, HEAD",
		"PUT /cluster/status/local": "GET, HEAD",
	} {
		method, path, _ := strings.Cut(line, " ")
		if method == http.MethodConnect {
			continue // its target is no path
		}
		g := newRig(t)
		w := g.ask(method, path, "")
		if p := problemOf(t, w); p.Code != api.CodeMethodNotAllowed || w.Header().Get("Allow") != allow {
			t.Errorf("%s: %+v, allow %q", line, p, w.Header().Get("Allow"))
		}
		if e := g.events(); len(e) != 1 || e[0].Method != "" {
			t.Errorf("%s: events %+v: a made-up method must not become a label", line, e)
		}
	}
}

// TestUnknownParameters: no route lets a misspelt parameter pass.
func TestUnknownParameters(t *testing.T) {
	for _, line := range newRig(t).Lines() {
		method, path, _ := strings.Cut(line, " ")
		if path == "/metrics" || path == "/internal/peer" {
			continue // another handler's
		}
		path = strings.NewReplacer("{table}", "t", "{key}", "k").Replace(path)
		w := newRig(t).ask(method, path+"?surely=not", "")
		if w.Code != http.StatusBadRequest || method != http.MethodHead && !strings.Contains(w.Body.String(), "surely") {
			t.Errorf("%s: %d %s", line, w.Code, w.Body)
		}
	}
}

func TestDraining(t *testing.T) {
	g := newRig(t)
	if w := g.ask("GET", rowK, ""); w.Header().Get("Connection") != "" {
		t.Errorf("connection: %q", w.Header().Get("Connection"))
	}
	g.Draining()
	for _, path := range []string{rowK, "/health", "/no/such"} {
		if w := g.ask("GET", path, ""); w.Header().Get("Connection") != "close" {
			t.Errorf("%s: connection: %q", path, w.Header().Get("Connection"))
		}
	}
}

func TestActivity(t *testing.T) {
	g := newRig(t)
	n, before := g.Activity()
	if n != 0 {
		t.Errorf("%d in flight", n)
	}
	for _, path := range []string{"/health", "/cluster/status", "/cluster/status/local", "/metrics", "/no/such"} {
		g.ask("GET", path, "")
	}
	if _, last := g.Activity(); !last.Equal(before) {
		t.Error("polls count as activity")
	}
	g.block, g.entered = make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		g.ask("PUT", rowK, "v")
	}()
	<-g.entered
	n, began := g.Activity()
	if n != 1 || !began.After(before) {
		t.Errorf("%d in flight, began %v", n, began.Sub(before))
	}
	close(g.block)
	<-done
	if n, ended := g.Activity(); n != 0 || !ended.After(began) {
		t.Errorf("%d in flight, ended %v after it began", n, ended.Sub(began))
	}
	g.ask("GET", "/v1/tables", "")
	if _, last := g.Activity(); time.Since(last) > time.Minute {
		t.Errorf("last activity %v ago", time.Since(last))
	}
}

// TestDocs compares docs/http-api.md with the routes, the codes and the headers.
func TestDocs(t *testing.T) {
	raw, err := os.ReadFile("../../../docs/http-api.md")
	if err != nil {
		t.Fatal(err)
	}
	var routes, codes []string
	for line := range strings.Lines(string(raw)) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		first := strings.TrimSpace(cells[1])
		word := strings.Trim(first, "`")
		switch {
		case !strings.HasPrefix(first, "`"):
		case strings.Contains(word, " /"):
			routes = append(routes, word)
		case len(cells) == 6 && strings.TrimSpace(cells[2]) != "":
			codes = append(codes, word+strings.TrimSpace(cells[2])+strings.TrimSpace(cells[3]))
		}
	}
	want := newRig(t).Lines()
	slices.Sort(want)
	slices.Sort(routes)
	if !slices.Equal(routes, want) {
		t.Errorf("routes in the docs:\n%s\nof the server:\n%s", strings.Join(routes, "\n"), strings.Join(want, "\n"))
	}
	var kinds []string
	for _, k := range api.Kinds() {
		kinds = append(kinds, string(k.Code)+strconv.Itoa(k.Status)+map[api.Outcome]string{
			api.OutcomeNone: "nothing was done", api.OutcomeDone: "decided", api.OutcomeUnknown: "unknown",
		}[k.Outcome])
	}
	slices.Sort(kinds)
	slices.Sort(codes)
	if !slices.Equal(codes, kinds) {
		t.Errorf("codes in the docs:\n%s\nin the API:\n%s", strings.Join(codes, "\n"), strings.Join(kinds, "\n"))
	}
	for _, h := range []string{
		api.HeaderRouteError, api.HeaderTimeout, api.HeaderLag, api.HeaderNode, api.HeaderOwner, api.HeaderIdempotency,
		"If-Match", "If-None-Match", "Retry-After", "ETag", "Allow", "Connection", "Location",
	} {
		if !strings.Contains(string(raw), "`"+h) {
			t.Errorf("the docs do not tell of the header %s", h)
		}
	}
}

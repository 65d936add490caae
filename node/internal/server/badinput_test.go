package server_test

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
)

// samplePath fills in the parts of a route's path.
func samplePath(path string) string {
	return strings.NewReplacer("{table}", "t", "{key}", "k", "{node}", "b", "{roll}", "3").Replace(path)
}

// each calls f for each route, except those that other handlers answer.
func each(t *testing.T, f func(line, method, path string, op operation)) {
	t.Helper()
	for _, line := range newRig(t).Lines() {
		method, path, _ := strings.Cut(line, " ")
		if path != "/metrics" && path != "/internal/peer" {
			f(line, method, samplePath(path), operations()[line])
		}
	}
}

// refuses asks for something that must be refused, and nothing be done for.
func refuses(t *testing.T, want api.Code, says, line, body string, change ...func(*http.Request)) {
	t.Helper()
	method, target, _ := strings.Cut(line, " ")
	g := newRig(t)
	w := g.ask(method, target, body, change...)
	status := api.KindOf(want).Status
	if w.Code != status || method != http.MethodHead && !strings.Contains(w.Body.String(), says) {
		t.Errorf("%s %.80s with %.80q: %d %s, want %d with %q", method, target, body, w.Code, w.Body, status, says)
	}
	if method != http.MethodHead && w.Code == status {
		problemOf(t, w)
	}
	if b := g.below; b.req != nil || b.name != "" || b.to != "" || b.roll != 0 || b.action != 0 {
		t.Errorf("%s %.80s with %.80q: something was done", method, target, body)
	}
	if n := g.Bodies(); n != 0 {
		t.Errorf("%s %.80s: %d bytes are held after the answer", method, target, n)
	}
}

// TestBadMethods asks each route in each way that it does not know.
func TestBadMethods(t *testing.T) {
	routes := map[string][]string{}
	each(t, func(_, method, path string, _ operation) {
		routes[path] = append(routes[path], method)
		if method == http.MethodGet {
			routes[path] = append(routes[path], http.MethodHead)
		}
	})
	for path, has := range routes {
		for _, method := range []string{"GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW", "get"} {
			if slices.Contains(has, method) {
				continue
			}
			g := newRig(t)
			w := g.ask(method, path, "{}")
			if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") == "" || g.events()[0].Method != "" {
				t.Errorf("%s %s: %d, allow %q", method, path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
}

// TestBadNames puts into each part of each path what cannot stand there.
func TestBadNames(t *testing.T) {
	bad := map[string][]string{
		"{table}": {"T", "-t", "_t", "t%20", "t%00", "%C3%A9", "t.", strings.Repeat("t", 65), "t%2Ft"},
		"{key}":   {"", strings.Repeat("k", 1025), "%FF", "a%ED%A0%80", strings.Repeat("%C3%A9", 513)},
		"{node}":  {"", "B", "b_", "-b", strings.Repeat("b", 33), "b%20"},
		"{roll}":  {"", "0", "-1", "x", "1e3", "18446744073709551616", "LAST"},
	}
	for _, line := range newRig(t).Lines() {
		method, path, _ := strings.Cut(line, " ")
		for part, list := range bad {
			if !strings.Contains(path, part) {
				continue
			}
			for _, with := range list {
				if with == "" && !strings.HasSuffix(path, part) && part != "{node}" && part != "{roll}" {
					continue
				}
				if part == "{table}" && with == "" {
					continue
				}
				target := samplePath(strings.Replace(path, part, with, 1))
				code := api.CodeBadRequest
				if g := newRig(t); g.ask(method, target, "").Code == http.StatusNotFound && with == "" {
					code = api.CodeNotFound // another path then
				}
				refuses(t, code, "", method+" "+target, "")
			}
		}
	}
}

// TestBadHeaders sends each route a patience that is none, also where nothing waits.
func TestBadHeaders(t *testing.T) {
	each(t, func(_, method, path string, _ operation) {
		for _, text := range []string{"", "soon", "5", "-1s", "0s", "1 s", "99999999999h"} {
			refuses(t, api.CodeBadRequest, "Tidal-Timeout", method+" "+path, "", header(api.HeaderTimeout+": "+text))
		}
		refuses(t, api.CodeBadRequest, "Tidal-Timeout", method+" "+path, "", headers([]string{api.HeaderTimeout + ": 1s", api.HeaderTimeout + ": 2s"}))
	})
}

// TestBadBodies sends each route that takes a JSON object what is none, or has what
// it must not have.
func TestBadBodies(t *testing.T) {
	each(t, func(_, method, path string, op operation) {
		if op.body == nil || method+" "+path == "PUT /v1/node/binary" { // of which more is taken: see TestProgramTooLarge
			return
		}
		limit := strings.Repeat(" ", 512<<10)
		if op.body == raw("application/octet-stream") || op.body == raw("application/x-ndjson") {
			limit = strings.Repeat(" ", api.MaxBatch+1)
		}
		refuses(t, api.CodeTooLarge, "limit", method+" "+path, limit)
		refuses(t, api.CodeTooLarge, "limit", method+" "+path, limit, func(r *http.Request) { r.ContentLength = -1 })
		if _, isRaw := op.body.(raw); isRaw {
			return
		}
		for body, says := range map[string]string{
			`{"surely":1}`: "surely", `[]`: "", `"x"`: "", `7`: "", `{`: "", `{}{}`: "", `{} x`: "", `nul`: "", ` null`: "a null does not fit", "\xff\xfe{}": "", "{\"by\":\"\x00\"}": "",
			`{"\u0000":1}`: "", strings.Repeat(`{"data":`, 400): "",
		} {
			refuses(t, api.CodeBadRequest, says, method+" "+path, body)
		}
		// A value of the wrong type in each field.
		for f := range reflect.TypeOf(op.body).Fields() {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			wrong := `{"x":[]}`
			refuses(t, api.CodeBadRequest, "stands twice", method+" "+path, fmt.Sprintf(`{%[1]q:null,%[1]q:null}`, name))
			refuses(t, api.CodeBadRequest, "unknown field", method+" "+path, fmt.Sprintf(`{%q:null}`, strings.ToUpper(name)))
			if f.Type.Kind() == reflect.Slice {
				continue // any JSON
			}
			refuses(t, api.CodeBadRequest, name, method+" "+path, fmt.Sprintf(`{%q:%s}`, name, wrong))
		}
	})
}

// TestPartOfValue: a body that says that it is a part of the value is never taken for all
// of it.
func TestPartOfValue(t *testing.T) {
	refuses(t, api.CodeBadRequest, "never a part", "PUT "+rowK, "v", header("Content-Range: bytes 0-0/9"))
}

// TestOptionsOfAll: what net/http would answer by itself is an answer as all others are.
func TestOptionsOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newRig(t)
		conn, r := g.serve(t)
		_, _ = io.WriteString(conn, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n")
		answer, err := http.ReadResponse(r, nil)
		if err != nil || answer.StatusCode != http.StatusNotFound || answer.Header.Get(api.HeaderNode) == "" || answer.Body.Close() != nil {
			t.Errorf("%v: %+v", err, answer)
		}
	})
}

// TestCutBodies ends the connection, or the body's encoding, before the body is
// there: nothing is done, and nothing stays held.
func TestCutBodies(t *testing.T) {
	each(t, func(line, method, path string, op operation) {
		if op.body == nil {
			return
		}
		for name, rest := range map[string]string{
			"shorter than announced": "Content-Length: 100\r\n\r\n{\"a\":",
			"a broken chunk":         "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a\":\r\nzz\r\n",
			"a chunk cut off":        "Transfer-Encoding: chunked\r\n\r\nff\r\n{\"a\":",
			"no last chunk":          "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
			"two lengths":            "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
			"a length that is none":  "Content-Length: -1\r\n\r\n{}",
		} {
			synctest.Test(t, func(t *testing.T) {
				g := newRig(t)
				conn, _ := g.serve(t)
				_, _ = fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: a\r\n%s", method, path, rest)
				_ = conn.Close()
				<-time.After(time.Second)
				if b := g.below; b.req != nil || b.name != "" || b.to != "" || b.roll != 0 {
					t.Errorf("%s, %s: something was done", line, name)
				}
				if n := g.Bodies(); n != 0 {
					t.Errorf("%s, %s: %d bytes are held", line, name, n)
				}
			})
		}
	})
}

// FuzzRequests: whatever is asked for, the answer is one that docs/openapi.json has,
// an error is a problem, and no handler panics.
func FuzzRequests(f *testing.F) {
	for _, line := range []string{"GET /v1/tables/t/rows?prefix=a&limit=2", "PUT /v1/tables/t/rows/k%2F", "POST /v1/tables/t/rows", "POST /v1/rolls/3/note", "GET /cluster/status?filter=lag>1&sort=-lag"} {
		method, target, _ := strings.Cut(line, " ")
		f.Add(method, target, "Idempotency-Key: a", []byte(`{"key":"k","value":"v"}`))
	}
	f.Fuzz(func(t *testing.T, method, target, line string, body []byte) {
		name, value, _ := strings.Cut(line, ": ")
		r, err := http.NewRequestWithContext(t.Context(), method, "http://a"+target, strings.NewReader(string(body)))
		if err != nil || !strings.HasPrefix(target, "/") || strings.HasPrefix(r.URL.Path, "/cluster/events") {
			return
		}
		g := newRig(t)
		w := g.ask(method, "/health", "", func(q *http.Request) {
			q.URL, q.RequestURI = r.URL, target
			q.Body, q.ContentLength = r.Body, r.ContentLength
			if name != "" {
				q.Header[http.CanonicalHeaderKey(name)] = []string{value}
			}
		})
		if w.Code == http.StatusInternalServerError || strings.Contains(g.log.String(), "panicked") {
			t.Errorf("%s %q, %q: %d %s\n%s", method, target, line, w.Code, w.Body, g.log.String())
		}
		if w.Code >= http.StatusBadRequest && method != http.MethodHead && w.Header().Get("Content-Type") == "application/problem+json" {
			problemOf(t, w)
		}
	})
}

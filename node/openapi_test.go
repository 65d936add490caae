package node_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// spec is docs/openapi.json.
type spec struct {
	t     *testing.T
	Paths map[string]map[string]struct {
		Responses map[string]struct {
			Headers map[string]any
			Content map[string]struct{ Schema schema }
		}
	}
	Components struct{ Schemas map[string]schema }

	asked map[string]bool // operations, as "get /health"
}

// schema is what this page uses of JSON Schema.
type schema struct {
	Ref        string `json:"$ref"`
	AllOf      []schema
	Type       string
	Enum       []string
	Pattern    string
	Minimum    *float64
	Items      *schema
	Properties map[string]schema
	Required   []string
	Additional *schema `json:"additionalProperties"`
}

func readSpec(t *testing.T) *spec {
	t.Helper()
	b, err := os.ReadFile("../docs/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	s := &spec{t: t, asked: map[string]bool{}}
	if err := json.Unmarshal(b, s); err != nil {
		t.Fatal(err)
	}
	return s
}

// wrong returns what is wrong with a value at a place, "" for nothing. A field that the
// schema does not have is wrong: the docs lack it.
func (s *spec) wrong(c schema, at string, v any) string {
	for _, one := range c.AllOf {
		if why := s.wrong(one, at, v); why != "" {
			return why
		}
	}
	if c.Ref != "" {
		return s.wrong(s.Components.Schemas[c.Ref[strings.LastIndex(c.Ref, "/")+1:]], at, v)
	}
	kind := map[bool]string{true: "null"}[v == nil]
	switch x := v.(type) {
	case string:
		kind = "string"
		if c.Pattern != "" && !regexp.MustCompile(c.Pattern).MatchString(x) || c.Enum != nil && !slices.Contains(c.Enum, x) {
			return fmt.Sprintf("%s: %q is not of %s%v", at, x, c.Pattern, c.Enum)
		}
	case bool:
		kind = "boolean"
	case float64:
		kind = "number"
		if c.Type == "integer" && x == math.Trunc(x) {
			kind = "integer"
		}
		if c.Minimum != nil && x < *c.Minimum {
			return fmt.Sprintf("%s: %v is less than %v", at, x, *c.Minimum)
		}
	case []any:
		kind = "array"
		for i, e := range x {
			if c.Items == nil {
				break
			}
			if why := s.wrong(*c.Items, fmt.Sprintf("%s[%d]", at, i), e); why != "" {
				return why
			}
		}
	case map[string]any:
		kind = "object"
		if why := s.wrongFields(c, at, x); why != "" {
			return why
		}
	}
	if c.Type != "" && c.Type != kind {
		return fmt.Sprintf("%s is of type %s, want %s", at, kind, c.Type)
	}
	return ""
}

func (s *spec) wrongFields(c schema, at string, fields map[string]any) string {
	for _, name := range c.Required {
		if _, ok := fields[name]; !ok {
			return at + " lacks " + name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		f, ok := c.Properties[name]
		if !ok && c.Additional != nil {
			f, ok = *c.Additional, true
		}
		if !ok && c.Type == "object" {
			return at + " has a field that the docs lack: " + name
		}
		if why := s.wrong(f, at+"."+name, fields[name]); why != "" {
			return why
		}
	}
	return ""
}

// check holds an answer against the page.
func (s *spec) check(method, path string, status int, body []byte, h http.Header) {
	s.t.Helper()
	op := strings.ToLower(method) + " " + path
	s.asked[op] = true
	r, ok := s.Paths[path][strings.ToLower(method)].Responses[fmt.Sprint(status)]
	if !ok {
		s.t.Errorf("%s answered %d, which the docs do not have: %s", op, status, body)
		return
	}
	known := map[string]bool{
		"Connection": true, "Content-Length": true, "Content-Type": true, "Date": true, "Cache-Control": true, "Transfer-Encoding": true,
	}
	for name := range r.Headers {
		known[http.CanonicalHeaderKey(name)] = true
	}
	for name := range h {
		if !known[name] {
			s.t.Errorf("%s, %d: the docs lack the header %s", op, status, name)
		}
	}
	media, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	c, ok := r.Content[media]
	if len(body) == 0 && len(r.Content) == 0 {
		return
	}
	if !ok {
		s.t.Errorf("%s, %d: the docs have no body of type %q", op, status, media)
		return
	}
	if !strings.HasSuffix(media, "json") {
		return
	}
	var v any
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(&v); err != nil {
		s.t.Errorf("%s, %d: %v: %s", op, status, err, body)
	} else if why := s.wrong(c.Schema, "the answer", v); why != "" {
		s.t.Errorf("%s, %d: %s\n%s", op, status, why, body)
	}
}

// TestOpenAPI asks a real node for everything that docs/openapi.json has, and holds
// each answer, with its status, headers and fields, against it.
func TestOpenAPI(t *testing.T) {
	c := newTrio(t, "a")
	c.secure()
	c.start("a")
	c.ready("a")
	s := readSpec(t)
	fill := strings.NewReplacer("{table}", "t", "{key}", "k", "{node}", "a", "{roll}", "last")
	ask := func(line, query, body string, want int) {
		t.Helper()
		method, path, _ := strings.Cut(line, " ")
		status, answer, h := c.do(method, "a", fill.Replace(path)+query, []byte(body))
		if status != want {
			t.Errorf("%s%s: %d %s, want %d", line, query, status, answer, want)
		}
		s.check(method, path, status, answer, h)
	}
	const one, row, rows, roll = "/v1/tables/{table}", "/v1/tables/{table}/rows/{key}", "/v1/tables/{table}/rows", "/v1/rolls/{roll}"
	ask("GET "+one, "", "", 404)
	ask("PUT "+one, "", `{"replicas":1}`, 201)
	ask("PUT "+one, "", `{"replicas":1}`, 200)
	ask("PUT "+one, "", `{"replicas":2}`, 409)
	ask("GET /v1/tables", "", "", 200)
	ask("GET "+one, "", "", 200)
	ask("POST "+one+"/check", "", "", 200)
	ask("POST "+one+"/replicas", "", `{"from":"a","to":"b"}`, 404)
	ask("POST "+one+"/replicas", "", `{"from":"a"}`, 400)
	ask("PUT "+one+"/owner", "", `{"to":"a"}`, 200)
	ask("PUT "+one+"/owner", "", `{"to":"b"}`, 404)
	ask("POST /v1/cluster/init", "", `{"members":["a"]}`, 409)
	ask("POST /v1/cluster/init", "", `{}`, 400)

	ask("GET "+row, "", "", 404)
	ask("PUT "+row, "", "v", 204)
	ask("GET "+row, "", "", 200)
	ask("HEAD "+row, "", "", 200)
	ask("GET "+row, "?consistency=local", "", 200)
	ask("GET "+row, "?consistency=not", "", 400)
	ask("POST "+rows, "", `{"key":"a","value":"1"}`+"\n"+`{"key":"b","value_base64":"/w=="}`+"\n"+`{"key":"c","delete":true}`, 200)
	ask("POST "+rows, "", `{"key":"a"}`, 400)
	ask("GET "+rows, "", "", 200)
	ask("GET "+rows, "?limit=1&consistency=local", "", 200)
	ask("GET "+rows, "?limit=0", "", 400)
	ask("DELETE "+row, "", "", 204)

	for _, path := range []string{
		"/health", "/readyz", "/health/startup", "/health/live", "/livez", "/metrics", "/v1/nodes", "/v1/node/requests",
		"/v1/certs/revoked", "/v1/certs/rotation", "/v1/rolls", "/cluster/status", "/cluster/status/local",
	} {
		ask("GET "+path, "", "", 200)
	}
	ask("GET /cluster/status", "?limit=5", "", 200)
	ask("GET /cluster/events", "?follow=false", "", 200)
	ask("GET /cluster/events", "?follow=x", "", 400)
	ask("GET /internal/peer", "", "", 426)
	ask("GET /v1/stream", "", "", 400)

	ask("GET "+roll, "", "", 404)
	ask("POST /v1/rolls", "", `{"data":{"any":"plan"}}`, 201)
	ask("POST /v1/rolls", "", "", 409)
	ask("POST "+roll+"/renew", "", "", 400) // not last
	fill = strings.NewReplacer("{table}", "t", "{key}", "k", "{node}", "a", "{roll}", "1")
	ask("POST "+roll+"/renew", "", `{"epoch":9}`, 409)
	ask("POST "+roll+"/note", "", `{"epoch":1,"node":"a","state":"done"}`, 200)
	ask("POST "+roll+"/ask", "", `{"ask":"pause"}`, 200)
	ask("POST "+roll+"/take", "", `{"epoch":1}`, 409)
	ask("POST "+roll+"/end", "", `{"epoch":1,"status":"paused"}`, 200)
	ask("POST "+roll+"/take", "", `{"epoch":1}`, 200)
	ask("POST "+roll+"/unlock", "", "", 200)
	ask("GET "+roll, "", "", 200)
	ask("GET /v1/rolls", "", "", 200)

	ask("POST /v1/certs/revoked", "", `{"serial":"`+strings.Repeat("0f", 16)+`","reason":"lost"}`, 204)
	ask("GET /v1/certs/revoked", "", "", 200)
	ask("PUT /v1/certs/rotation", "", `{"old":"`+strings.Repeat("0", 64)+`","new":"`+strings.Repeat("1", 64)+`","phase":"drop"}`, 409)
	ask("POST /v1/nodes/{node}/replace", "", "", 409)
	for _, node := range []string{"/v1/node/", "/v1/nodes/{node}/"} {
		ask("POST "+node+"drain", "", `{"ttl":"1s"}`, 200)
		ask("POST "+node+"undrain", "", "", 200)
		ask("POST "+node+"certs/reload", "", "", 200)
		ask("POST "+node+"restart", "", `{"roll":7}`, 400) // a test's process has nothing to restart into
	}
	sum := strings.Repeat("0f", 32)
	ask("GET /v1/node/binary", "", "", 409) // likewise
	ask("POST /v1/node/binary", "", `{"sha256":"`+sum+`"}`, 409)
	ask("PUT /v1/node/binary", "?sha256="+sum, "x", 409)
	ask("PUT /v1/node/binary", "?sha256=x", "x", 400)
	ask("GET /v1/cluster/level", "", "", 200)
	ask("PUT /v1/cluster/level", "", `{"level":1}`, 200)
	ask("PUT /v1/cluster/level", "", `{"level":9}`, 409)
	ask("DELETE "+one, "", "", 204)
	ask("DELETE "+one, "", "", 404)
	for path, methods := range s.Paths {
		for method := range methods {
			if !s.asked[method+" "+path] {
				t.Errorf("%s %s was not asked for", method, path)
			}
		}
	}
}

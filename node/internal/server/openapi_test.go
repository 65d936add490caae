package server_test

import (
	"bytes"
	"cmp"
	"encoding"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
)

var rewrite = flag.Bool("rewrite", false, "write docs/openapi.json anew")

const openapiFile = "../../../docs/openapi.json"

// object is a JSON object.
type object = map[string]any

// parameters describes what paths, queries and headers hold. A word in brackets tells
// apart those of one name.
func parameters() map[string]object {
	str := func(in, about string) object {
		return object{"in": in, "description": about, "schema": object{"type": "string"}}
	}
	key := object{"type": "string", "maxLength": api.MaxKey}
	number := func(about string, from, to, otherwise int) object {
		return object{"in": "query", "description": about, "schema": object{"type": "integer", "minimum": from, "maximum": to, "default": otherwise}}
	}
	enum := func(about string, words ...string) object {
		return object{"in": "query", "description": about, "schema": object{"type": "string", "enum": words, "default": words[0]}}
	}
	keyed := func(in, about string) object { return object{"in": in, "description": about, "schema": key} }
	return map[string]object{
		"table": {"in": "path", "required": true, "description": "The table's name.", "schema": object{"type": "string", "pattern": "^[a-z0-9][a-z0-9_-]{0,63}$"}},
		"key":   {"in": "path", "required": true, "description": "The row's key, of 1 to 1024 bytes of UTF-8, in which everything but letters and digits is escaped.", "schema": object{"type": "string", "minLength": 1, "maxLength": api.MaxKey}},
		"node":  {"in": "path", "required": true, "description": "The node's id.", "schema": object{"type": "string", "pattern": "^[a-z0-9][a-z0-9-]{0,31}$"}},
		"roll":  {"in": "path", "required": true, "description": "The roll's number, or last.", "schema": object{"type": "string", "pattern": "^([1-9][0-9]*|last)$"}},

		"consistency":          enum("Of a read: local is what this node's replica has, however old.", "linearizable", "local"),
		"consistency (status)": {"in": "query", "description": "Not older than the call, as a quorum knows.", "schema": object{"type": "string", "enum": []string{"linearizable"}}},
		"prefix":               keyed("query", "Only keys that begin with it."),
		"from":                 keyed("query", "Only keys from it on."),
		"to":                   keyed("query", "Only keys before it."),
		"after":                keyed("query", "Only keys after it: next of the page before."),
		"limit (rows)":         number("At most so many rows.", 1, api.MaxRows, api.DefaultRows),
		"limit (tables)":       number("At most so many tables.", 0, api.MaxWindow, api.MaxWindow),
		"offset":               number("Of the first table.", 0, 1<<30, 0),
		"sha256":               {"in": "query", "required": true, "description": "SHA-256 of the body, in hex.", "schema": object{"type": "string", "pattern": "^[0-9a-f]{64}$"}},
		"sort":                 str("query", "A column, with - in front the other way round."),
		"filter":               str("query", "Words that must all hold."),
		"follow (table)":       str("query", "The id of a table: the window moves to have it."),
		"follow":               enum("Whether to wait for what happens next.", "true", "false"),
		"after (event)":        str("query", "Only events after the one with this id."),
		"tables":               enum("Whether to list the replicas.", "true", "false"),

		api.HeaderTimeout:       str("header", "How long the client wants to wait at most, with its unit, as 1.5s."),
		api.HeaderIdempotency:   {"in": "header", "description": "Makes it safe to send the write again.", "schema": object{"type": "string", "minLength": 1, "maxLength": api.MaxIdem}},
		api.HeaderPosition:      {"in": "header", "description": "One of an earlier answer about the table; with an Idempotency-Key.", "schema": object{"type": "string", "pattern": "^[0-9a-f]+-[0-9a-f]+$"}},
		"If-Match":              str("header", "Versions, one of which the row must have, or * for any."),
		"If-None-Match":         str("header", "Versions for which the answer is 304."),
		"If-None-Match (write)": {"in": "header", "description": "There must be no such row.", "schema": object{"type": "string", "const": "*"}},
		"Accept":                str("header", "application/x-ndjson for a row on each line."),
	}
}

// headerTexts describes the headers of answers.
func headerTexts() map[string]string {
	return map[string]string{
		"ETag":             "The row's version, in quotes.",
		"Vary":             "What the form depends on.",
		"Upgrade":          "The protocol of nodes.",
		"Link":             "The next page, with rel=\"next\", if there is one.",
		"Location":         "The table's path.",
		"Retry-After":      "Seconds after which to try again.",
		api.HeaderNode:     "The node that answered.",
		api.HeaderOwner:    "The node that served the request as the table's owner.",
		api.HeaderLag:      "Of a local read: entries that the replica is known to lack.",
		api.HeaderPosition: "A place in the table's order that is reached for certain.",

		"X-Content-Type-Options": "nosniff",

		api.HeaderRouteError: "The code, if the request was refused because of where its table is.",
	}
}

// book writes the schemas of Go types.
type book struct {
	schemas object
	texts   map[string]string // of types, and of their fields as Type.Field
}

func newBook(t *testing.T) *book {
	t.Helper()
	b := &book{schemas: object{}, texts: map[string]string{}}
	files, err := filepath.Glob("../../api/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if d, ok := n.(*ast.GenDecl); ok && len(d.Specs) == 1 {
				b.note(d)
			}
			return true
		})
	}
	return b
}

// note takes what a type's comments say.
func (b *book) note(d *ast.GenDecl) {
	s, ok := d.Specs[0].(*ast.TypeSpec)
	if !ok {
		return
	}
	b.texts[s.Name.Name] = sentence(d.Doc.Text())
	st, ok := s.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range st.Fields.List {
		for _, name := range f.Names {
			b.texts[s.Name.Name+"."+name.Name] = sentence(cmp.Or(f.Comment.Text(), f.Doc.Text()))
		}
	}
}

// sentence returns the first paragraph of a comment on one line.
func sentence(text string) string {
	text, _, _ = strings.Cut(text, "\n\n")
	return strings.Join(strings.Fields(text), " ")
}

// ref returns a reference to the schema of a value's type.
func (b *book) ref(v any) object {
	t := reflect.TypeOf(v)
	if b.schemas[t.Name()] == nil {
		b.schemas[t.Name()] = b.schema(t)
	}
	return object{"$ref": "#/components/schemas/" + t.Name()}
}

// patterns are those of types that are text in JSON.
func patterns() map[string]string {
	return map[string]string{
		"TableID": "^[0-9a-f]{16}$", "ClusterID": "^[0-9a-f]{32}$", "DiskID": "^[0-9a-f]{32}$",
		"Position": "^[0-9a-f]+-[0-9a-f]+$", "Incarnation": `^[a-z0-9-]*\.[0-9]+\.[0-9a-f]{8}$`,
	}
}

func (b *book) schema(t reflect.Type) object {
	switch {
	case t == reflect.TypeFor[time.Time]():
		return object{"type": "string", "format": "date-time"}
	case t == reflect.TypeFor[json.RawMessage]():
		return object{"description": "Any JSON."}
	case t == reflect.TypeFor[[]byte]():
		return object{"type": "string", "contentEncoding": "base64"}
	case t == reflect.TypeFor[api.Code]():
		return object{"type": "string", "enum": codes()}
	case reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()):
		return object{"type": "string", "pattern": patterns()[t.Name()]}
	}
	switch t.Kind() { //nolint:exhaustive // the others are not in the API
	case reflect.Pointer:
		return b.schema(t.Elem())
	case reflect.String:
		return object{"type": "string"}
	case reflect.Bool:
		return object{"type": "boolean"}
	case reflect.Float64:
		return object{"type": "number"}
	case reflect.Int, reflect.Int64:
		return object{"type": "integer"}
	case reflect.Uint64:
		return object{"type": "integer", "minimum": 0}
	case reflect.Slice:
		return object{"type": "array", "items": b.item(t.Elem())}
	case reflect.Map:
		return object{"type": "object", "additionalProperties": b.item(t.Elem())}
	case reflect.Struct:
		s := object{"type": "object", "properties": object{}, "required": []string{}}
		if about := b.texts[t.Name()]; about != "" {
			s["description"] = about
		}
		b.fields(t, s)
		return s
	}
	panic("no schema for " + t.String())
}

// item is the schema of what stands in a list, a map or a field: structs stand for
// themselves.
func (b *book) item(t reflect.Type) object {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if s := b.schema; t.Kind() != reflect.Struct || s(t)["type"] != "object" {
		return s(t)
	}
	return b.ref(reflect.Zero(t).Interface())
}

// fields adds those of a struct to its schema.
func (b *book) fields(t reflect.Type, s object) {
	for f := range t.Fields() {
		if f.Anonymous {
			b.fields(f.Type, s)
			continue
		}
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		one := b.item(f.Type)
		if about := b.texts[t.Name()+"."+f.Name]; about != "" {
			if _, isRef := one["$ref"]; isRef {
				one = object{"allOf": []object{one}}
			}
			one["description"] = about
		}
		s["properties"].(object)[name] = one
		required := slices.DeleteFunc(s["required"].([]string), func(r string) bool { return r == name })
		if !strings.Contains(rest, "omit") {
			required = append(required, name)
		}
		s["required"] = required
	}
}

func codes() []string {
	var out []string
	for _, k := range api.Kinds() {
		out = append(out, string(k.Code))
	}
	return out
}

// document returns what docs/openapi.json should be.
func document(t *testing.T) []byte {
	t.Helper()
	b := newBook(t)
	problem := b.ref(api.Problem{})
	paths := object{}
	ops := operations()
	for line, need := range newRig(t).Needs() {
		method, path, _ := strings.Cut(line, " ")
		op, known := ops[line]
		if !known {
			t.Errorf("operations_test.go does not say what %s does", line)
			continue
		}
		delete(ops, line)
		if paths[path] == nil {
			paths[path] = object{}
		}
		paths[path].(object)[strings.ToLower(method)] = b.operation(t, line, op, need, problem)
	}
	for line := range ops {
		t.Errorf("operations_test.go tells of %s, which the server does not have", line)
	}
	all := object{
		"openapi": "3.1.0",
		"info": object{
			"title": "tidal", "version": "v1",
			"description": "The HTTP API of a node; http-api.md is the page for people. Any node takes any request. Answers may get more fields, and codes are only ever added.",
		},
		"servers":    []object{{"url": "https://localhost:8433"}},
		"security":   []object{{"certificate": []string{}}},
		"paths":      paths,
		"components": object{"schemas": b.schemas, "securitySchemes": object{"certificate": object{"type": "mutualTLS", "description": "A client certificate of the cluster, with a role."}}},
	}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	if err := e.Encode(all); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// refused returns the codes that a route may answer with: its own, and those of all.
func refused(op *operation, need string) []api.Code {
	all := append(slices.Clone(op.codes), api.CodeBadRequest, api.CodeInternal)
	switch need {
	case "nothing":
	case "a certificate":
		all = append(all, api.CodeUnauthorized)
	default:
		all = append(all, api.CodeUnauthorized, api.CodeForbidden)
	}
	if op.body != nil {
		all = append(all, api.CodeTooMany)
	}
	return all
}

func (b *book) operation(t *testing.T, line string, op operation, need string, problem object) object {
	t.Helper()
	out := object{"summary": op.does, "description": "Needs " + need + ".", "operationId": strings.Trim(regexp.MustCompile(`[^A-Za-z]+`).ReplaceAllString(line, "_"), "_")}
	if need == "nothing" {
		out["security"] = []object{}
	}
	var params []object
	for _, name := range op.takes {
		p, known := parameters()[name]
		if !known {
			t.Errorf("%s takes %q, which parameters does not have", line, name)
			continue
		}
		p["name"], _, _ = strings.Cut(name, " (")
		params = append(params, p)
	}
	if params != nil {
		out["parameters"] = params
	}
	if op.body != nil {
		out["requestBody"] = object{"required": !op.empty, "content": b.strict(op.body)}
	}
	responses := object{}
	extra := []string{api.HeaderNode, "Retry-After", api.HeaderRouteError}
	for status, a := range op.answers {
		extra = append(extra, a.has...)
		r := object{"description": a.does, "headers": answerHeaders(append([]string{api.HeaderNode}, a.has...))}
		if a.body != nil {
			r["content"] = b.content(a.body)
		}
		responses[strconv.Itoa(status)] = r
	}
	addProblems(responses, refused(&op, need), extra, problem)
	out["responses"] = responses
	return out
}

// addProblems adds the statuses of the codes, and the codes of each.
func addProblems(responses object, refused []api.Code, headers []string, problem object) {
	words := map[string][]string{}
	for _, k := range api.Kinds() {
		if status := strconv.Itoa(k.Status); slices.Contains(refused, k.Code) {
			words[status] = append(words[status], string(k.Code))
		}
	}
	for status, list := range words {
		text := strings.Join(list, ", ")
		if before, both := responses[status].(object); both {
			before["description"] = fmt.Sprint(before["description"], "; or a problem: ", text)
			before["content"].(object)["application/problem+json"] = object{"schema": problem}
			continue
		}
		responses[status] = object{
			"description": text, "headers": answerHeaders(headers),
			"content": object{"application/problem+json": object{"schema": problem}},
		}
	}
}

func answerHeaders(names []string) object {
	out := object{}
	for _, name := range names {
		out[name] = object{"description": headerTexts()[name], "schema": object{"type": "string"}}
	}
	return out
}

func (b *book) content(body any) object {
	if media, isRaw := body.(raw); isRaw {
		return object{string(media): object{}}
	}
	return object{"application/json": object{"schema": b.ref(body)}}
}

// strict is content of a request, in which an unknown field is an error.
func (b *book) strict(body any) object {
	c := b.content(body)
	if one, isJSON := c["application/json"].(object); isJSON {
		one["schema"] = object{"allOf": []any{one["schema"]}, "unevaluatedProperties": false}
	}
	return c
}

// TestOpenAPI: docs/openapi.json is what the routes and the words of the API say.
// `go test ./node/internal/server -run TestOpenAPI -rewrite` writes it.
func TestOpenAPI(t *testing.T) {
	want := document(t)
	if *rewrite {
		if err := os.WriteFile(openapiFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(openapiFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("docs/openapi.json is not what the server is: go test ./node/internal/server -run TestOpenAPI -rewrite")
	}
}

// statuses are what docs/openapi.json says that a route answers with.
func statuses(line string, need string) []int {
	op := operations()[line]
	var all []int
	for status := range op.answers {
		all = append(all, status)
	}
	for _, code := range refused(&op, need) {
		all = append(all, api.KindOf(code).Status)
	}
	return all
}

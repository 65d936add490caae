package server_test

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
)

const rowK = "/v1/tables/t/rows/k"

func TestGetRow(t *testing.T) {
	g := newRig(t)
	g.resp.Value = []byte{0, 1, 2, 0xff}
	w := g.ask("GET", rowK, "", as("reader"), header("Tidal-Timeout: 1.5s"))
	if w.Code != http.StatusOK || w.Body.String() != "\x00\x01\x02\xff" {
		t.Fatalf("%d %q", w.Code, w.Body)
	}
	for name, want := range map[string]string{
		"Content-Type": "application/octet-stream", "Content-Length": "4", "ETag": `"2-12"`,
		api.HeaderNode: "a", api.HeaderOwner: "b", api.HeaderLag: "",
	} {
		if got := w.Header().Get(name); got != want {
			t.Errorf("header %s is %q, want %q", name, got, want)
		}
	}
	q := g.req
	if q.Op != api.OpGet || q.Table != "t" || q.Key != "k" || q.Local || q.Principal != (api.Principal{Name: "the-reader", Role: api.RoleReader}) {
		t.Errorf("request %+v", q)
	}
	if left := time.Until(q.Deadline); left > 1500*time.Millisecond || left < time.Second {
		t.Errorf("deadline in %v, want 1.5 s", left)
	}
	if !q.ID.IsZero() {
		t.Error("a read has a request id")
	}
}

func TestGetRowLocally(t *testing.T) {
	g := newRig(t)
	w := g.ask("GET", rowK+"?consistency=local", "")
	if w.Code != http.StatusOK || !g.req.Local || w.Header().Get(api.HeaderLag) != "5" || w.Header().Get(api.HeaderOwner) != "" {
		t.Errorf("%d, %+v, %v", w.Code, g.req, w.Header())
	}
	if g.ask("GET", rowK+"?consistency=linearizable", ""); g.req.Local {
		t.Error("a linearizable read went local")
	}
	g.resp.Found = false
	w = g.ask("GET", rowK+"?consistency=local", "")
	if p := problemOf(t, w); p.Code != api.CodeRowNotFound || w.Header().Get(api.HeaderLag) != "5" {
		t.Errorf("%+v, %v", p, w.Header())
	}
}

func TestHeadRow(t *testing.T) {
	g := newRig(t)
	g.resp.Size = 77
	w := g.ask("HEAD", rowK, "")
	if w.Code != http.StatusOK || g.req.Op != api.OpHead || w.Header().Get("Content-Length") != "77" || w.Header().Get("ETag") != `"2-12"` || w.Body.Len() != 0 {
		t.Errorf("%d, %+v, %v, %q", w.Code, g.req, w.Header(), w.Body)
	}
	g.resp.Found = false
	if w = g.ask("HEAD", rowK, ""); w.Code != http.StatusNotFound || w.Body.Len() != 0 {
		t.Errorf("%d %q", w.Code, w.Body)
	}
}

func TestConditionalGet(t *testing.T) {
	tests := map[string]int{
		`"2-12"`: 304, `W/"2-12"`: 304, `"2-11", "2-12"`: 304, `*`: 304, `"2-11"`: 200, `nonsense`: 200, `"a,*,b"`: 200, `"2-11", *`: 200,
	}
	for tag, want := range tests {
		for _, method := range []string{"GET", "HEAD"} {
			w := newRig(t).ask(method, rowK, "", header("If-None-Match: "+tag))
			if w.Code != want || w.Header().Get("ETag") != `"2-12"` {
				t.Errorf("%s %s: %d, %v", method, tag, w.Code, w.Header())
			}
		}
	}
}

func TestPutRow(t *testing.T) {
	for _, chunked := range []bool{false, true} {
		g := newRig(t)
		value := strings.Repeat("\x00v", 50_000)
		w := g.ask("PUT", rowK, value, as("writer"), func(r *http.Request) {
			if chunked {
				r.ContentLength = -1
			}
		})
		if w.Code != http.StatusNoContent || w.Header().Get("ETag") != `"2-12"` || w.Header().Get(api.HeaderOwner) != "b" || w.Body.Len() != 0 {
			t.Fatalf("%d %v %q", w.Code, w.Header(), w.Body)
		}
		q := g.req
		if q.Op != api.OpPut || string(q.Value) != value || q.Keyed || q.ID != (api.RequestID{0xee}) || q.Born != (api.Position{}) {
			t.Errorf("request %+v", q)
		}
	}
}

func TestEmptyValue(t *testing.T) {
	g := newRig(t)
	if w := g.ask("PUT", rowK, ""); w.Code != http.StatusNoContent || len(g.req.Value) != 0 {
		t.Errorf("%d, %+v", w.Code, g.req)
	}
}

func TestDeleteRow(t *testing.T) {
	g := newRig(t)
	w := g.ask("DELETE", rowK, "", header(`If-Match: "2-12"`))
	if w.Code != http.StatusNoContent || w.Header().Get("ETag") != `"2-12"` || g.req.Op != api.OpDelete {
		t.Errorf("%d, %+v", w.Code, g.req)
	}
	if v := g.req.IfMatch; !slices.Equal(v, []api.Version{{Table: 2, Index: 18}}) {
		t.Errorf("if-match %v", v)
	}
}

func TestPutConditions(t *testing.T) {
	for _, good := range []struct {
		lines  []string
		tags   []api.Version
		exists bool
		absent bool
	}{
		{lines: nil},
		{lines: []string{`If-None-Match: *`}, absent: true},
		{lines: []string{`If-Match: *`}, exists: true},
		{lines: []string{`If-Match: "2-12", "2-13"`}, tags: []api.Version{{Table: 2, Index: 18}, {Table: 2, Index: 19}}},
		{lines: []string{`If-Match: "2-12"`, `If-Match: "7-13"`}, tags: []api.Version{{Table: 2, Index: 18}, {Table: 7, Index: 19}}},
	} {
		for _, method := range []string{"PUT", "DELETE"} {
			g := newRig(t)
			w := g.ask(method, rowK, "", headers(good.lines))
			if q := g.req; w.Code != http.StatusNoContent || q.IfNoneMatch != good.absent || q.IfExists != good.exists || !slices.Equal(q.IfMatch, good.tags) {
				t.Errorf("%s %q: %d, %+v", method, good.lines, w.Code, q)
			}
		}
	}
	bad := []struct {
		method string
		lines  []string
	}{
		{"PUT", []string{`If-None-Match: "2-12"`}},
		{"PUT", []string{`If-None-Match: *`, `If-Match: "2-12"`}},
		{"PUT", []string{`If-None-Match: *`, `If-Match: *`}},
		{"PUT", []string{`If-None-Match: *`, `If-None-Match: *`}},
		{"PUT", []string{`If-Match: *, "2-12"`}},
		{"PUT", []string{`If-Match: *`, `If-Match: "2-12"`}},
		{"PUT", []string{`If-Match: "2-12",`}},
		{"PUT", []string{`If-Match: ` + strings.Repeat(`"2-12", `, api.MaxTags) + `"2-12"`}},
		{"PUT", []string{`If-Match: 2-12`}},
		{"PUT", []string{`If-Match: W/"2-12"`}},
		{"DELETE", []string{`If-None-Match: "2-12"`}},
		{"GET", []string{`If-Match: "2-12"`}},
	}
	for _, b := range bad {
		g := newRig(t)
		w := g.ask(b.method, rowK, "", headers(b.lines))
		if p := problemOf(t, w); p.Code != api.CodeBadRequest || g.req != nil {
			t.Errorf("%s %q: %+v", b.method, b.lines, p)
		}
	}
}

// headers sets the header lines of a request.
func headers(lines []string) func(r *http.Request) {
	return func(r *http.Request) {
		for _, l := range lines {
			header(l)(r)
		}
	}
}

// TestFailedCondition: the answer has the version that the row has, if there is one.
func TestFailedCondition(t *testing.T) {
	for index, want := range map[uint64]string{0: "", 18: `"2-12"`} {
		g := newRig(t)
		g.err = &api.Error{Code: api.CodePreconditionFailed, Message: "no", At: api.Version{Table: 2, Index: index}}
		w := g.ask("PUT", rowK, "v", header(`If-Match: "2-11"`))
		if p := problemOf(t, w); p.Code != api.CodePreconditionFailed || w.Code != http.StatusPreconditionFailed || w.Header().Get("ETag") != want {
			t.Errorf("%d, %+v, ETag %q", w.Code, p, w.Header().Get("ETag"))
		}
	}
	g := newRig(t)
	g.err = &api.Error{Code: api.CodeBehind, Message: "no", At: api.Version{Table: 2, Index: 18}}
	if w := g.ask("PUT", rowK, "v"); w.Header().Get("ETag") != "" {
		t.Error("an entity tag that is no row's")
	}
}

// TestPosition: answers name a position that is committed, and a keyed write takes
// the one that its client knew.
func TestPosition(t *testing.T) {
	for _, method := range []string{"GET", "HEAD", "PUT", "DELETE"} {
		for born, want := range map[uint64]string{17: "2-12", 18: "2-12", 19: "2-13"} {
			g := newRig(t)
			g.born = api.Position{Table: 2, Index: born}
			if w := g.ask(method, rowK, ""); w.Header().Get(api.HeaderPosition) != want {
				t.Errorf("%s, %d: position %q, want %q", method, born, w.Header().Get(api.HeaderPosition), want)
			}
		}
	}
	g := newRig(t)
	g.resp, g.born = api.Response{}, api.Position{Table: 2, Index: 19}
	if w := g.ask("GET", rowK, ""); w.Code != http.StatusNotFound || w.Header().Get(api.HeaderPosition) != "2-13" {
		t.Errorf("no row: %d, position %q", w.Code, w.Header().Get(api.HeaderPosition))
	}
	g = newRig(t)
	w := g.ask("PUT", rowK, "v", headers([]string{"Idempotency-Key: one", "Tidal-Position: 2-ff"}))
	if w.Code != http.StatusNoContent || g.req.Born != (api.Position{Table: 2, Index: 255}) {
		t.Errorf("%d, %+v", w.Code, g.req)
	}
	for lines, code := range map[string]api.Code{
		"Tidal-Position: 2-ff":                                       api.CodeBadRequest,
		"Idempotency-Key: one|Tidal-Position: 2":                     api.CodeBadRequest,
		"Idempotency-Key: one|Tidal-Position: \"2-ff\"":              api.CodeBadRequest,
		"Idempotency-Key: one|Tidal-Position: 1-ff":                  api.CodeTableNotFound,
		"Idempotency-Key: k|Tidal-Position: 2-f|Tidal-Position: 2-f": api.CodeBadRequest,
	} {
		g := newRig(t)
		w := g.ask("PUT", rowK, "v", headers(strings.Split(lines, "|")))
		if p := problemOf(t, w); p.Code != code || g.req != nil {
			t.Errorf("%q: %+v", lines, p)
		}
	}
}

// TestIdempotencyKey: the id depends on the table's life, on who asks and on the
// key, and on nothing else.
func TestIdempotencyKey(t *testing.T) {
	id := func(target, role, key string) api.RequestID {
		t.Helper()
		g := newRig(t)
		w := g.ask("PUT", target, "v", as(role), header("Idempotency-Key: "+key))
		if w.Code != http.StatusNoContent || !g.req.Keyed || g.req.Born.Table != 2 {
			t.Fatalf("%d, %+v", w.Code, g.req)
		}
		return g.req.ID
	}
	first := id(rowK, "writer:ann", "one")
	if id(rowK, "writer:ann", "one") != first || id("/v1/tables/t/rows/other", "admin:ann", "one") != first {
		t.Error("the same key gives another id")
	}
	if id(rowK, "writer:bob", "one") == first || id(rowK, "writer:ann", "two") == first || id(rowK, "writer:anno", "ne") == first {
		t.Error("another client or key gives the same id")
	}
	w := newRig(t).ask("PUT", "/v1/tables/none/rows/k", "v", header("Idempotency-Key: one"))
	if p := problemOf(t, w); p.Code != api.CodeTableNotFound {
		t.Errorf("%+v", p)
	}
	for _, key := range []string{"", strings.Repeat("x", api.MaxIdem+1)} {
		w := newRig(t).ask("PUT", rowK, "v", header("Idempotency-Key: "+key))
		if p := problemOf(t, w); p.Code != api.CodeBadRequest {
			t.Errorf("%+v", p)
		}
	}
}

// TestKeys: any bytes of UTF-8 are a key, exactly as the client meant them.
func TestKeys(t *testing.T) {
	keys := []string{
		"a/b", "%", "%2F", "..", ".", "a//b", "/", "//", "/a", "a/", "../../health", "a/../b", "é", "日本", " ", " a b ",
		"?", "a?b=c", "#", "+", "a+b", ";", "&", "\x00", "\n", "\\", "rows/", "rows", `"`, "~", "%41", ":", "@",
		strings.Repeat("k", api.MaxKey), strings.Repeat("%", api.MaxKey),
	}
	for _, key := range keys {
		g := newRig(t)
		w := g.ask("GET", "/v1/tables/t/rows/"+url.PathEscape(key), "")
		if w.Code != http.StatusOK || g.req.Key != key || g.req.Table != "t" {
			t.Errorf("key %q: %d, %+v", key, w.Code, g.req)
		}
	}
	// What a client may leave unescaped means the same.
	for sent, want := range map[string]string{"a/b": "a/b", "é": "é", "a//b/../c": "a//b/../c", "..": "..", "a%2fb%2Fc/d": "a/b/c/d", "a+b": "a+b"} {
		g := newRig(t)
		if w := g.ask("GET", "/v1/tables/t/rows/"+sent, ""); w.Code != http.StatusOK || g.req.Key != want {
			t.Errorf("sent %q: %d, %+v", sent, w.Code, g.req)
		}
	}
	for sent, want := range map[string]string{
		"":                                   "empty",
		strings.Repeat("k", api.MaxKey+1):    "1025 bytes: the limit is 1024",
		url.PathEscape("\xff\xfe"):           "not UTF-8",
		strings.Repeat("%C3%A9", api.MaxKey): "2048 bytes",
	} {
		w := newRig(t).ask("GET", "/v1/tables/t/rows/"+sent, "")
		if p := problemOf(t, w); p.Code != api.CodeBadRequest || !strings.Contains(p.Detail, want) {
			t.Errorf("sent %.20q: %+v, want %q", sent, p, want)
		}
	}
}

func TestBadRows(t *testing.T) {
	tests := []struct {
		method, target, body, line string
		code                       api.Code
		detail                     string
	}{
		{"GET", "/v1/tables/T/rows/k", "", "", api.CodeBadRequest, `table name "T"`},
		{"GET", "/v1/tables/a%2Frows%2Fb/rows/k", "", "", api.CodeBadRequest, `table name "a/rows/b"`},
		{"GET", "/v1/tables//rows/k", "", "", api.CodeBadRequest, `table name ""`},
		{"GET", rowK + "?consistancy=local", "", "", api.CodeBadRequest, `"consistancy": this takes consistency`},
		{"GET", rowK + "?consistency=eventual", "", "", api.CodeBadRequest, `"eventual"`},
		{"GET", rowK + "?consistency=local&consistency=local", "", "", api.CodeBadRequest, "2 times"},
		{"GET", rowK + "?a=%zz", "", "", api.CodeBadRequest, "not well formed"},
		{"PUT", rowK + "?consistency=local", "v", "", api.CodeBadRequest, "this takes none"},
		{"GET", rowK, "", "Tidal-Timeout: 5", api.CodeBadRequest, `"5" is not a positive duration`},
		{"GET", rowK, "", "Tidal-Timeout: -1s", api.CodeBadRequest, "positive"},
		{"PUT", rowK, strings.Repeat("v", api.MaxValue+1), "", api.CodeTooLarge, "the limit is 1048576 bytes"},
		{"POST", rowK, "v", "", api.CodeMethodNotAllowed, "GET, HEAD, PUT, DELETE"},
		{"GET", "/v1/tables/t/rowz", "", "", api.CodeNotFound, ""},
		{"GET", "/v1/tables/t/row/k", "", "", api.CodeNotFound, ""},
	}
	for _, tt := range tests {
		g := newRig(t)
		w := g.ask(tt.method, tt.target, tt.body, func(r *http.Request) {
			if tt.line != "" {
				header(tt.line)(r)
			}
		})
		if p := problemOf(t, w); p.Code != tt.code || !strings.Contains(p.Detail, tt.detail) {
			t.Errorf("%s %s: %+v, want %s with %q", tt.method, tt.target, p, tt.code, tt.detail)
		}
		if g.req != nil {
			t.Errorf("%s %s was handed down", tt.method, tt.target)
		}
	}
	// Too large without saying so before.
	g := newRig(t)
	w := g.ask("PUT", rowK, strings.Repeat("v", api.MaxValue+1), func(r *http.Request) { r.ContentLength = -1 })
	if p := problemOf(t, w); p.Code != api.CodeTooLarge {
		t.Errorf("%+v", p)
	}
	// Exactly the limit is fine.
	if w := g.ask("PUT", rowK, strings.Repeat("v", api.MaxValue)); w.Code != http.StatusNoContent || len(g.req.Value) != api.MaxValue {
		t.Errorf("%d for a value of the largest size", w.Code)
	}
}

// TestErrorsFromBelow: each code has its status, and routing codes their header.
func TestErrorsFromBelow(t *testing.T) {
	for _, kind := range api.Kinds() {
		g := newRig(t)
		g.err = &api.Error{Code: kind.Code, Message: "so it is", Hint: "do this", RetryAfter: 1100 * time.Millisecond, Owner: "c"}
		w := g.ask("PUT", rowK, "v")
		p := problemOf(t, w)
		want := api.Problem{
			Type: "about:blank", Title: http.StatusText(kind.Status), Status: kind.Status,
			Detail: "so it is", Code: kind.Code, Hint: "do this", Owner: "c",
		}
		if p != want || w.Header().Get("Retry-After") != strconv.Itoa(2) {
			t.Errorf("%+v, %v", p, w.Header())
		}
		if e := g.events(); len(e) != 1 || e[0].Code != kind.Code || e[0].Status != kind.Status || e[0].Route != "/v1/tables/{table}/rows/{key}" || e[0].Method != http.MethodPut {
			t.Errorf("events %+v", e)
		}
	}
}

// TestPrivateCause: an error that is not the API's goes to the log and not to
// the client.
func TestPrivateCause(t *testing.T) {
	g := newRig(t)
	g.err = errors.New("pebble: secret path")
	w := g.ask("GET", rowK, "")
	if p := problemOf(t, w); p.Code != api.CodeInternal || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("%+v", p)
	}
	if !strings.Contains(g.log.String(), "secret path") {
		t.Errorf("log %q", g.log.String())
	}
}

func TestPanic(t *testing.T) {
	g := newRig(t)
	g.panics = true
	w := g.ask("GET", rowK, "")
	if p := problemOf(t, w); p.Code != api.CodeInternal || !strings.Contains(g.log.String(), "for the test") {
		t.Errorf("%+v, log %q", p, g.log.String())
	}
	if n, _ := g.Activity(); n != 0 {
		t.Errorf("%d requests are still in flight", n)
	}
	if len(g.events()) != 1 {
		t.Errorf("events %+v", g.events())
	}
}

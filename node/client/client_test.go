package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/client"
)

// node is a server that answers as the test says and keeps what it was asked.
type node struct {
	*httptest.Server
	mu struct {
		sync.Mutex
		asked []asked
	}
}

type asked struct {
	method, path, query string
	header              http.Header
	body                string
}

// newNode starts a node; answer gets the number of the request, from 0.
func newNode(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) *node {
	t.Helper()
	s := &node{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		n := len(s.mu.asked)
		s.mu.asked = append(s.mu.asked, asked{r.Method, r.URL.EscapedPath(), r.URL.RawQuery, r.Header, string(body)})
		s.mu.Unlock()
		answer(n, w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *node) asked() []asked {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]asked(nil), s.mu.asked...)
}

// gone returns the URL of a port where nobody listens.
func gone(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return "http://" + l.Addr().String()
}

func newClient(t *testing.T, endpoints ...string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Endpoints: endpoints, Timeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func problem(w http.ResponseWriter, code api.Code) {
	k := api.KindOf(code)
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(k.Status)
	_, _ = fmt.Fprintf(w, `{"code":%q,"status":%d,"detail":"it is so","hint":"do this"}`, code, k.Status)
}

// written answers a PUT.
func written(w http.ResponseWriter) {
	w.Header().Set("ETag", api.ETag(api.Version{Table: 2, Index: 18}))
	w.WriteHeader(http.StatusNoContent)
}

// breakOff ends the connection without an answer.
func breakOff(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err == nil {
		_ = conn.Close()
	}
}

func TestNewRefuses(t *testing.T) {
	for _, e := range [][]string{nil, {""}, {"host:8433"}, {"ftp://h"}, {"https://h/path"}, {"https://u@h"}, {"https://h?x=1"}, {"https://"}} {
		if _, err := client.New(client.Options{Endpoints: e}); err == nil {
			t.Errorf("%q was taken", e)
		}
	}
}

func TestRows(t *testing.T) {
	s := newNode(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"2-12"`)
		w.Header().Set(api.HeaderNode, "a")
		w.Header().Set(api.HeaderLag, "3")
		switch r.Method {
		case http.MethodGet:
			_, _ = w.Write([]byte{0, 1, 0xff})
		case http.MethodHead:
			w.Header().Set("Content-Length", "3")
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	})
	c := newClient(t, s.URL+"/")
	key := "a/b %2F é ?#.."
	v, err := c.Put(t.Context(), "t", key, []byte("value"), client.WriteOptions{IfAbsent: true})
	if err != nil || v != (api.Version{Table: 2, Index: 18}) {
		t.Errorf("put: %v, %v", v, err)
	}
	row, err := c.Get(t.Context(), "t", key, client.ReadOptions{Local: true})
	if err != nil || string(row.Value) != "\x00\x01\xff" || row.Version != v || row.Lag != 3 || row.Node != "a" || row.Size != 3 {
		t.Errorf("get: %+v, %v", row, err)
	}
	row, err = c.Head(t.Context(), "t", key, client.ReadOptions{})
	if err != nil || row.Value != nil || row.Size != 3 {
		t.Errorf("head: %+v, %v", row, err)
	}
	if err := c.Delete(t.Context(), "t", key, client.WriteOptions{IfMatch: []api.Version{v, {Table: 2, Index: 19}}, Key: "mine", Position: v}); err != nil {
		t.Errorf("delete: %v", err)
	}
	got := s.asked()
	path := "/v1/tables/t/rows/a%2Fb%20%252F%20%C3%A9%20%3F%23.."
	for i, want := range []asked{{method: "PUT", body: "value"}, {method: "GET", query: "consistency=local"}, {method: "HEAD"}, {method: "DELETE"}} {
		if g := got[i]; g.method != want.method || g.body != want.body || g.query != want.query || g.path != path {
			t.Errorf("request %d is %+v", i, g)
		}
	}
	if h := got[0].header; h.Get("If-None-Match") != "*" || h.Get(api.HeaderIdempotency) == "" {
		t.Errorf("headers of the put: %v", h)
	}
	if h := got[1].header; h.Get(api.HeaderIdempotency) != "" {
		t.Errorf("headers of the get: %v", h)
	}
	if h := got[3].header; h.Get("If-Match") != `"2-12"` || h.Get(api.HeaderIdempotency) != "mine" {
		t.Errorf("headers of the delete: %v", h)
	}
	if d, err := time.ParseDuration(got[0].header.Get(api.HeaderTimeout)); err != nil || d > 5*time.Second || d < 4*time.Second {
		t.Errorf("the server was told to wait %v, %v", d, err)
	}
}

func TestTables(t *testing.T) {
	s := newNode(t, func(n int, w http.ResponseWriter, r *http.Request) {
		table := api.Table{Name: "t", ID: 2, Owner: "a"}
		switch {
		case r.URL.Path == "/v1/tables":
			_ = json.NewEncoder(w).Encode(api.TableList{Tables: []api.Table{table}})
		case r.URL.Path == "/cluster/status":
			_ = json.NewEncoder(w).Encode(api.Status{Cluster: "prod"})
		case r.URL.Path == "/cluster/status/local":
			_ = json.NewEncoder(w).Encode(api.LocalStatus{Node: "a"})
		case r.URL.Path == "/health":
			w.WriteHeader(http.StatusServiceUnavailable)
			_ = json.NewEncoder(w).Encode(api.Health{Status: "unavailable", Reasons: []api.Reason{{Code: "draining"}}})
		case r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		default:
			if n == 0 {
				w.WriteHeader(http.StatusCreated)
			}
			_ = json.NewEncoder(w).Encode(table)
		}
	})
	c, ctx := newClient(t, s.URL), t.Context()
	for _, want := range []bool{true, false} {
		table, created, err := c.PutTable(ctx, "t", api.TableSettings{Replicas: 3})
		if err != nil || table.ID != 2 || created != want {
			t.Errorf("%+v, %v, %v", table, created, err)
		}
	}
	if got := s.asked()[0].body; got != `{"replicas":3}` {
		t.Errorf("the settings were sent as %s", got)
	}
	if table, err := c.Table(ctx, "t"); err != nil || table.Owner != "a" {
		t.Errorf("%+v, %v", table, err)
	}
	if tables, err := c.Tables(ctx); err != nil || len(tables) != 1 {
		t.Errorf("%+v, %v", tables, err)
	}
	if err := c.DropTable(ctx, "t"); err != nil {
		t.Error(err)
	}
	if st, err := c.Status(ctx); err != nil || st.Cluster != "prod" {
		t.Errorf("%+v, %v", st, err)
	}
	if st, err := c.LocalStatus(ctx, s.URL); err != nil || st.Node != "a" {
		t.Errorf("%+v, %v", st, err)
	}
	if h, err := c.Health(ctx, s.URL); err != nil || len(h.Reasons) != 1 {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := c.Health(ctx, gone(t)); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("health of nobody: %v", err)
	}
}

// TestNextEndpoint: an endpoint that is not there costs nothing, and the one
// that answered is asked first from then on.
func TestNextEndpoint(t *testing.T) {
	s := newNode(t, func(_ int, w http.ResponseWriter, _ *http.Request) { written(w) })
	c := newClient(t, gone(t), gone(t), s.URL)
	for range 2 {
		if _, err := c.Put(t.Context(), "t", "k", nil, client.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEndpointThatStandsStill: one that takes connections and says nothing leaves those
// after it the time to answer what may be asked twice.
func TestEndpointThatStandsStill(t *testing.T) {
	still := newNode(t, func(_ int, _ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := newNode(t, func(_ int, w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") })
	c, err := client.New(client.Options{Endpoints: []string{still.URL, still.URL, s.URL}, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, err = c.FreshStatus(t.Context()); err != nil {
		t.Error(err)
	}
	c, err = client.New(client.Options{Endpoints: []string{still.URL, s.URL}, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, err = c.ChangeRoll(t.Context(), api.RollNote, 1, api.RollChange{}); err != nil { // twice is once
		t.Error(err)
	}
	alone, err := client.New(client.Options{Endpoints: []string{still.URL, still.URL}, Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(alone.Close)
	if _, err = alone.FreshStatus(t.Context()); !errors.Is(err, client.ErrUnreachable) || errors.Is(err, client.ErrTLS) ||
		!strings.Contains(err.Error(), "no answer within 50ms") {
		t.Errorf("all stand still: %v", err)
	}
}

func TestUnreachable(t *testing.T) {
	one, two := gone(t), gone(t)
	c := newClient(t, one, two)
	start := time.Now()
	_, err := c.Put(t.Context(), "t", "k", nil, client.WriteOptions{})
	if !errors.Is(err, client.ErrUnreachable) || !strings.Contains(err.Error(), one) || !strings.Contains(err.Error(), two) {
		t.Errorf("error %v, want one that names both endpoints", err)
	}
	if errors.Is(err, client.ErrTLS) || api.CodeOf(err) != "" {
		t.Errorf("error %v", err)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("it took %v to find that nobody is there", took)
	}
}

// TestResends has a row for each way in which an attempt can end.
func TestResends(t *testing.T) {
	t.Parallel()
	put := func(ctx context.Context, c *client.Client) error {
		_, err := c.Put(ctx, "t", "k", []byte("v"), client.WriteOptions{})
		return err
	}
	drop := func(ctx context.Context, c *client.Client) error { return c.DropTable(ctx, "t") }
	list := func(ctx context.Context, c *client.Client) error { _, err := c.Tables(ctx); return err }
	broken := func(w http.ResponseWriter) { breakOff(w) }
	code := func(code api.Code) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { problem(w, code) }
	}
	tests := []struct {
		name  string
		do    func(context.Context, *client.Client) error
		first func(http.ResponseWriter)
		want  api.Code
		asks  int
	}{
		{"a write broke off", put, broken, "", 2},
		{"a drop broke off", drop, broken, api.CodeOutcomeUnknown, 1},
		{"a read broke off", list, broken, "", 2},
		{"no owner", put, code(api.CodeNoOwner), "", 2},
		{"stale owner", drop, code(api.CodeStaleOwner), "", 2},
		{"too many", put, code(api.CodeTooMany), "", 2},
		{"outcome of a write unknown", put, code(api.CodeOutcomeUnknown), "", 2},
		{"outcome of a drop unknown", drop, code(api.CodeOutcomeUnknown), api.CodeOutcomeUnknown, 1},
		{"internal", put, code(api.CodeInternal), api.CodeInternal, 1},
		{"precondition failed", put, code(api.CodePreconditionFailed), api.CodePreconditionFailed, 1},
		{"forbidden", list, code(api.CodeForbidden), api.CodeForbidden, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			answer := func(n int, w http.ResponseWriter, r *http.Request) {
				switch {
				case n == 0:
					tt.first(w)
				case r.Method == http.MethodGet:
					_, _ = io.WriteString(w, `{"tables":[]}`)
				default:
					written(w)
				}
			}
			s := newNode(t, answer)
			// The same node twice: the second attempt goes to another endpoint.
			c := newClient(t, s.URL, strings.Replace(s.URL, "127.0.0.1", "localhost", 1))
			err := tt.do(t.Context(), c)
			if api.CodeOf(err) != tt.want || tt.want == "" && err != nil {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			got := s.asked()
			if len(got) != tt.asks {
				t.Fatalf("asked %d times, want %d", len(got), tt.asks)
			}
			if len(got) == 2 && got[0].header.Get(api.HeaderIdempotency) != got[1].header.Get(api.HeaderIdempotency) {
				t.Error("the second attempt has another Idempotency-Key")
			}
		})
	}
}

// TestDoubtStays: a write that may have been applied does not end as one that
// certainly was not.
func TestDoubtStays(t *testing.T) {
	s := newNode(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 0 {
			problem(w, api.CodeOutcomeUnknown)
			return
		}
		problem(w, api.CodeNoOwner)
	})
	c, err := client.New(client.Options{Endpoints: []string{s.URL}, Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Put(t.Context(), "t", "k", nil, client.WriteOptions{})
	if api.CodeOf(err) != api.CodeOutcomeUnknown || len(s.asked()) < 3 {
		t.Errorf("error %v after %d attempts", err, len(s.asked()))
	}
}

// TestDoubtIsWorthTheTime: where nobody answers, a read ends soon, and a write
// that may have been applied goes on until it is known.
func TestDoubtIsWorthTheTime(t *testing.T) {
	s := newNode(t, func(n int, w http.ResponseWriter, r *http.Request) {
		if n < 3 || r.Method == http.MethodGet {
			breakOff(w)
			return
		}
		written(w)
	})
	c := newClient(t, s.URL)
	if _, err := c.Put(t.Context(), "t", "k", nil, client.WriteOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := c.Tables(t.Context()); !errors.Is(err, client.ErrUnreachable) {
		t.Errorf("error %v", err)
	}
}

func TestRetryAfter(t *testing.T) {
	s := newNode(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 0 {
			w.Header().Set("Retry-After", "1")
			problem(w, api.CodeTooMany)
			return
		}
		written(w)
	})
	start := time.Now()
	if _, err := newClient(t, s.URL).Put(t.Context(), "t", "k", nil, client.WriteOptions{}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < time.Second {
		t.Errorf("sent again after %v, although told to wait 1 s", took)
	}
	// A wait past the end of the time is not begun.
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	start = time.Now()
	s2 := newNode(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "7")
		problem(w, api.CodeNoOwner)
	})
	_, err := newClient(t, s2.URL).Table(ctx, "t")
	var e *api.Error
	if !errors.As(err, &e) || e.Code != api.CodeNoOwner || e.RetryAfter != 7*time.Second || e.Hint != "do this" || time.Since(start) > 400*time.Millisecond {
		t.Errorf("%#v after %v", err, time.Since(start))
	}
}

func TestNotTidal(t *testing.T) {
	s := newNode(t, func(_ int, w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "nginx", http.StatusBadGateway)
	})
	_, err := newClient(t, s.URL).Tables(t.Context())
	if err == nil || api.CodeOf(err) != "" || !strings.Contains(err.Error(), "nginx") || !strings.Contains(err.Error(), s.URL) {
		t.Errorf("error %v", err)
	}
}

func TestHeadErrors(t *testing.T) {
	for _, code := range []api.Code{api.CodeRowNotFound, api.CodeForbidden, api.CodeBadRequest} {
		s := newNode(t, func(_ int, w http.ResponseWriter, _ *http.Request) { problem(w, code) })
		if _, err := newClient(t, s.URL).Head(t.Context(), "t", "k", client.ReadOptions{}); api.CodeOf(err) != code {
			t.Errorf("error %v, want %s", err, code)
		}
	}
}

func TestCanceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s := newNode(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	})
	if _, err := newClient(t, s.URL).Tables(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

package proctest_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"tidal/node/api"
)

// lies are what a fake cluster gets wrong. Each count means every so many rows.
type lies struct {
	lose    int  // acknowledged, not stored
	double  int  // stored again after the answer, so with another version
	resend  int  // applied twice, and answered by the second try
	garble  int  // stored with another value
	hide    int  // never there on n2's own replica
	invent  int  // rows that nobody sent
	refuse  int  // answered 503
	apply   bool // what is refused is stored nevertheless
	hang    int  // applied, then the connection breaks
	differ  bool // n3's replica says otherwise about those
	lag     time.Duration
	sick    bool // n1 is not healthy
	receive func(key string)
}

// fake is a cluster of three in one process, with one map for its rows.
type fake struct {
	lies
	mu struct {
		sync.Mutex
		index int
		rows  map[string]fakeRow
	}
}

type fakeRow struct {
	value string
	etag  string
	since time.Time
	n     int // which row this is
	hung  bool
}

// targets starts the fake's three servers.
func (f *fake) targets(t *testing.T) []target {
	t.Helper()
	f.mu.rows = map[string]fakeRow{}
	var ts []target
	for i := range 3 {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { f.serve(i, w, r) }))
		t.Cleanup(s.Close)
		ts = append(ts, target{name: fmt.Sprintf("n%d", i+1), base: s.URL})
	}
	return ts
}

func (f *fake) serve(node int, w http.ResponseWriter, r *http.Request) {
	switch {
	case r.URL.Path == "/health":
		f.mu.Lock()
		sick := f.sick && node == 0
		f.mu.Unlock()
		if sick {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	case r.Method == http.MethodPut:
		f.put(w, r)
	default:
		f.get(node, w, r)
	}
}

func every(n, each int) bool { return each > 0 && n%each == 0 }

func problem(w http.ResponseWriter, code api.Code, detail string) {
	k := api.KindOf(code)
	if k.Route {
		w.Header().Set(api.HeaderRouteError, string(code))
	}
	w.WriteHeader(k.Status)
	if err := json.NewEncoder(w).Encode(api.Problem{Status: k.Status, Code: code, Detail: detail}); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func (f *fake) put(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.receive != nil {
		f.receive(r.URL.Path)
	}
	f.mu.index++
	n := f.mu.index
	row := fakeRow{value: string(body), etag: fmt.Sprintf(`"2-%x"`, n), since: time.Now().Add(f.lag), n: n}
	if every(n, f.garble) {
		row.value = "x" + row.value[1:]
	}
	if every(n, f.refuse) {
		if f.apply {
			f.mu.rows[r.URL.Path] = row
		}
		problem(w, api.CodeNoOwner, fmt.Sprintf("table has had no owner for %d.5s", n))
		return
	}
	if every(n, f.hang) {
		row.hung = true
		f.mu.rows[r.URL.Path] = row
		panic(http.ErrAbortHandler)
	}
	if every(n, f.resend) {
		problem(w, api.Code("precondition-failed"), "the row is there")
		return
	}
	w.Header().Set("ETag", row.etag)
	w.WriteHeader(http.StatusNoContent)
	if every(n, f.double) {
		row.etag += "again"
	}
	if !every(n, f.lose) {
		f.mu.rows[r.URL.Path] = row
	}
}

func (f *fake) get(node int, w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	local := r.URL.Query().Get("consistency") == "local"
	row, found := f.mu.rows[r.URL.Path]
	if !found && f.invent > 0 {
		f.invent--
		table, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/v1/tables/"), "/rows/")
		row, found = fakeRow{value: string(rowValue(table, key)), etag: `"2-0"`}, true
	}
	if local && (every(row.n, f.hide) && node == 1 || row.hung && f.differ && node == 2 || time.Now().Before(row.since)) {
		found = false
	}
	if !found {
		problem(w, api.CodeRowNotFound, "no such row")
		return
	}
	w.Header().Set("ETag", row.etag)
	_, _ = io.WriteString(w, row.value)
}

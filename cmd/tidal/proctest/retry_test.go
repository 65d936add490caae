package proctest_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"tidal/node/api"
)

// TestRetryKeyed sends writes again as a client does that lost an answer: by
// another node, with the same Idempotency-Key.
func TestRetryKeyed(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{})
	c.startAll(t)
	c.createTables(t, 1)
	const row = "/v1/tables/t0/rows/order-17"
	keyed := map[string]string{api.HeaderIdempotency: "order-17-first"}

	first := c.must(t, 0, http.MethodPut, row, "one", keyed)
	if first.status/100 != 2 || first.header.Get("ETag") == "" {
		t.Fatalf("first: %s, ETag %q", first, first.header.Get("ETag"))
	}
	same := func(i int, when string) {
		t.Helper()
		a := c.must(t, i, http.MethodPut, row, "one", keyed)
		if a.status != first.status || a.header.Get("ETag") != first.header.Get("ETag") {
			t.Errorf("%s: %s, ETag %s; the first answer was %s, ETag %s", when, a, a.header.Get("ETag"), first, first.header.Get("ETag"))
		}
	}
	same(1, "again, by n2")
	same(2, "again, by n3")

	other := c.must(t, 1, http.MethodPut, row, "two", keyed)
	var p api.Problem
	if err := json.Unmarshal(other.body, &p); err != nil || other.status != http.StatusUnprocessableEntity || p.Code != api.CodeIDReused {
		t.Errorf("the same Idempotency-Key with another body: %s, want 422 %s", other, api.CodeIDReused)
	}

	second := c.must(t, 2, http.MethodPut, row, "three", nil)
	if second.status/100 != 2 {
		t.Fatalf("another write: %s", second)
	}
	same(1, "again, after another write")
	for i := range c.nodes {
		got := c.must(t, i, http.MethodGet, row, "", nil)
		if string(got.body) != "three" || got.header.Get("ETag") != second.header.Get("ETag") {
			t.Errorf("n%d: %s, ETag %s: want three, ETag %s", i+1, got, got.header.Get("ETag"), second.header.Get("ETag"))
		}
	}
}

package node_test

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"testing"

	"tidal/node/api"
)

// TestCutRequestCounts: a request that a stopping node breaks off, after all its patience,
// is among the refused of the run before, as the next one shows it.
func TestCutRequestCounts(t *testing.T) {
	c := newTrio(t, "a")
	c.start("a")
	c.ready("a")
	c.tableOfOne("a")
	conn, err := net.Dial("tcp", c.ports["a"])
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "PUT /v1/tables/t/rows/k HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n")
	if _, err := io.ReadFull(conn, make([]byte, len("HTTP/1.1 100"))); err != nil {
		t.Fatal(err) // the request has not come
	}
	c.leave("a")
	c.start("a")
	c.ready("a")
	var got api.RequestReport
	_, body, _ := c.do(http.MethodGet, "a", "/v1/node/requests", nil)
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	if got.Before == nil || got.Before.Total.RefusedSum() != 1 || got.Before.Total.Refused["cut"] != 1 {
		t.Errorf("%s", body)
	}
}

package roll_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"tidal/node/api"
	"tidal/node/client"
	"tidal/roll"
)

// loneNode is a cluster of node a, of which tables says what there is and local what it
// holds, each time that it is asked.
func loneNode(t *testing.T, tables func() []api.Table, local []api.LocalTable) *roll.Tidal {
	t.Helper()
	run, err := api.ParseIncarnation("a.1.00000001")
	if err != nil {
		t.Fatal(err)
	}
	var address string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch r.URL.Path {
		case "/cluster/status":
			answer = api.Status{
				Members: []api.Member{{Node: "a", Address: address, Voter: true, Lease: &api.Lease{Incarnation: run, Address: address}}},
				Tables:  tables(),
			}
		case "/cluster/status/local":
			answer = api.LocalStatus{Node: "a", Incarnation: run, Tables: local}
		default:
			answer = api.Health{Status: "ok", Node: "a"}
		}
		_ = json.NewEncoder(w).Encode(answer) // the client sees what it gets
	}))
	t.Cleanup(srv.Close)
	address = srv.URL
	cl, err := client.New(client.Options{Endpoints: []string{srv.URL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &roll.Tidal{Client: cl}
}

// oneTable is table t, with its one replica on node a.
func oneTable(owner string) []api.Table {
	return []api.Table{{Name: "t", ID: 1, Owner: owner, Replicas: []api.Replica{{Node: "a", Voter: true}}}}
}

// TestViewOfATableOnItsWay: a table that goes from one node to another while the cluster is
// looked at, so that its owner of a moment ago owns it no more, has level replicas all the
// same; one that nobody owns has none.
func TestViewOfATableOnItsWay(t *testing.T) {
	for _, comes := range []bool{true, false} {
		var looks atomic.Int64
		c := loneNode(t, func() []api.Table {
			if looks.Add(1) > 1 && comes {
				return oneTable("a")
			}
			return oneTable("b")
		}, []api.LocalTable{{Name: "t", ID: 1, Owns: comes, Commit: 7, Applied: 7}})
		v, err := c.View(t.Context())
		if err != nil || len(v.Tables) != 1 || len(v.Tables[0].Replicas) != 1 {
			t.Fatalf("%+v, %v", v, err)
		}
		if got := v.Tables[0]; got.Replicas[0].Level != comes || comes && got.Owner != "a" {
			t.Errorf("it comes to a: %t, and is seen as %+v", comes, got)
		}
	}
}

// TestViewWithoutTime: when the time of a look is over, nothing is said of the nodes that
// there was no time for: a node that answered a moment before is not silent.
func TestViewWithoutTime(t *testing.T) {
	for _, looks := range []int64{0, 1} {
		ctx, cancel := context.WithCancel(t.Context())
		var asked atomic.Int64
		c := loneNode(t, func() []api.Table {
			if asked.Add(1) > looks {
				cancel()
			}
			return oneTable("b")
		}, []api.LocalTable{{Name: "t", ID: 1}})
		v, err := c.View(ctx)
		switch {
		case looks == 0 && err == nil:
			t.Errorf("without the time to ask any node: %+v", v)
		case looks == 1 && (err != nil || v.Nodes[0].Silent != "" || len(v.Tables) != 1):
			t.Errorf("without the time for a second look: %+v, %v", v, err)
		}
		cancel()
	}
}

// TestRequestsBeforeAView: who resumes a roll counts from the beginning, and has not looked
// at the cluster before.
func TestRequestsBeforeAView(t *testing.T) {
	c := loneNode(t, func() []api.Table { return nil }, nil)
	if r, err := c.Requests(t.Context(), "a"); err != nil || r.Node != "a" {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := c.Requests(t.Context(), "z"); err == nil {
		t.Error("a node that is not there counts")
	}
}

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

// TestViewOfATableOnItsWay: a table that goes from one node to another while the cluster is
// looked at, so that its owner of a moment ago owns it no more, has level replicas all the
// same; one that nobody owns has none.
func TestViewOfATableOnItsWay(t *testing.T) {
	for _, comes := range []bool{true, false} {
		var looks atomic.Int64
		run, err := api.ParseIncarnation("a.1.00000001")
		if err != nil {
			t.Fatal(err)
		}
		table := api.TableID(1)
		var address string
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var answer any
			switch r.URL.Path {
			case "/cluster/status":
				owner := "b"
				if looks.Add(1) > 1 && comes {
					owner = "a"
				}
				answer = api.Status{
					Members: []api.Member{{Node: "a", Address: address, Voter: true, Lease: &api.Lease{Incarnation: run, Address: address}}},
					Tables:  []api.Table{{Name: "t", ID: table, Owner: owner, Replicas: []api.Replica{{Node: "a", Voter: true}}}},
				}
			case "/cluster/status/local":
				answer = api.LocalStatus{Node: "a", Incarnation: run, Tables: []api.LocalTable{{Name: "t", ID: table, Owns: comes, Commit: 7, Applied: 7}}}
			default:
				answer = api.Health{Status: "ok", Node: "a"}
			}
			_ = json.NewEncoder(w).Encode(answer) // the client sees what it gets
		}))
		defer srv.Close()
		address = srv.URL
		cl, err := client.New(client.Options{Endpoints: []string{srv.URL}})
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		v, err := (&roll.Tidal{Client: cl}).View(t.Context())
		if err != nil || len(v.Tables) != 1 || len(v.Tables[0].Replicas) != 1 {
			t.Fatalf("%+v, %v", v, err)
		}
		if got := v.Tables[0]; got.Replicas[0].Level != comes || comes && got.Owner != "a" {
			t.Errorf("it comes to a: %t, and is seen as %+v", comes, got)
		}
	}
}

// TestViewWithoutTime: when the time of a look is over, nothing is said of the nodes that
// there was no time for: a node that answers a moment before is not silent.
func TestViewWithoutTime(t *testing.T) {
	for _, looks := range []int64{0, 1} {
		var asked atomic.Int64
		run, err := api.ParseIncarnation("a.1.00000001")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var address string
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var answer any
			switch r.URL.Path {
			case "/cluster/status":
				if asked.Add(1) > looks {
					cancel()
				}
				answer = api.Status{
					Members: []api.Member{{Node: "a", Address: address, Voter: true, Lease: &api.Lease{Incarnation: run, Address: address}}},
					Tables:  []api.Table{{Name: "t", ID: 1, Owner: "b", Replicas: []api.Replica{{Node: "a", Voter: true}}}},
				}
			case "/cluster/status/local":
				answer = api.LocalStatus{Node: "a", Incarnation: run, Tables: []api.LocalTable{{Name: "t", ID: 1}}}
			default:
				answer = api.Health{Status: "ok", Node: "a"}
			}
			_ = json.NewEncoder(w).Encode(answer) // the client sees what it gets
		}))
		defer srv.Close()
		address = srv.URL
		cl, err := client.New(client.Options{Endpoints: []string{srv.URL}})
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		v, err := (&roll.Tidal{Client: cl}).View(ctx)
		switch {
		case looks == 0 && err == nil:
			t.Errorf("without the time to ask any node: %+v", v)
		case looks == 1 && (err != nil || v.Nodes[0].Silent != "" || len(v.Tables) != 1):
			t.Errorf("without the time for a second look: %+v, %v", v, err)
		}
	}
}

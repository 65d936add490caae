package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"tidal/node/api"
	"tidal/node/client"
)

// TestAwaitRefused asks a node that has not heard yet what was decided: its short
// list, which every node refuses, is not the end.
func TestAwaitRefused(t *testing.T) {
	const serial = "00112233445566778899aabbccddeeff"
	lists, asked := 0, 0
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/certs/revoked", func(w http.ResponseWriter, _ *http.Request) {
		var list api.RevocationList
		if lists++; lists > 2 {
			list.Revoked = []api.Revocation{{Serial: serial}}
		}
		_ = json.NewEncoder(w).Encode(list)
	})
	mux.HandleFunc("GET /v1/nodes", func(w http.ResponseWriter, _ *http.Request) {
		n := api.Node{Member: api.Member{Node: "a", Live: true}, Certificates: &api.Certificates{}}
		if asked++; asked > 2 {
			n.Certificates.Revoked = 1
		}
		_ = json.NewEncoder(w).Encode(api.NodeList{Nodes: []api.Node{n}})
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	cl, err := client.New(client.Options{Endpoints: []string{srv.URL}})
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err = awaitRefused(t.Context(), cl, serial); err != nil || lists < 3 || asked < 3 {
		t.Errorf("%v after %d lists and %d looks at the nodes", err, lists, asked)
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
	"tidal/roll"
)

// machine is the cluster of node a, which runs 1.0, and at whose path something stands.
type machine struct {
	installed *api.Program
	silent    bool     // it does not say what stands there
	refuses   string   // what the check of that says; "": it could run the node
	checked   []string // by hash
}

func (m *machine) serve(w http.ResponseWriter, r *http.Request) {
	run := api.Incarnation{Node: "a", Start: 1, Suffix: 1}
	address := "http://" + r.Host
	var answer any = api.Health{Status: "ok", Node: "a"}
	switch r.Method + " " + r.URL.Path {
	case "GET /cluster/status":
		answer = api.Status{Cluster: "prod", Members: []api.Member{
			{Node: "a", Address: address, Voter: true, Lease: &api.Lease{Incarnation: run, Address: address, Version: "1.0"}},
		}}
	case "GET /cluster/status/local":
		answer = api.LocalStatus{Node: "a", Incarnation: run}
	case "GET /v1/node/binary":
		answer = api.Programs{Node: "a", Running: api.Program{SHA256: "old", Path: "/bin/tidal", Release: api.Release{Version: "1.0"}}, Installed: m.installed}
		if m.silent {
			w.WriteHeader(http.StatusConflict)
			answer = api.Problem{Code: api.CodeConflict, Detail: "it takes no binaries"}
		}
	case "POST /v1/node/binary":
		var c api.ProgramCheck
		_ = json.NewDecoder(r.Body).Decode(&c) // an empty hash is seen
		m.checked, answer = append(m.checked, c.SHA256), m.installed
		if m.refuses != "" {
			w.WriteHeader(http.StatusConflict)
			answer = api.Problem{Code: api.CodeCheckFailed, Detail: m.refuses}
		}
	}
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		panic(http.ErrAbortHandler) // the client sees that
	}
}

// upgradeTo plans a roll of a machine to version 1.1, and stages it.
func upgradeTo(t *testing.T, m *machine, o roll.Options) (checks []roll.Check, said string, err error) {
	t.Helper()
	srv := httptest.NewServer(http.HandlerFunc(m.serve))
	t.Cleanup(srv.Close)
	cl, err := client.New(client.Options{Endpoints: []string{srv.URL}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	var talk bytes.Buffer
	w := &rolling{app: &app{stderr: &talk}, tidal: &roll.Tidal{Client: cl}}
	o.Version, o.AllowUnavailable = "1.1", true
	p, err := w.plan(t.Context(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	err = w.stage(&cli.Context{Context: t.Context()}, p, nil)
	return p.Checks, talk.String(), err
}

// TestUpgradeToIsChecked: what stands at a node's path is tried there before any node is
// stopped; where that is not known it is said.
func TestUpgradeToIsChecked(t *testing.T) {
	newer := func() *api.Program {
		return &api.Program{SHA256: "new", Path: "/bin/tidal", Release: api.Release{Version: "1.1"}}
	}
	for _, tc := range []struct {
		name    string
		m       machine
		checked []string
		says    string
		err     string
	}{
		{"it can run the node", machine{installed: newer()}, []string{"new"}, "node a: 1.1 is there already, and can run it", ""},
		{"it cannot", machine{installed: newer(), refuses: "node.zoen is not known"}, []string{"new"}, "", "no node was stopped: node a: node.zoen is not known"},
		{"another was put there", machine{installed: &api.Program{Release: api.Release{Version: "1.2"}, Path: "/bin/tidal"}}, nil, "", "node a: it has 1.2 at /bin/tidal, and 1.1 is wanted"},
		{"it does not say", machine{silent: true}, nil, "node a: what stands at its path is not checked: it takes no binaries", ""},
	} {
		_, said, err := upgradeTo(t, &tc.m, roll.Options{Driver: roll.DriverInPlace})
		if !slices.Equal(tc.m.checked, tc.checked) || !strings.Contains(said, tc.says) {
			t.Errorf("%s: checked is %v, and said %q", tc.name, tc.m.checked, said)
		}
		if (err == nil) != (tc.err == "") || err != nil && (!strings.Contains(err.Error(), tc.err) || codeOf(err) != exitRefused) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.err)
		}
	}
}

// TestUpgradeToByOthers: what restarts a node from outside may bring the binary too: that
// it is not there yet is a warning, and blocks only nodes that restart themselves.
func TestUpgradeToByOthers(t *testing.T) {
	for driver, want := range map[string]roll.Level{roll.DriverInPlace: roll.Block, roll.DriverExec: roll.Warn, roll.DriverManual: roll.Warn} {
		older := &machine{installed: &api.Program{SHA256: "old", Path: "/bin/tidal", Release: api.Release{Version: "1.0"}}}
		checks, _, err := upgradeTo(t, older, roll.Options{Driver: driver, Command: "true"})
		at := slices.IndexFunc(checks, func(c roll.Check) bool { return c.Name == "binary" })
		if at < 0 || checks[at].Level != want || !strings.Contains(checks[at].Detail, "node a has 1.0 at /bin/tidal, and 1.1 is wanted") {
			t.Errorf("%s: %+v, want %s", driver, checks, want)
		}
		if driver != roll.DriverInPlace && (err != nil || len(older.checked) > 0) {
			t.Errorf("%s: checked is %v: %v", driver, older.checked, err)
		}
		if kill := slices.ContainsFunc(checks, func(c roll.Check) bool { return c.Name == "kill-time" }); kill != (driver == roll.DriverExec) {
			t.Errorf("%s: asked for its time to end: %t", driver, kill)
		}
	}
}

package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"tidal/node/api"
)

// fakeNode answers like a node that has one table, and one row in it.
type fakeNode struct {
	*httptest.Server
	status api.Status
	asked  []string // "METHOD path?query body"
}

// checkedTable is a table whose second replica is in the state of its name.
func checkedTable(state string) api.TableCheck {
	hash := "0123456789abcdef0123456789abcdef"
	c := api.TableCheck{Table: state, ID: 2, Position: "2-12", Replicas: []api.CheckedReplica{
		{Node: "a", ID: "1", State: api.ReplicaSame, Hash: hash}, {Node: "b", ID: "2", State: api.ReplicaState(state), Hash: hash},
	}}
	if b := &c.Replicas[1]; b.State == api.ReplicaUnchecked {
		b.Hash, b.Why = "", "it cannot be reached"
	}
	return c
}

// conditionsOf returns the conditions of a write, and its key if it was chosen.
func conditionsOf(r *http.Request) string {
	s := ""
	if v := r.Header["If-Match"]; len(v) > 0 {
		s += " if-match " + strings.Join(v, ",")
	}
	if v := r.Header["If-None-Match"]; len(v) > 0 {
		s += " if-none-match " + strings.Join(v, ",")
	}
	if k := r.Header.Get(api.HeaderIdempotency); k != "" && len(k) < 10 {
		s += " key " + k
	}
	return s
}

func newFakeNode(t *testing.T) *fakeNode {
	t.Helper()
	lag := int64(3)
	table := api.Table{Name: "t", ID: 2, Owner: "a", Place: "b", Term: 4, Replicas: []api.Replica{
		{Node: "a", ID: "11", Voter: true, Live: true}, {Node: "b", ID: "12", Live: true, Lag: &lag},
	}}
	n := &fakeNode{status: api.Status{
		Cluster: "prod", Node: "a", MetaLeader: "a", MetaTerm: 7, Tables: []api.Table{table},
		Members: []api.Member{
			{Node: "a", Voter: true, Live: true, Lease: &api.Lease{
				Node: "a", Address: "https://10.0.0.1:8433", Version: "v1", Zone: "z1", Incarnation: api.Incarnation{Node: "a", Start: 17},
			}},
			{Node: "b", Live: true, Lease: &api.Lease{Draining: true}},
		},
	}}
	n.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		n.asked = append(n.asked, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+string(body))+conditionsOf(r))
		w.Header().Set(api.HeaderNode, "a")
		w.Header().Set("ETag", `"2-12"`)
		switch {
		case strings.HasSuffix(r.URL.Path, "/none"):
			w.WriteHeader(http.StatusNotFound)
			_ = json.NewEncoder(w).Encode(api.Problem{Code: api.CodeRowNotFound, Detail: "there is no row"})
		case strings.HasSuffix(r.URL.Path, "/check"):
			_ = json.NewEncoder(w).Encode(checkedTable(strings.Split(r.URL.Path, "/")[3]))
		case strings.HasSuffix(r.URL.Path, "/other"):
			w.WriteHeader(http.StatusPreconditionFailed)
			_ = json.NewEncoder(w).Encode(api.Problem{Code: api.CodePreconditionFailed, Detail: `the row's version is "2-12"`})
		case strings.HasSuffix(r.URL.Path, "/text"):
			w.Header().Set(api.HeaderLag, "5")
			_, _ = io.WriteString(w, "hé llo")
		case strings.Contains(r.URL.Path, "/rows/") && r.Method == http.MethodGet:
			w.Header().Set(api.HeaderLag, "5")
			_, _ = w.Write([]byte{0, 0xff, '\n'})
		case strings.Contains(r.URL.Path, "/rows/") && r.Method == http.MethodHead:
			w.Header().Set("Content-Length", "77")
			w.Header().Set(api.HeaderOwner, "b")
		case r.URL.Path == "/v1/nodes/c/replace":
			w.WriteHeader(http.StatusConflict)
			_ = json.NewEncoder(w).Encode(api.Problem{Code: api.CodeConflict, Detail: "node c is alive"})
		case strings.Contains(r.URL.Path, "/rows/"), strings.HasSuffix(r.URL.Path, "/replace"), r.Method == http.MethodDelete:
			w.WriteHeader(http.StatusNoContent)
		case r.URL.Path == "/v1/tables":
			_ = json.NewEncoder(w).Encode(api.TableList{Tables: n.status.Tables})
		case r.URL.Path == "/v1/nodes":
			_ = json.NewEncoder(w).Encode(api.NodeList{Nodes: []api.Node{
				{Member: n.status.Members[0], Owned: 1, Leads: true, Phase: "serving"},
				{Member: n.status.Members[1], Silent: "it did not answer in time", Claim: &api.Claim{By: "ann", Epoch: 4, EndsIn: "9s"}},
			}})
		case strings.HasPrefix(r.URL.Path, "/v1/nodes/b/"):
			w.WriteHeader(http.StatusConflict)
			code := api.CodeClaimed
			if strings.HasSuffix(r.URL.Path, "/restart") {
				code = api.CodeCheckFailed
			}
			_ = json.NewEncoder(w).Encode(api.Problem{Code: code, Detail: "no"})
		case strings.HasPrefix(r.URL.Path, "/v1/nodes/a/"):
			_ = json.NewEncoder(w).Encode(api.NodeReport{
				Node: "a", Phase: "serving", Draining: true, Incarnation: api.Incarnation{Node: "a", Start: 17},
				Claim: &api.Claim{By: "me", Epoch: 3, EndsIn: "10m0s"},
			})
		case r.URL.Path == "/cluster/status":
			_ = json.NewEncoder(w).Encode(n.status)
		default:
			if r.Method == http.MethodPut {
				w.WriteHeader(http.StatusCreated)
			}
			_ = json.NewEncoder(w).Encode(table)
		}
	}))
	t.Cleanup(n.Close)
	return n
}

// tidal runs a command line against the node.
func (n *fakeNode) tidal(t *testing.T, stdin string, words ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, talk bytes.Buffer
	args := append([]string{"tidal"}, words...)
	args = append(args, "--endpoint", n.URL)
	code = run(t.Context(), args, strings.NewReader(stdin), &out, &talk, func(string) (string, bool) { return "", false })
	return code, out.String(), talk.String()
}

// TestClusterCommands runs each command that talks to a cluster: what it sends,
// what it prints where, and how it ends. (urfave/cli keeps its help flag in a
// variable, so command lines cannot run in parallel in one process.)
func TestClusterCommands(t *testing.T) {
	const says = "cluster http://"
	tests := []struct {
		line, stdin string
		asks        string // "": nothing is asked
		code        exitCode
		stdout      string // exactly, if it ends with a newline or is empty; else a part
		stderr      string // a part
	}{
		{line: "tables list", asks: "GET /v1/tables", stdout: "TABLE  OWNER  PLACE  TERM  REPLICAS\nt      a      b      4     a,b\n"},
		{line: "tables list -o json", asks: "GET /v1/tables", stdout: `"id": "0000000000000002"`},
		{line: "tables create t --replicas 2", asks: `PUT /v1/tables/t {"replicas":2}`, stdout: "t      a      b      4     a,b", stderr: says},
		{line: "tables create t", asks: `PUT /v1/tables/t {}`, stdout: "TABLE", stderr: "table t is created"},
		{line: "tables create t -o json", asks: `PUT /v1/tables/t {}`, stdout: `"owner": "a"`, stderr: says},
		{line: "tables create T", code: exitUsage, stderr: `table name "T"`},
		{line: "tables create t --replicas 8", code: exitUsage, stderr: "want 1 to 7"},
		{line: "tables create", code: exitUsage, stderr: "argument NAME is missing"},
		{line: "tables describe t", asks: "GET /v1/tables/t", stdout: "\n12       b     false  true  3"},
		{line: "tables describe t -o json", asks: "GET /v1/tables/t", stdout: `"term": 4`},
		{
			line: "tables move t --from a --to b --no-wait", asks: `POST /v1/tables/t/replicas {"from":"a","to":"b"}`,
			stdout: "TABLE  OWNER  PLACE  TERM  REPLICAS\nt      a      b      4     a,b\n", stderr: says,
		},
		{
			line: "tables move t --from c --to a", asks: `POST /v1/tables/t/replicas {"from":"c","to":"a"}`,
			stdout: "t      a      b      4     a,b", stderr: "table t: the replica is on a",
		},
		{
			line: "tables move t --from a --to b --timeout 1ms", asks: `POST /v1/tables/t/replicas {"from":"a","to":"b"}`,
			code: exitNotReady, stderr: "is not on b within 1ms: the replica on b lacks 3 entries\nhint: it goes on: tidal tables describe t",
		},
		{line: "tables move t --from a", code: exitUsage, stderr: `--to is "": want a node id`},

		{line: "node replace b", stdin: "b\n", asks: "POST /v1/nodes/b/replace", stderr: "node b is let in with an empty disk"},
		{line: "node replace b", stdin: "y\n", code: exitRefused, stderr: "not confirmed"},
		{line: "node replace b --yes", asks: "POST /v1/nodes/b/replace", stderr: says},
		{line: "node replace c --yes", asks: "POST /v1/nodes/c/replace", code: exitRefused, stderr: "node c is alive (conflict)"},
		{line: "node replace B", code: exitUsage, stderr: `"B" is no node id`},

		{
			line: "tables check same", asks: "POST /v1/tables/same/check",
			stdout: "NODE  REPLICA  STATE  HASH              WHY\na     1        same   0123456789abcdef  -\nb     2        same   0123456789abcdef  -\n",
		},
		{line: "tables check same -o json", asks: "POST /v1/tables/same/check", stdout: `"position": "2-12"`},
		{
			line: "tables check differs", asks: "POST /v1/tables/differs/check", stdout: "b     2        differs  0123456789abcdef",
			code: exitFailed, stderr: "tidal: 1 of the 2 replicas of table differs differ at 2-12\nhint: a replica that differs",
		},
		{
			line: "tables check unchecked", asks: "POST /v1/tables/unchecked/check", stdout: "b     2        unchecked  -                 it cannot be reached",
			code: exitDegraded, stderr: "tidal: 1 of the 2 replicas of table unchecked could not be compared",
		},
		{line: "tables check T", code: exitUsage, stderr: `table name "T"`},

		{line: "tables drop t", stdin: "t\n", asks: "DELETE /v1/tables/t", stderr: "table t is dropped"},
		{line: "tables drop t", stdin: "yes\n", code: exitRefused, stderr: "not confirmed"},
		{line: "tables drop t", code: exitRefused, stderr: "hint: --yes"},
		{line: "tables drop t --yes", asks: "DELETE /v1/tables/t", stderr: says},

		{line: "rows put t k v", asks: "PUT /v1/tables/t/rows/k v", stdout: "\"2-12\"\n", stderr: says},
		{line: "rows put t a/b -", stdin: "\x00 v", asks: "PUT /v1/tables/t/rows/a%2Fb \x00 v", stdout: "\"2-12\"\n"},
		{line: "rows put t k v -o json", asks: "PUT /v1/tables/t/rows/k v", stdout: `"etag": "\"2-12\""`},
		{line: "rows put t k -", stdin: strings.Repeat("v", api.MaxValue+1), code: exitFailed, stderr: "the limit is 1048576 bytes"},
		{line: "rows put t k", code: exitUsage, stderr: "argument VALUE|- is missing"},
		{line: "rows get t k", asks: "GET /v1/tables/t/rows/k", stdout: "\x00\xff\n"},
		{line: "rows get t k --consistency local", asks: "GET /v1/tables/t/rows/k?consistency=local", stdout: "\x00\xff\n", stderr: "node a lacks 5 entries"},
		{line: "rows get t k -o wide", asks: "GET /v1/tables/t/rows/k", stdout: "ETAG    SIZE  NODE  OWNER  LAG  VALUE\n\"2-12\"  3     a     -      5    \"\\x00\\xff\\n\"\n"},
		{line: "rows get t text -o wide", asks: "GET /v1/tables/t/rows/text", stdout: "5    hé llo"},
		{line: "rows get t k -o json", asks: "GET /v1/tables/t/rows/k", stdout: `"value_base64": "AP8K"`},
		{line: "rows get t text -o json", asks: "GET /v1/tables/t/rows/text", stdout: `"value": "hé llo"`},
		{line: "rows get t k -o yaml", code: exitUsage, stderr: "hint: it is table, wide or json"},
		{line: "rows get t k --consistency=some", code: exitUsage, stderr: "it is linearizable or local"},
		{line: "rows get t none", asks: "GET /v1/tables/t/rows/none", code: exitFailed, stderr: "tidal: get t/none: there is no row (row-not-found)\n"},
		{line: "rows get t " + strings.Repeat("k", 1025), code: exitUsage, stderr: "1025 bytes"},
		{line: "rows head t k", asks: "HEAD /v1/tables/t/rows/k", stdout: "ETAG    SIZE  NODE  OWNER  LAG\n\"2-12\"  77    a     b      -\n"},
		{line: "rows head t k -o json", asks: "HEAD /v1/tables/t/rows/k", stdout: `"size": 77`},
		{line: "rows head t none", asks: "HEAD /v1/tables/t/rows/none", code: exitFailed, stderr: "row-not-found"},
		{line: "rows delete t k", asks: "DELETE /v1/tables/t/rows/k", stderr: says},
		{line: `rows put t k v --if-match "2-12" --if-match 2-13`, asks: `PUT /v1/tables/t/rows/k v if-match "2-12","2-13"`, stdout: "\"2-12\"\n"},
		{line: "rows put t k v --if-match *", asks: "PUT /v1/tables/t/rows/k v if-match *", stdout: "\"2-12\"\n"},
		{line: "rows put t k v --if-none-match * --idempotency-key one", asks: "PUT /v1/tables/t/rows/k v if-none-match * key one", stdout: "\"2-12\"\n"},
		{line: "rows delete t k --if-match 2-12", asks: `DELETE /v1/tables/t/rows/k if-match "2-12"`},
		{
			line: "rows put t other v --if-match 2-11", asks: `PUT /v1/tables/t/rows/other v if-match "2-11"`,
			code: exitRefused, stderr: `tidal: put t/other: the row's version is "2-12" (precondition-failed)`,
		},
		{line: "rows put t k v --if-match 2.12", code: exitUsage, stderr: "hint: tidal rows get TABLE KEY -o wide shows it"},
		{line: "rows put t k v --if-none-match 2-12", code: exitUsage, stderr: `--if-none-match: "2-12" is not *`},
		{line: "rows put t k v --if-none-match * --if-match 2-12", code: exitUsage, stderr: "cannot be there and not be there"},
		{line: "rows delete t k --idempotency-key " + strings.Repeat("k", 257), code: exitUsage, stderr: "1 to 256 bytes"},

		{line: "node list", asks: "GET /v1/nodes", stdout: "a     live              serving  1       leader   -                      https://10.0.0.1:8433"},
		{line: "node list", asks: "GET /v1/nodes", stdout: "b     draining, silent  -        0       learner  ann, epoch 4, 9s left"},
		{line: "node list -o json", asks: "GET /v1/nodes", stdout: `"tables_owned": 1`},
		{line: "node drain a --ttl 5m", stdout: "me, epoch 3, 10m0s left", stderr: says, asks: `POST /v1/nodes/a/drain {"ttl":"5m","by":"` + claimant() + `"}`},
		{
			line: "node drain a --wait -o json", stdout: `"draining": true`, stderr: "node a owns nothing",
			asks: `POST /v1/nodes/a/drain {"ttl":"10m","by":"` + claimant() + `"}` + "\n" + `POST /v1/nodes/a/drain {"ttl":"10m","epoch":3,"by":"` + claimant() + `"}`,
		},
		{line: "node drain a --ttl 0s", code: exitUsage, stderr: "want 1s to 24h"},
		{line: "node drain a --timeout x", code: exitUsage, stderr: `--timeout is "x"`},
		{line: "node drain A", code: exitUsage, stderr: `node id "A"`},
		{line: "node drain b", code: exitLocked, stderr: "(claimed)", asks: `POST /v1/nodes/b/drain {"ttl":"10m","by":"` + claimant() + `"}`},
		{line: "node undrain a", stdout: "serving", stderr: "takes tables again", asks: `POST /v1/nodes/a/undrain {"by":"` + claimant() + `"}`},
		{line: "node restart a", stdout: "a.17.00000000", stderr: says, asks: `POST /v1/nodes/a/restart {"by":"` + claimant() + `"}`},
		{line: "node restart b", code: exitRefused, stderr: "(check-failed)", asks: `POST /v1/nodes/b/restart {"by":"` + claimant() + `"}`},
		{line: "node restart", code: exitUsage, stderr: "argument NODE is missing"},
		{line: "wait ready --timeout 1ns", code: exitNotReady, stderr: "not within 1ns"},
		{line: "wait ready --timeout 0s", code: exitUsage, stderr: "--timeout"},
		{line: "wait level --node A", code: exitUsage, stderr: `node id "A"`},

		{line: "status", asks: "GET /cluster/status\nGET /v1/nodes", stdout: "a     live      1       voter    https://10.0.0.1:8433  z1    v1       a.17.00000000\nb     draining  0       learner"},
		{line: "status -o json", asks: "GET /cluster/status\nGET /v1/nodes", stdout: `"meta_leader": "a"`},
	}
	for _, tt := range tests {
		t.Run(tt.line, func(t *testing.T) {
			n := newFakeNode(t)
			code, stdout, stderr := n.tidal(t, tt.stdin, strings.Fields(tt.line)...)
			if code != int(tt.code) {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			whole := tt.stdout == "" || strings.HasSuffix(tt.stdout, "\n")
			if whole && stdout != tt.stdout || !strings.Contains(stdout, tt.stdout) {
				t.Errorf("stdout %q\nwant   %q", stdout, tt.stdout)
			}
			if !strings.Contains(stderr, tt.stderr) {
				t.Errorf("stderr %q\nwant   %q", stderr, tt.stderr)
			}
			if got := strings.Join(n.asked, "\n"); got != tt.asks {
				t.Errorf("asked %q, want %q", got, tt.asks)
			}
		})
	}
}

// TestDegraded: what is not well is said, and ends with its own code.
func TestDegraded(t *testing.T) {
	for want, spoil := range map[string]func(*api.Status){
		"the metadata has no leader": func(s *api.Status) { s.MetaLeader = "" },
		"node b has no lease":        func(s *api.Status) { s.Members[1].Live, s.Members[1].Lease = false, nil },
		"table t has no owner":       func(s *api.Status) { s.Tables[0].Owner = "" },
		"; and 3 more":               func(s *api.Status) { s.Tables = make([]api.Table, 13) },
	} {
		for _, form := range []string{"table", "json"} {
			n := newFakeNode(t)
			spoil(&n.status)
			code, stdout, stderr := n.tidal(t, "", "status", "-o", form)
			if code != int(exitDegraded) || !strings.Contains(stderr, "tidal: degraded: ") || !strings.Contains(stderr, want) || stdout == "" {
				t.Errorf("%s: exit code %d, stdout %q, stderr %q", want, code, stdout, stderr)
			}
		}
	}
}

package generic_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/roll"
	"tidal/roll/generic"
)

// played is a cluster of three nodes that are played: pages say how they are, and the
// commands are real ones that write into a log, which the pages read.
type played struct {
	dir string

	mu   sync.Mutex
	page func(node, what string) (status int, text string, played bool) // instead of what would be answered
}

func newPlayed(t *testing.T) (*played, *generic.Settings) {
	t.Helper()
	p := &played{dir: t.TempDir()}
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	log := filepath.Join(p.dir, "log")
	if err := os.WriteFile(log, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	nodes := map[string]map[string]any{}
	for _, id := range []string{"n1", "n2", "n3"} {
		nodes[id] = map[string]any{"host": "127.0.0.1", "log": log}
	}
	return p, &generic.Settings{
		Kind: roll.KindGeneric, Nodes: nodes,
		Ready:       srv.URL + "/{node}/ready",
		Incarnation: map[string]any{"url": srv.URL + "/{node}/run", "find": `start (\S+)`},
		Drain:       "echo drain {node} >> {log}",
		Undrain:     "echo undrain {node} >> {log}",
		Restart:     []any{"/bin/sh", "-c", "echo restart $TIDAL_NODE $TIDAL_ROLL >> $0", "{log}"},
		Journal:     filepath.Join(p.dir, "journal", "rolls.json"),
	}
}

// ServeHTTP answers for all nodes: a node is ready, and has been started once more
// than it was restarted.
func (p *played) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(r.URL.Path, "/")
	p.mu.Lock()
	page := p.page
	p.mu.Unlock()
	if page != nil {
		if status, text, ok := page(parts[1], parts[2]); ok {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(text))
			return
		}
	}
	_, _ = fmt.Fprintf(w, "# a page\nstart %d\n", p.count("restart "+parts[1]))
}

func (p *played) play(page func(node, what string) (int, string, bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.page = page
}

func (p *played) log() []string {
	b, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

func (p *played) count(what string) int {
	n := 0
	for _, l := range p.log() {
		if strings.HasPrefix(l, what) {
			n++
		}
	}
	return n
}

// restarted are the nodes that were, in order.
func (p *played) restarted() []string {
	var out []string
	for _, l := range p.log() {
		if w := strings.Fields(l); len(w) > 1 && w[0] == "restart" {
			out = append(out, w[1])
		}
	}
	return out
}

// operator is somebody who rolls.
type operator struct {
	journal *generic.File
	cluster *generic.Cluster
	runner  *roll.Runner
	events  []roll.Event
}

func newOperator(t *testing.T, s *generic.Settings) *operator {
	t.Helper()
	conf, err := generic.Read("db", s)
	if err != nil {
		t.Fatal(err)
	}
	f, err := generic.OpenFile(s.Journal)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	o := &operator{journal: f}
	o.cluster = &generic.Cluster{Config: conf, HTTP: http.DefaultClient, Holds: func(ctx context.Context, h roll.Hold) error {
		_, err := f.ChangeRoll(ctx, api.RollRenew, h.Roll, api.RollChange{Epoch: h.Epoch})
		return err
	}}
	o.runner = &roll.Runner{
		Cluster: o.cluster, Journal: f, Driver: o.cluster, Canary: o.cluster.Canary(), Look: 20 * time.Millisecond,
		Say: func(e roll.Event) { o.events = append(o.events, e) },
	}
	return o
}

// begin plans a roll and takes the lock.
func (o *operator) begin(t *testing.T, options roll.Options) {
	t.Helper()
	if options.Stall == 0 {
		options.Stall = 10 * time.Second
	}
	v, err := o.cluster.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p, err := roll.NewPlan(v, options)
	if err != nil {
		t.Fatal(err)
	}
	o.cluster.Config.Describe(p)
	if blocked := roll.Blocked(p.Checks); len(blocked) > 0 {
		t.Fatalf("%+v", blocked)
	}
	data, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	r, err := o.journal.ChangeRoll(t.Context(), api.RollStart, 0, api.RollChange{By: "ann", Data: data})
	if err != nil {
		t.Fatal(err)
	}
	o.runner.Plan, o.runner.Roll, o.runner.By = p, r, r.By
}

// resume takes the roll from whoever had it.
func (o *operator) resume(t *testing.T) {
	t.Helper()
	r, err := o.journal.Roll(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if r, err = o.journal.ChangeRoll(t.Context(), api.RollTake, 0, api.RollChange{Epoch: r.Epoch, By: "bob"}); err != nil {
		t.Fatal(err)
	}
	p := &roll.Plan{}
	if err = json.Unmarshal(r.Plan, p); err != nil {
		t.Fatal(err)
	}
	for _, n := range r.Nodes {
		if roll.State(n.State) == roll.StateStop {
			o.cluster.Begun(n.Node, 200*time.Millisecond)
		}
	}
	o.runner.Plan, o.runner.Roll, o.runner.By = p, r, r.By
}

// TestWhole: each node is drained, restarted and given back, the one that leads last;
// the journal is on the disk; the plan says what will be run, and what nobody knows.
func TestWhole(t *testing.T) {
	t.Parallel()
	p, s := newPlayed(t)
	s.Leader = map[string]any{"command": []any{"echo", "{node}"}, "find": "^n1$"}
	s.Drain = nil // then it is not waited for that somebody else leads
	s.Drained = []any{"true"}
	o := newOperator(t, s)
	o.begin(t, roll.Options{})
	report, err := o.runner.Run(t.Context())
	if err != nil || report.Status != "done" || report.Kind != roll.KindGeneric || report.Nodes[0].Unknown == "" {
		t.Fatalf("%+v, %v", report, err)
	}
	want := []string{"restart n2 1", "undrain n2", "restart n3 1", "undrain n3", "restart n1 1", "undrain n1"}
	if got := p.log(); !slices.Equal(got, want) {
		t.Errorf("what was run is %v", got)
	}
	r, err := newOperator(t, s).journal.Roll(t.Context(), 0)
	if err != nil || r.Status != api.RollDone || len(r.Nodes) != 3 || len(r.Nodes[0].Steps) != len(roll.States()) {
		t.Errorf("the journal says %+v, %v", r, err)
	}
	if got := o.runner.Plan.Commands[1]; got.Node != "n2" || got.What != "undrain" || got.Command != "/bin/sh -c 'echo undrain n2 >> "+filepath.Join(p.dir, "log")+"'" {
		t.Errorf("planned is %+v", got)
	}
	levels := map[string]roll.Level{}
	for _, c := range o.runner.Plan.Checks {
		levels[c.Name] = c.Level
	}
	for name, level := range map[string]roll.Level{"quorum": roll.OK, "refused": roll.Unknown, "table-quorum": roll.Unknown, "owners": roll.Unknown, "budget": roll.OK} {
		if levels[name] != level {
			t.Errorf("check %s is %s", name, levels[name])
		}
	}
}

// TestPauses: whatever goes wrong with a node, the roll pauses, says why, and has
// touched no other.
func TestPauses(t *testing.T) {
	t.Parallel()
	after := func(p *played, page func(node, what string) (int, string, bool)) func(string, string) (int, string, bool) {
		return func(node, what string) (int, string, bool) {
			if p.count("restart") == 0 {
				return 0, "", false
			}
			return page(node, what)
		}
	}
	for _, tc := range []struct {
		name   string
		change func(s *generic.Settings)
		page   func(p *played) func(node, what string) (int, string, bool)
		why    string
		told   []string
	}{
		{name: "it is never ready", told: []string{"n1"}, why: "it is not ready: GET ", page: func(p *played) func(string, string) (int, string, bool) {
			return after(p, func(node, what string) (int, string, bool) { return 503, "no", node == "n1" && what == "ready" })
		}},
		{name: "it does not come back", told: []string{"n1"}, why: "its incarnation is not known: GET ", page: func(p *played) func(string, string) (int, string, bool) {
			return after(p, func(node, _ string) (int, string, bool) { return 500, "", node == "n1" })
		}},
		{name: "the command does nothing", told: nil, why: "its incarnation is 0 still", change: func(s *generic.Settings) { s.Restart = []any{"true"} }},
		{name: "the command fails", told: nil, why: "its command had failed: false: exit status 1", change: func(s *generic.Settings) { s.Restart = []any{"false"} }},
		{name: "it flaps", told: []string{"n1"}, why: "node n1 does not stay up", page: func(p *played) func(string, string) (int, string, bool) {
			var run atomic.Int64
			return after(p, func(node, what string) (int, string, bool) {
				return 200, fmt.Sprintf("start x%d", run.Add(1)), node == "n1" && what == "run"
			})
		}},
		{name: "the view is cut off", told: []string{"n1"}, why: "incomplete view: none of the 3 nodes answers", page: func(p *played) func(string, string) (int, string, bool) {
			return after(p, func(string, string) (int, string, bool) { return 502, "", true })
		}},
		{name: "the view is empty", told: []string{"n1"}, why: "start (\\S+) is not in the answer", page: func(p *played) func(string, string) (int, string, bool) {
			return after(p, func(string, string) (int, string, bool) { return 200, "", true })
		}},
		{name: "the view is partial", told: []string{"n1"}, why: "check budget blocks node n2: not ready: n3 (its incarnation is not known", page: func(p *played) func(string, string) (int, string, bool) {
			return after(p, func(node, _ string) (int, string, bool) { return 502, "", node == "n3" })
		}},
		{name: "its drain fails", told: nil, why: "its drain failed: exit 3: not while …", change: func(s *generic.Settings) { s.Drain = "echo not while 12:00:01; exit 3" }},
		{name: "its drain has no end", told: nil, why: "its drain failed: it did not end within 200ms", change: func(s *generic.Settings) { s.Drain, s.Limit = "exec sleep 60", "200ms" }},
		{name: "it is never drained", told: nil, why: "it is not drained: exit 1", change: func(s *generic.Settings) { s.Drained = []any{"false"} }},
		{name: "it leads still", told: nil, why: "its drain is done, and it leads still", change: func(s *generic.Settings) {
			s.Leader = map[string]any{"command": []any{"echo", "{node}"}, "find": "^n1$"}
		}},
		{name: "it is not given back", told: []string{"n1"}, why: "its undrain failed: exit 1", change: func(s *generic.Settings) { s.Undrain = []any{"false"} }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p, s := newPlayed(t)
			if tc.change != nil {
				tc.change(s)
			}
			if tc.page != nil {
				p.play(tc.page(p))
			}
			o := newOperator(t, s)
			options := roll.Options{Stall: 250 * time.Millisecond, Settle: 30 * time.Millisecond}
			switch tc.name {
			case "it leads still":
				options.Only = []string{"n1"}
			case "the view is partial": // n3 itself would come first, since it is not ready
				options.Only = []string{"n1", "n2"}
			}
			o.begin(t, options)
			report, err := o.runner.Run(t.Context())
			trouble, ok := errors.AsType[*roll.TroubleError](err)
			if !ok || !strings.Contains(trouble.Why, tc.why) || report.Status != "paused" {
				t.Fatalf("%v, want %q", err, tc.why)
			}
			if got := p.restarted(); !slices.Equal(got, tc.told) {
				t.Errorf("restarted were %v", got)
			}
			if r, err := o.journal.Roll(t.Context(), 0); err != nil || r.Status != api.RollPaused || r.Why != trouble.Why {
				t.Errorf("the journal says %s %q, %v", r.Status, r.Why, err)
			}
		})
	}
}

// TestKilled: an operator that dies in any state is followed by one that finishes, at
// once, and restarts no node twice whose restart was begun.
func TestKilled(t *testing.T) {
	t.Parallel()
	for _, at := range roll.States() {
		t.Run(string(at), func(t *testing.T) {
			t.Parallel()
			p, s := newPlayed(t)
			first := newOperator(t, s)
			first.begin(t, roll.Options{})
			ctx, die := context.WithCancel(t.Context())
			first.runner.Say = func(e roll.Event) {
				if e.Node == "n2" && e.State == at {
					die()
				}
			}
			if _, err := first.runner.Run(ctx); !errors.Is(err, context.Canceled) {
				t.Fatalf("it died with %v", err)
			}
			second := newOperator(t, s)
			r, err := second.journal.Roll(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = second.journal.ChangeRoll(t.Context(), api.RollTake, 0, api.RollChange{Epoch: r.Epoch, By: "bob"})
			if api.CodeOf(err) != api.CodeRollLocked || !strings.Contains(err.Error(), fmt.Sprintf("who lives (process %d of ann", os.Getpid())) {
				t.Errorf("while the first one lives: %v", err)
			}
			first.journal.Close() // as its death does
			_, err = second.journal.ChangeRoll(t.Context(), api.RollStart, 0, api.RollChange{By: "bob"})
			if api.CodeOf(err) != api.CodeRollLocked || !strings.Contains(err.Error(), fmt.Sprintf("roll 1 of ann is running, and only one roll goes on at a time; its operator is gone (process %d of ann", os.Getpid())) {
				t.Errorf("another roll: %v", err)
			}
			second.resume(t)
			if report, err := second.runner.Run(t.Context()); err != nil || report.Status != "done" {
				t.Fatalf("%+v, %v", report, err)
			}
			if got := p.restarted(); !slices.Equal(got, []string{"n1", "n2", "n3"}) {
				t.Errorf("restarted were %v", got)
			}
			// Its word counts no more.
			hold := roll.Hold{Roll: first.runner.Roll.ID, Epoch: first.runner.Roll.Epoch, By: "ann"}
			if err := first.cluster.Restart(t.Context(), roll.Node{ID: "n1"}, hold); api.CodeOf(err) != api.CodeStaleEpoch {
				t.Errorf("the first one restarts a node: %v", err)
			}
			if _, err := first.cluster.Drain(t.Context(), "n1", hold); api.CodeOf(err) != api.CodeStaleEpoch {
				t.Errorf("the first one drains a node: %v", err)
			}
		})
	}
}

// TestTakenByForce: from an operator that lives, which stops then, in mid-roll.
func TestTakenByForce(t *testing.T) {
	t.Parallel()
	p, s := newPlayed(t)
	first, second := newOperator(t, s), newOperator(t, s)
	first.begin(t, roll.Options{})
	first.runner.Say = func(e roll.Event) {
		if e.Node == "n2" && e.State == roll.StateStop {
			if _, err := second.journal.ChangeRoll(t.Context(), api.RollTake, 0, api.RollChange{Epoch: 1, By: "bob", Force: true}); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := first.runner.Run(t.Context()); !errors.Is(err, roll.ErrTaken) {
		t.Errorf("%v", err)
	}
	if got := p.restarted(); !slices.Equal(got, []string{"n1"}) {
		t.Errorf("restarted were %v", got)
	}
	// The lock is the second one's, whatever the first does with its own.
	first.journal.Close()
	third := newOperator(t, s)
	if alive, who := third.journal.Holder(); !alive || !strings.Contains(who, "of bob") {
		t.Errorf("the holder is %s, alive %t", who, alive)
	}
}

// TestCanary: what it meets is in the report, by exit code and last line, and more
// failures than are allowed pause the roll. One that never succeeds begins nothing.
func TestCanary(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		command string
		max     uint64
		status  string
		told    int
		why     string
	}{
		{name: "all is well", command: "true", status: "done", told: 3},
		{name: "it fails once n1 was restarted", command: "if grep -q restart LOG; then echo at 2026-01-02T03:04:05Z; echo no leader >&2; exit 7; fi", status: "paused", told: 1, why: "attempts of the canary failed since the roll began; at most 0 may"},
		{name: "that is allowed", command: "if grep -q restart LOG; then echo at 2026-01-02T03:04:05Z; echo no leader >&2; exit 7; fi", max: 1 << 30, status: "done", told: 3},
		{name: "it never succeeds", command: "exit 127", status: "paused", told: 0, why: "the canary succeeded in none of"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p, s := newPlayed(t)
			s.Canary = &generic.CanarySettings{Command: strings.ReplaceAll(tc.command, "LOG", filepath.Join(p.dir, "log")), Every: "20ms", Around: "100ms"}
			o := newOperator(t, s)
			o.begin(t, roll.Options{Settle: 100 * time.Millisecond, MaxRefusals: tc.max})
			report, err := o.runner.Run(t.Context())
			if report.Status != tc.status || len(p.restarted()) != tc.told || (err != nil) != (tc.why != "") || err != nil && !strings.Contains(err.Error(), tc.why) {
				t.Fatalf("%+v, %v; restarted were %v", report, err, p.restarted())
			}
			c := report.Canary
			if tc.told > 0 && (c.Before.Attempts == 0 || c.Before.Failed != 0 || c.During.Attempts == 0 || c.EveryMS != 20) {
				t.Errorf("the canary met %+v", c)
			}
			failed := c.During.Failed + c.After.Failed
			if report.Refused != failed || (failed > 0) != strings.Contains(tc.command, "exit 7") {
				t.Errorf("refused are %d, and the canary met %+v", report.Refused, c)
			}
			if failed > 0 && (c.During.Failures[0].How != "exit 7: no leader" || c.During.GapMS < 20) {
				t.Errorf("the canary met %+v", c.During)
			}
		})
	}
}

// TestRead: every problem of the settings is named at once, and what a shell could
// take for something else is let into no command.
func TestRead(t *testing.T) {
	t.Parallel()
	_, err := generic.Read("db", &generic.Settings{
		Quorum: 3,
		Nodes: map[string]map[string]any{
			"n1": {"host": "a; rm -rf /", "port": int64(2379)},
			"N2": {"host": "-oProxyCommand=x", "Port": "1", "list": []any{"x"}},
		},
		Ready: map[string]any{"url": "http://x", "command": []any{"x"}}, Drain: []any{}, Undrain: "kill {pid} ${HOME}", Limit: "soon",
		Drained: map[string]any{"url": "http://x", "find": "("}, Version: map[string]any{"page": "x"}, Leader: map[string]any{"url": ""},
		Canary: &generic.CanarySettings{Command: "ask {node}"},
	})
	if err == nil {
		t.Fatal("it is taken")
	}
	for _, want := range []string{
		"quorum is 3, and there are 2 nodes", `nodes.n1.host is "a; rm -rf /": a shell would take ';'`, `nodes.N2.host is "-oProxyCommand=x": it would be taken for an option`,
		`node id "N2" is not`, "nodes.N2.Port is no name for a placeholder", "nodes.N2.list is [x]", "ready needs a url or a command, and not both",
		"incarnation is missing", "restart is missing", "drain names no program", "undrain has the placeholder {pid}, and there are {Port} {host} {node}, for node N2", `limit is "soon"`,
		"drained error parsing regexp", `version has the key "page"`, "leader is empty", "canary.command has the placeholder {node}, and there are {attempt}",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it is not told that %s", want)
		}
	}
	if t.Failed() {
		t.Log(err)
	}
}

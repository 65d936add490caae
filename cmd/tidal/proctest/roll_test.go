package proctest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/roll"
)

// The shape of a roll under load.
const (
	rollWriters = 16
	rollPace    = 25 // writes a second of each

	rollWarm = 500 * time.Millisecond // of the writers, for handshakes and first writes: not the time before
)

// TestRoll rolls a cluster in place under sixteen writers on all nodes, each of
// which stays with its node and sends nothing twice. Nobody may notice, and the
// report must say what the writers saw. ROLL_RUNS repeats it, each time with a new
// cluster; ROLL_NODES sets how many nodes there are.
func TestRoll(t *testing.T) {
	var all rollResults
	for i := range runs(t, "ROLL_RUNS", 1) {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) { all = append(all, rollRun(t)) })
	}
	all.promised(t)
}

// judged is how many runs have medians that are held against what is promised.
const judged = 5

// rollBefore is how long writers write before a roll. What they wait for then is the
// measure of runs that are judged: flushes and compactions are to be in it.
func rollBefore(t *testing.T, name string) time.Duration {
	t.Helper()
	if runs(t, name, 1) < judged {
		return 2 * time.Second
	}
	return 10 * time.Second
}

// settling returns the arguments of a roll that goes on soon after each node, unless the
// runs are judged: then it is as operators have it.
func settling(t *testing.T, name string, args ...string) []string {
	t.Helper()
	if runs(t, name, 1) < judged {
		args = append(args, "--settle", "300ms")
	}
	return args
}

// rollResult is what the writers of a run saw.
type rollResult struct{ longest, before, during time.Duration }

// rollResults are those of several runs.
type rollResults []rollResult

// promised prints what each run saw. What is promised of the time that anything takes, the
// median of the runs has to keep, if there are enough of them.
func (all rollResults) promised(t *testing.T) {
	t.Helper()
	var longest, before, during []time.Duration
	for _, r := range all {
		longest, before, during = append(longest, r.longest), append(before, r.before), append(during, r.during)
	}
	t.Logf("longest wait of each run: %v; p99 before: %v; p99 during: %v", longest, before, during)
	l, b, d := median(longest), median(before), median(during)
	t.Logf("medians: longest wait %v, p99 before %v, p99 during %v", l, b, d)
	if len(all) >= judged && (l > plannedWait || d > 2*b) {
		t.Errorf("promised are at most %v and twice the p99 of before", plannedWait)
	}
}

func median(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(list))
	return sorted[len(sorted)/2]
}

func rollRun(t *testing.T) rollResult {
	t.Helper()
	c := newCluster(t, clusterOptions{nodes: runs(t, "ROLL_NODES", 3)})
	c.startAll(t)
	tables := c.createTables(t, gracefulTables)
	f := launchKeeping(t, c.targets(), tables)
	pause(rollWarm + rollBefore(t, "ROLL_RUNS"))
	out := c.timedRoll(t, f, settling(t, "ROLL_RUNS", "--yes", "-o", "json")...)
	f.stop()
	if out.code != 0 {
		t.Fatalf("tidal roll ended with %d\n%s", out.code, out)
	}
	return c.unnoticed(t, f, tables, out)
}

// unnoticed wants nobody to have noticed some rolls that were timed, each report to say
// what the writers saw, and every row to be read back.
func (c *cluster) unnoticed(t *testing.T, f *fleet, tables []string, rolls ...rolled) rollResult {
	t.Helper()
	r := summarise(f.writes(), rolls[len(rolls)-1].ended)
	for _, out := range rolls {
		t.Logf("rolled in %v", (out.ended - out.began).Round(time.Millisecond))
		out.agrees(t, c, f)
	}
	t.Logf("%s", r)
	if r.refused > 0 {
		t.Errorf("%d of %d writes were not answered 2xx", r.refused, r.total)
	}
	if r.longest.took > api.Patience {
		t.Errorf("a write waited %v", r.longest.took)
	}
	wrong, _ := readBack(c.targets(), append(f.writes(), f.unsent(tables)...), followerLag)
	showList(t, "read back", wrong)
	var before, during []time.Duration
	for _, w := range f.writes() {
		switch {
		case w.at < rollWarm:
		case w.at+w.took <= rolls[0].began:
			before = append(before, w.took)
		case slices.ContainsFunc(rolls, func(o rolled) bool { return o.met(&w) }): // and not what came between two
			during = append(during, w.took)
		}
	}
	return rollResult{r.longest.took.Round(time.Millisecond), p99(before), p99(during)}
}

func p99(list []time.Duration) time.Duration {
	if len(list) == 0 {
		return 0
	}
	slices.Sort(list)
	return list[len(list)*99/100].Round(10 * time.Microsecond)
}

// launchKeeping starts the writers of a roll.
func launchKeeping(t *testing.T, targets []target, tables []string) *fleet {
	t.Helper()
	f := launchLoyal(t, targets, tables, 0)
	for i := range rollWriters {
		w := &writer{f: f, id: i, table: tables[i%len(tables)], every: time.Second / rollPace}
		w.first = w.every * time.Duration(i) / rollWriters // spread over one period
		f.writers = append(f.writers, w)
		f.wg.Go(func() { w.keep(i % len(targets)) })
	}
	return f
}

// keep writes to one node at a fixed pace until the fleet stops.
func (w *writer) keep(i int) {
	select {
	case <-time.After(w.first):
	case <-w.f.stopped:
		return
	}
	tick := time.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-w.f.stopped:
			return
		}
		r := write{table: w.table, key: w.key(len(w.writes)), at: time.Since(w.f.began), node: w.f.targets[i].name}
		w.send(i, &r)
		r.took = time.Since(w.f.began) - r.at
		w.writes = append(w.writes, r)
	}
}

// rolled is what a `tidal roll` command printed.
type rolled struct {
	code           int
	stdout, stderr []byte
	report         roll.Report
	began, ended   time.Duration // since the writers began, if it was timed
}

// met reports whether a write was under way during the roll.
func (o rolled) met(w *write) bool { return w.at+w.took > o.began && w.at < o.ended }

func (o rolled) String() string { return fmt.Sprintf("%s%s", o.stderr, o.stdout) }

// rollCmd makes a `tidal roll` that talks to the cluster's last node first.
func (c *cluster) rollCmd(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	lastFirst := slices.Clone(c.nodes)
	slices.Reverse(lastFirst)
	return c.command(t, c.asAdminAt(lastFirst, append([]string{"roll"}, args...)...)...)
}

// roll runs `tidal roll` with arguments to its end.
func (c *cluster) roll(t *testing.T, args ...string) rolled {
	t.Helper()
	cmd := c.rollCmd(t, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	out := rolled{code: cmd.ProcessState.ExitCode(), stdout: stdout.Bytes(), stderr: stderr.Bytes()}
	if out.code < 0 {
		t.Fatalf("tidal roll %v: %v\n%s", args, err, out)
	}
	if lines := bytes.Split(bytes.TrimSpace(out.stdout), []byte("\n")); len(lines) > 0 {
		_ = json.Unmarshal(lines[len(lines)-1], &out.report) // other forms have no report
	}
	return out
}

// timedRoll runs `tidal roll` under writers.
func (c *cluster) timedRoll(t *testing.T, f *fleet, args ...string) rolled {
	t.Helper()
	began := time.Since(f.began)
	out := c.roll(t, args...)
	out.began, out.ended = began, time.Since(f.began)
	return out
}

// agrees compares the report, which is of what came between the first reading of the
// nodes' counts and the last, with what the writers saw. Every event lies between these
// two, and both lie in the time of the command.
func (o rolled) agrees(t *testing.T, c *cluster, f *fleet) {
	t.Helper()
	if o.report.Event != "report" || o.report.Status != "done" || o.report.Refused != 0 || len(o.report.Nodes) != len(c.nodes) {
		t.Fatalf("the report is %+v\n%s", o.report, o)
	}
	first, last := o.events(t)
	for _, n := range o.report.Nodes {
		least, most, writers := 0, 0, map[string]bool{}
		var longest time.Duration
		for _, w := range f.writes() {
			if w.node != n.Node || !o.met(&w) {
				continue
			}
			writer, _, _ := strings.Cut(w.key, "-")
			writers[writer] = true
			most++
			longest = max(longest, w.took)
			if at := f.began.Add(w.at); !at.Before(first) && !at.Add(w.took).After(last) {
				least++
			}
		}
		t.Logf("%s: the report has %d requests, and its writers sent %d to %d; longest %.1f ms (port shut %d ms), and theirs %v",
			n.Node, n.Requests, least, most, n.LongestMS, n.ShutMS, longest.Round(time.Millisecond))
		// What is under way when a count is read may be on either side of it: one of each writer.
		if edge := len(writers); n.Unknown != "" || int(n.Requests) < least-edge || int(n.Requests) > most+edge {
			t.Errorf("node %s counted %d requests, and its writers sent %d to %d: %+v", n.Node, n.Requests, least, most, n)
		}
		// A client waits for longer than its node has it wait, but for the time that the port is shut.
		if waited := time.Duration(n.LongestMS * float64(time.Millisecond)); n.LongestMS > float64(n.ShutMS) && waited > longest+100*time.Millisecond {
			t.Errorf("node %s had somebody wait for %v, and its writers waited at most %v", n.Node, waited, longest)
		}
	}
	t.Logf("report: %d requests, %d refused, longest %.1f ms, p99 %.1f ms before and %.1f ms during",
		o.report.Requests, o.report.Refused, o.report.LongestMS, o.report.P99Before, o.report.P99During)
}

// events returns when the first and the last of the printed events were.
func (o rolled) events(t *testing.T) (first, last time.Time) {
	t.Helper()
	for line := range bytes.Lines(o.stdout) {
		var e roll.Event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if e.Event == "report" {
			continue
		}
		if last = e.Time; first.IsZero() {
			first = e.Time
		}
	}
	return first, last
}

// begin starts `tidal roll` and returns once it printed a line that holds text.
func (c *cluster) begin(t *testing.T, text string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := c.rollCmd(t, args...)
	c.follow(t, cmd, text)
	return cmd
}

// follow starts a command and returns once it printed a line that holds text.
func (c *cluster) follow(t *testing.T, cmd *exec.Cmd, text string) {
	t.Helper()
	path := filepath.Join(c.dir, "roll.out")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Start()
	_ = out.Close() // the child has its own descriptor
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	eventually(t, 30*time.Second, func() error {
		b, err := os.ReadFile(path)
		if err == nil && !bytes.Contains(b, []byte(text)) {
			err = fmt.Errorf("%q was not printed:\n%s", text, b)
		}
		return err
	})
}

// ended waits for a command that follow started, and returns its exit code and what it
// printed.
func (c *cluster) ended(t *testing.T, cmd *exec.Cmd) (code int, out string) {
	t.Helper()
	_ = cmd.Wait() // the state is read from cmd.ProcessState
	b, err := os.ReadFile(filepath.Join(c.dir, "roll.out"))
	if err != nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

// TestRollOperators: while one operator rolls, another is told who holds the lock.
// The first is killed: its node takes its tables back, and another goes on once it
// is silent. One that slept meanwhile finds its word worth nothing.
func TestRollOperators(t *testing.T) {
	onDemand(t, "ROLL_OPERATORS", "rolltrouble")
	c := newCluster(t, clusterOptions{})
	c.startAll(t)
	tables := c.createTables(t, gracefulTables)
	f := launch(t, c.targets(), fleetOptions{tables: tables, perTable: 2, rate: 50})
	for _, s := range roll.States() {
		cmd := c.begin(t, `"state":"`+string(s)+`"`, "--yes", "--settle", "1s", "-o", "json")
		if out := c.roll(t, "--yes"); out.code != 9 || !strings.Contains(out.String(), "roll-locked") {
			t.Errorf("in %s, a second roll ended with %d\n%s", s, out.code, out)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if out := c.roll(t, "resume"); out.code != 9 {
			t.Errorf("in %s, resume at once ended with %d\n%s", s, out.code, out)
		}
		pause(api.RollSilence + 2*time.Second)
		if out := c.roll(t, "status"); out.code != 0 || !strings.Contains(out.String(), "operator silent for") || !strings.Contains(out.String(), "`tidal roll resume` does") {
			t.Errorf("in %s, of an operator that is gone, status says\n%s", s, out)
		}
		if out := c.roll(t, "resume", "-o", "json"); out.code != 0 || out.report.Refused != 0 {
			t.Fatalf("in %s, resume ended with %d\n%s", s, out.code, out)
		}
		c.healthy(t, 30*time.Second)
	}
	// One is stopped for a minute: nobody waits for it.
	cmd := c.begin(t, `"state":"drain"`, "--yes", "--settle", "1s", "-o", "json")
	if err := cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	pause(35 * time.Second)
	for i := range c.nodes {
		if c.local(t, i).Draining {
			t.Errorf("%s still drains for an operator that sleeps", c.nodes[i].id)
		}
	}
	pause(25 * time.Second)
	var held api.Roll
	if out := c.roll(t, "status", "-o", "json"); out.code != 0 || json.Unmarshal(out.stdout, &held) != nil {
		t.Fatalf("status ended with %d\n%s", out.code, out)
	}
	done := make(chan rolled, 1)
	go func() { done <- c.roll(t, "resume", "-o", "json") }()
	pause(time.Second)
	for _, order := range []string{"drain", "restart"} { // as the one that sleeps would send them
		body := fmt.Sprintf(`{"roll":%d,"epoch":%d,"by":%q}`, held.ID, held.Epoch, held.By)
		if a := c.must(t, 0, http.MethodPost, "/v1/nodes/n1/"+order, body, nil); !strings.Contains(string(a.body), string(api.CodeStaleEpoch)) {
			t.Errorf("told to %s under the epoch that is over, n1 answers %s", order, a)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 9 {
		t.Errorf("the operator that slept ended with %v", err)
	}
	if out := <-done; out.code != 0 || out.report.Refused != 0 {
		t.Errorf("resume ended with %d\n%s", out.code, out)
	}
	lasted := time.Since(f.began)
	f.stop()
	if r := summarise(f.writes(), lasted); r.refused > 0 {
		t.Errorf("%s", r)
	}
}

// TestRollPauses: a node that does not come back pauses the roll, which touches no
// other; a quorum that would not survive blocks it by name; a plan that was saved
// is refused when the cluster has changed.
func TestRollPauses(t *testing.T) {
	onDemand(t, "ROLL_PAUSES", "rolltrouble")
	c := newCluster(t, clusterOptions{})
	c.startAll(t)
	tables := c.createTables(t, gracefulTables)
	plan := filepath.Join(c.dir, "plan.json")
	if out := c.roll(t, "plan", "--out", plan); out.code != 0 {
		t.Fatalf("plan ended with %d\n%s", out.code, out)
	}
	f := launch(t, c.targets(), fleetOptions{tables: tables, perTable: 2, rate: 50})
	// Its configuration is fine when it is checked, and gone when it starts: the
	// node n1 ends with its restart.
	cmd := c.begin(t, `"state":"stop"`, "--yes", "--only", "n1", "--stall", "5s", "--settle", "0s", "-o", "json")
	eventually(t, 10*time.Second, func() error {
		if c.nodes[0].running() {
			c.nodes[0].kill()
		}
		return nil
	})
	if code, out := c.ended(t, cmd); code != 8 {
		t.Errorf("a node that does not come back: exit %d\n%s", code, out)
	}
	for _, i := range []int{1, 2} {
		if c.local(t, i).Incarnation.Start != 1 {
			t.Errorf("%s was touched", c.nodes[i].id)
		}
	}
	if out := c.roll(t, "status"); !strings.Contains(out.String(), "paused") || !strings.Contains(out.String(), "n1") {
		t.Errorf("status: %s", out)
	}
	if out := c.roll(t, "plan"); out.code != 7 || !strings.Contains(out.String(), "table t0 would keep 1 of 3") {
		t.Errorf("with n1 down, a plan ended with %d\n%s", out.code, out)
	}
	c.nodes[0].start(t, "")
	c.healthy(t, 30*time.Second)
	if out := c.roll(t, "resume", "-o", "json"); out.code != 0 {
		t.Errorf("resume ended with %d\n%s", out.code, out)
	}
	if out := c.roll(t, "--yes", "--plan", plan); out.code != 7 || !strings.Contains(out.String(), "node n1 is n1.") {
		t.Errorf("the plan of a world that has changed: exit %d\n%s", out.code, out)
	}
	lasted := time.Since(f.began)
	f.stop()
	t.Logf("%s", summarise(f.writes(), lasted))
	wrong, _ := readBack(c.targets(), append(f.writes(), f.unsent(tables)...), followerLag)
	showList(t, "read back", wrong)
}

// TestRollExec rolls by a command that ends the process, with a supervisor that
// starts it again, under clients behind a load balancer.
func TestRollExec(t *testing.T) {
	onDemand(t, "ROLL_PAUSES", "rolltrouble")
	c := newCluster(t, clusterOptions{})
	c.startAll(t)
	tables := c.createTables(t, gracefulTables)
	f := launch(t, c.targets(), fleetOptions{tables: tables, perTable: 2, rate: 50})
	ended, over := make(chan struct{}), make(chan struct{})
	go func() { // the supervisor
		defer close(over)
		for i := 0; ; i = (i + 1) % len(c.nodes) {
			select {
			case <-ended:
				return
			case <-time.After(20 * time.Millisecond):
			}
			if !c.nodes[i].running() {
				c.nodes[i].start(t, "")
			}
		}
	}()
	command := "kill -TERM $(cat " + filepath.Join(c.dir, "{node}", "LOCK.tidal") + ")"
	out := c.roll(t, "--yes", "--driver", "exec", "--command", command, "--settle", "300ms", "-o", "json")
	close(ended)
	<-over
	lasted := time.Since(f.began)
	f.stop()
	r := summarise(f.writes(), lasted)
	t.Logf("%s", r)
	if out.code != 0 || out.report.Refused != 0 || r.refused > 0 {
		t.Errorf("exit %d\n%s", out.code, out)
	}
	for i := range c.nodes {
		if s := c.local(t, i).Incarnation.Start; s != 2 {
			t.Errorf("%s was started %d times", c.nodes[i].id, s)
		}
	}
}

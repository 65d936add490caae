package proctest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/roll"
)

// rollTrouble is a roll whose first node meets with something.
type rollTrouble struct {
	*cluster

	first, second, last int // nodes, as the roll takes them
}

// TestRollTrouble: whatever goes wrong with the first node of a roll, or with what is
// seen of the cluster, it pauses, says why and what to do next, and has touched no second
// node; the others serve on; and resume finishes what was begun.
func TestRollTrouble(t *testing.T) {
	onDemand(t, "ROLL_PAUSES", "rolltrouble")
	for _, tc := range []struct {
		name    string
		options clusterOptions
		run     func(t *testing.T, c *rollTrouble)
	}{
		{"wrong version", clusterOptions{}, rollWrongVersion},
		{"never level", clusterOptions{}, rollNeverLevel},
		{"flaps", clusterOptions{}, rollFlaps},
		{"partial view", clusterOptions{}, rollPartialView},
		{"cut off", clusterOptions{apart: true, visitor: true, faults: "handover-hold=2s"}, rollCutOff},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := &rollTrouble{cluster: newCluster(t, tc.options)}
			for _, n := range c.nodes {
				n.program = filepath.Join(c.dir, n.id+"-bin", "tidal")
				release(t, n.program, versionA, levelsA)
			}
			c.startAll(t)
			c.createTables(t, gracefulTables)
			c.healthy(t, 30*time.Second)
			c.order(t)
			tc.run(t, c)
			if out := c.roll(t, "resume", "-o", "json"); out.code != 0 || out.report.Status != "done" {
				t.Errorf("resume ended with %d\n%s", out.code, out)
			}
			c.healthy(t, 30*time.Second)
		})
	}
}

// order asks which node comes first, and which next.
func (c *rollTrouble) order(t *testing.T) {
	t.Helper()
	var p roll.Plan
	if out := c.roll(t, "plan", "-o", "json"); out.code != 0 || json.Unmarshal(out.stdout, &p) != nil || len(p.Nodes) != len(c.nodes) {
		t.Fatalf("plan ended with %d\n%s", out.code, out)
	}
	at := func(k int) int {
		return slices.IndexFunc(c.nodes, func(n *node) bool { return n.id == p.Nodes[k].Node })
	}
	c.first, c.second, c.last = at(0), at(1), at(2)
}

// flags are those of a roll of the first node, and then of the second if there are to be
// two.
func (c *rollTrouble) flags(nodes int, args ...string) []string {
	args = append(args, "--yes", "--stall", "5s", "--settle", "2s", "-o", "json", "--only", c.nodes[c.first].id)
	if nodes > 1 {
		args = append(args, "--only", c.nodes[c.second].id)
	}
	return args
}

// paused wants a roll to have paused and said so, with the cause and the next command,
// without a second node, and the nodes but one that is away to serve every table.
func (c *rollTrouble) paused(t *testing.T, cmd *exec.Cmd, why string, away int) {
	t.Helper()
	code, out := c.ended(t, cmd)
	if code != 8 || !strings.Contains(out, why) || !strings.Contains(out, "hint: ") || !strings.Contains(out, "tidal roll resume") {
		t.Errorf("exit %d, and want 8 and %q\n%s", code, why, out)
	}
	t.Logf("%s", out[strings.LastIndex(out, "tidal: "):])
	for i, n := range c.nodes {
		if i != c.first && strings.Contains(out, `"node":"`+n.id+`","state":"claim"`) {
			t.Errorf("a second node was begun\n%s", out)
		}
		if i == away {
			continue
		}
		for k := range gracefulTables {
			if a := c.must(t, i, http.MethodPut, fmt.Sprintf("/v1/tables/t%d/rows/paused", k), "x", nil); a.status/100 != 2 {
				t.Errorf("%s serves t%d with %s", n.id, k, a)
			}
		}
	}
}

// none is no node.
const none = -1

// rollWrongVersion: B stands at the node's path when the plan is made, and something else
// is put there before it is stopped.
func rollWrongVersion(t *testing.T, c *rollTrouble) {
	t.Helper()
	n, other := c.nodes[c.first], filepath.Join(c.dir, "other")
	place := func(version, levels string) {
		release(t, n.program+".new", version, levels)
		if err := program("mv", n.program+".new", n.program); err != nil {
			t.Fatal(err)
		}
	}
	place(versionB, levelsB)
	release(t, other, "proctest-release-X", levelsA)
	cmd := c.begin(t, `"state":"stop"`, c.flags(1, "--upgrade-to", versionB, "--hook-before", "mv "+other+" "+n.program)...)
	c.paused(t, cmd, "node "+n.id+" came back with version proctest-release-X, and "+versionB+" is wanted", none)
	if out := c.roll(t, "resume", "-o", "json"); out.code != 8 || !strings.Contains(out.String(), "is wanted") {
		t.Errorf("resumed before it was mended: exit %d\n%s", out.code, out)
	}
	place(versionB, levelsB)
	if code, out := c.tidal(t, c.asAdmin("node", "restart", n.id, "--wait")...); code != 0 {
		t.Fatalf("node restart: exit %d\n%s", code, out)
	}
}

// rollNeverLevel: the node comes back, and does not catch up.
func rollNeverLevel(t *testing.T, c *rollTrouble) {
	t.Helper()
	n := c.nodes[c.first]
	command := "kill -TERM $(cat " + filepath.Join(c.dir, "{node}", "LOCK.tidal") + ")"
	cmd := c.begin(t, `"state":"stop"`, c.flags(1, "--driver", "exec", "--command", command)...)
	<-n.gone
	n.start(t, "no-frontier")
	c.paused(t, cmd, "waited for node "+n.id+" to be level and ready, and nothing moved for 5s", c.first)
	if a := c.must(t, c.first, http.MethodGet, "/health", "", nil); a.status != http.StatusServiceUnavailable {
		t.Errorf("it is to be behind, and its health is %s", a)
	}
	n.kill()
	n.start(t, "")
}

// rollFlaps: the node comes back, and ends while it settles.
func rollFlaps(t *testing.T, c *rollTrouble) {
	t.Helper()
	n := c.nodes[c.first]
	cmd := c.begin(t, `"state":"owners-back"`, c.flags(1)...)
	n.kill()
	n.start(t, "")
	c.paused(t, cmd, "node "+n.id+" does not stay up: it came back as "+n.id+".2.", c.first)
	c.healthy(t, 30*time.Second)
}

// rollPartialView: another node stops answering while the first is under way.
func rollPartialView(t *testing.T, c *rollTrouble) {
	t.Helper()
	cmd := c.begin(t, `"state":"started"`, c.flags(2)...)
	if err := c.nodes[c.last].signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	c.paused(t, cmd, "blocks node "+c.nodes[c.second].id+": ", c.last)
	if err := c.nodes[c.last].signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	c.healthy(t, 30*time.Second)
}

// rollCutOff: the operator sees no node any more, in the middle of the first. One that was
// not stopped yet takes its tables back when the claim has run out. The journal cannot be
// told; whoever resumes needs no word of the first operator.
func rollCutOff(t *testing.T, c *rollTrouble) {
	t.Helper()
	for _, state := range []string{"drain", "started"} {
		ran := c.local(t, c.first).Incarnation
		cmd := c.cutOff(t, state)
		c.paused(t, cmd, "the journal could not be told, and says that the roll goes on: no node could be reached", none)
		for i := range c.nodes {
			if err := c.net.heal(len(c.nodes), i); err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, api.DefaultClaim+5*time.Second, func() error {
			if c.local(t, c.first).Draining || c.owned(t, c.first) == 0 {
				return fmt.Errorf("%s owns nothing, for an operator that is cut off", c.nodes[c.first].id)
			}
			return nil
		})
		if now := c.local(t, c.first).Incarnation; (now == ran) != (state == "drain") {
			t.Errorf("cut off in %s, the node is %s, and was %s", state, now, ran)
		}
		eventually(t, api.RollSilence+5*time.Second, func() error {
			if out := c.roll(t, "status"); !strings.Contains(out.String(), "`tidal roll resume` does") {
				return fmt.Errorf("status says\n%s", out)
			}
			return nil
		})
		if state == "started" {
			return
		}
		if out := c.roll(t, "resume", "-o", "json"); out.code != 0 {
			t.Errorf("resume ended with %d\n%s", out.code, out)
		}
		c.order(t)
	}
}

// cutOff begins a roll from elsewhere, and keeps every word of the operator's from the
// nodes once the first is in a state.
func (c *rollTrouble) cutOff(t *testing.T, state string) *exec.Cmd {
	t.Helper()
	visitor := len(c.nodes)
	alone := c.rollCmd(t, c.flags(2)...)
	line := append(c.net.enter(visitor), alone.Args...)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env, cmd.SysProcAttr = alone.Env, alone.SysProcAttr
	c.follow(t, cmd, `"state":"`+state+`"`)
	for i := range c.nodes {
		if err := c.net.cut(visitor, i); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

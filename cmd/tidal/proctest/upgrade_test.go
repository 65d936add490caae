package proctest_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
)

// What the binary under test is built with, and what stands instead of it in those of
// other releases: as long, so that a copy with other bytes is another release.
const (
	markedVersion = "proctest-release-A"
	markedLevels  = "levels-of-proctest:1-1"
)

// release makes a binary of another version, which speaks other feature levels.
func release(t *testing.T, path, version, levels string) {
	t.Helper()
	b, err := os.ReadFile(binary(t))
	if err != nil {
		t.Fatal(err)
	}
	for old, now := range map[string]string{markedVersion: version, markedLevels: "levels-of-proctest:" + levels} {
		if len(old) != len(now) || !bytes.Contains(b, []byte(old)) {
			if os.Getenv("TIDAL_BIN") == "" {
				t.Fatalf("the binary under test was built without %q in it", old)
			}
			t.Skipf("needs a binary that is marked with %q, and TIDAL_BIN names another", old)
		}
		b = bytes.ReplaceAll(b, []byte(old), []byte(now))
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

// Releases: a cluster begins with A, and goes to B, which brings another level. C is two
// levels ahead of A.
const (
	versionA, levelsA = markedVersion, "1-1"
	versionB, levelsB = "proctest-release-B", "1-2"
	versionC, levelsC = "proctest-release-C", "2-3"
)

// TestUpgrade rolls a cluster from release A to B, back, and to B again, under sixteen
// writers that send nothing twice; then it raises the feature level, after which
// nobody can go back. UPGRADE_RUNS sets how often, UPGRADE_NODES of how many nodes. What is
// promised is what TestRoll holds.
func TestUpgrade(t *testing.T) {
	var all rollResults
	for i := range runs(t, "UPGRADE_RUNS", 0) {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) { all = append(all, upgradeRun(t)) })
	}
	all.promised(t)
}

func upgradeRun(t *testing.T) rollResult {
	t.Helper()
	c := newCluster(t, clusterOptions{nodes: runs(t, "UPGRADE_NODES", 3)})
	b := filepath.Join(c.dir, "release-b")
	release(t, b, versionB, levelsB)
	for _, n := range c.nodes {
		n.program = filepath.Join(c.dir, n.id+"-bin", "tidal")
		release(t, n.program, versionA, levelsA)
	}
	c.startAll(t)
	tables := c.createTables(t, gracefulTables)
	f := launchKeeping(t, c.targets(), tables)
	pause(rollWarm + rollBefore(t, "UPGRADE_RUNS"))
	rolls := c.upgrades(t, f, b)
	f.stop()
	r := c.unnoticed(t, f, tables, rolls...)
	c.noWayBack(t)
	return r
}

// upgrades goes from A to B, back, and to B again, and returns the rolls that restarted
// nodes.
func (c *cluster) upgrades(t *testing.T, f *fleet, b string) []rolled {
	t.Helper()
	settling := func(args ...string) []string { return settling(t, "UPGRADE_RUNS", args...) }
	there := c.upgraded(t, f, versionB, settling("--yes", "-o", "json", "--binary", b)...)
	if out := c.roll(t, "--yes", "--binary", b); out.code != 0 || strings.Count(out.String(), "it runs "+versionB+" already") != len(c.nodes) {
		t.Errorf("nodes that run it were not left alone: exit %d\n%s", out.code, out)
	}
	back := c.upgraded(t, f, versionA, settling("rollback", "--yes", "-o", "json")...)
	// The first node is there already: somebody put the binary in its place.
	one := c.timedRoll(t, f, settling("--yes", "--only", "n1", "-o", "json", "--binary", b)...)
	if one.code != 0 {
		t.Fatalf("one node: exit %d\n%s", one.code, one)
	}
	again := c.upgraded(t, f, versionB, settling("--yes", "-o", "json", "--binary", b)...)
	if bytes.Contains(again.stdout, []byte(`"node":"n1","state":"stop"`)) || !strings.Contains(again.String(), "tidal cluster finalize") {
		t.Errorf("n1, which runs it, was stopped, or what to do next is not said\n%s", again)
	}
	return []rolled{there, back, one, again}
}

// upgraded rolls, and wants every node to run a release then, of the one file that its
// supervisor would start.
func (c *cluster) upgraded(t *testing.T, f *fleet, version string, args ...string) rolled {
	t.Helper()
	out := c.timedRoll(t, f, args...)
	if out.code != 0 || out.report.Refused != 0 || out.report.Status != "done" {
		t.Fatalf("roll %v: exit %d\n%s", args, out.code, out)
	}
	for i, n := range c.nodes {
		if got := c.local(t, i).Version; got != version {
			t.Errorf("%s runs %s, want %s", n.id, got, version)
		}
		file, err := os.ReadFile(n.program)
		if err != nil || !bytes.Contains(file, []byte(version)) {
			t.Errorf("what would start %s anew is not %s: %v", n.id, version, err)
		}
	}
	return out
}

// noWayBack raises the level, and wants release A to be refused everywhere then.
func (c *cluster) noWayBack(t *testing.T) {
	t.Helper()
	var was []api.Incarnation
	for i := range c.nodes {
		was = append(was, c.local(t, i).Incarnation)
	}
	for _, want := range []string{"has feature level 2", "nothing to do"} {
		if code, out := c.tidal(t, c.asAdmin("cluster", "finalize", "--yes")...); code != 0 || !strings.Contains(out, want) {
			t.Fatalf("finalize: exit %d\n%s", code, out)
		}
	}
	const sentence = "speaks level 1, and the cluster is at level 2"
	eventually(t, 10*time.Second, func() error {
		out := c.roll(t, "rollback", "--yes")
		if out.code != 7 || strings.Count(out.String(), sentence) != len(c.nodes) {
			return fmt.Errorf("rollback: exit %d\n%s", out.code, out)
		}
		return nil
	})
	for i := range c.nodes {
		if now := c.local(t, i).Incarnation; now != was[i] {
			t.Errorf("%s was restarted: it is %s", was[i], now)
		}
	}
	// By hand neither: the process says why, and ends.
	n := c.nodes[0]
	if err := n.stop(30 * time.Second); err != nil {
		t.Fatal(err)
	}
	for _, of := range [][2]string{{versionA, levelsA}, {"proctest-release-D", "3-4"}} { // too old, and too new
		release(t, n.program, of[0], of[1])
		ends(t, n, 3, "and the cluster is at level 2")
	}
	release(t, n.program, versionC, levelsC) // which speaks it
	n.start(t, "")
	c.healthy(t, 30*time.Second)
	var l api.ClusterLevel
	a := c.must(t, 1, http.MethodGet, "/v1/cluster/level", "", nil)
	if err := json.Unmarshal(a.body, &l); err != nil || l.Level != 2 || l.Possible != 2 || len(l.Members) != len(c.nodes) || l.Members[0].Levels == nil || l.Members[0].Levels.Max != 3 {
		t.Errorf("%v: %s", err, a)
	}
}

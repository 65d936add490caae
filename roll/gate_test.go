package roll_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"tidal/roll"
)

// world is a healthy cluster of three nodes with a table on all of them.
func world() *roll.View {
	v := &roll.View{At: time.Unix(1000, 0), Cluster: "prod", ClusterID: "c1", MetaLeader: "a"}
	for _, id := range []string{"a", "b", "c"} {
		v.Nodes = append(v.Nodes, roll.Node{
			ID: id, Address: "https://" + id, Disk: "d" + id, Incarnation: id + ".1.00000001", Version: "1.0", MetaVoter: true,
		})
	}
	v.Tables = []roll.Table{table("t", "a", "a", "b", "c")}
	v.Nodes[0].Owned = 1
	return v
}

func table(name, owner string, nodes ...string) roll.Table {
	t := roll.Table{Name: name, Owner: owner, Place: owner}
	for _, n := range nodes {
		t.Replicas = append(t.Replicas, roll.Replica{Node: n, Level: true})
	}
	return t
}

// TestGate: each check blocks, or warns, for its own reason, and the others let pass.
func TestGate(t *testing.T) {
	drains := func(v *roll.View, q *roll.Question) {
		v.Nodes[2].Draining, v.Nodes[2].Wrong, q.MaxUnavailable = true, []string{"it drains"}, 2
	}
	// downIn has c down, which had a zone and is seen in one, while nodes of one may be.
	downIn := func(now, was string) func(v *roll.View, q *roll.Question) {
		return func(v *roll.View, q *roll.Question) {
			v.Nodes[0].Zone, v.Nodes[1].Zone, v.Nodes[2].Zone, v.Nodes[2].Incarnation = "y", "x", now, ""
			q.MaxUnavailable, q.ByZone, q.Zones = 2, true, map[string]string{"a": "y", "b": "x", "c": was}
		}
	}
	onOne := func(v *roll.View, _ *roll.Question) { v.Nodes[0].MetaVoter, v.Nodes[2].MetaVoter = false, false }
	for _, tc := range []struct {
		name   string
		change func(v *roll.View, q *roll.Question)
		check  string // "": all pass
		level  roll.Level
		detail string
	}{
		{"all is well", func(*roll.View, *roll.Question) {}, "", roll.OK, ""},
		{"an old view", func(v *roll.View, q *roll.Question) { q.After = v.At.Add(time.Second) }, "view", roll.Block, "older than the step before"},
		{"an empty view", func(v *roll.View, _ *roll.Question) { v.Nodes = nil }, "view", roll.Block, "lists no nodes"},
		{"a member is missing", func(v *roll.View, _ *roll.Question) { v.Nodes = v.Nodes[:2] }, "members", roll.Block, "incomplete: 2 of 3"},
		{"a member too many", func(_ *roll.View, q *roll.Question) { q.Expected = []string{"a", "b"} }, "members", roll.Block, "does not know: c"},
		{"the node itself is no member", func(v *roll.View, q *roll.Question) {
			q.Expected, v.Nodes = nil, slices.Delete(v.Nodes, 1, 2)
		}, "members", roll.Block, "missing: b"},
		{"another is down", func(v *roll.View, _ *roll.Question) { v.Nodes[2].Incarnation = "" }, "budget", roll.Block, "c (it has no lease)"},
		{"another is not ready", func(v *roll.View, _ *roll.Question) { v.Nodes[2].Wrong = []string{"behind"} }, "budget", roll.Block, "c (behind)"},
		{"another is down, and two may be", downIn("x", "x"), "budget", roll.Warn, "not ready: c (it has no lease)"},
		{"in another zone", downIn("y", "y"), "budget", roll.Block, "and b is of another than c"},
		{"of which the plan knows the zone", downIn("", "x"), "budget", roll.Warn, "not ready: c (it has no lease)"},
		{"of which it knows another", downIn("", "y"), "budget", roll.Block, "and b is of another than c"},
		{"another is silent", func(v *roll.View, _ *roll.Question) { v.Nodes[2].Silent = "no answer" }, "table-quorum", roll.Block, "t would keep 1 of 3"},
		{"another drains, and two may be down", drains, "table-quorum", roll.Block, "t would keep 1 of 3 replicas that are level (a)"},
		{"its vote", drains, "meta-quorum", roll.Block, "would keep 1 of its 3 voters (a) and needs 2"},
		{"the node itself drains", func(v *roll.View, _ *roll.Question) { v.Nodes[1].Draining = true }, "", roll.OK, ""},
		{"the node itself is not ready", func(v *roll.View, _ *roll.Question) { v.Nodes[1].Wrong = []string{"behind"} }, "", roll.OK, ""},
		{"claimed by a person", func(v *roll.View, _ *roll.Question) { v.Nodes[1].Claim = "ann" }, "claims", roll.Block, "claimed by ann"},
		{"no voters", func(v *roll.View, _ *roll.Question) {
			for i := range v.Nodes {
				v.Nodes[i].MetaVoter = false
			}
		}, "meta-quorum", roll.Block, "nobody is known to vote"},
		{"the metadata on two", func(v *roll.View, _ *roll.Question) { v.Nodes[0].MetaVoter = false }, "meta-quorum", roll.Block, "would keep 1 of its 2 voters (c) and needs 2: of two none can be restarted"},
		{"on two, and tables may wait", func(v *roll.View, q *roll.Question) {
			v.Nodes[0].MetaVoter, q.AllowUnavailable = false, true
		}, "meta-quorum", roll.Block, "would keep 1 of its 2"},
		{"on two, of which one is away", func(v *roll.View, _ *roll.Question) {
			v.Nodes[0].MetaVoter, v.Nodes[2].Incarnation = false, ""
		}, "meta-quorum", roll.Block, "would keep 0 of its 2 voters (none) and needs 2"},
		{"the metadata on one", onOne, "meta-quorum", roll.Block, "the only voter"},
		{"accepted", func(v *roll.View, q *roll.Question) {
			onOne(v, q)
			q.AllowUnavailable = true
		}, "meta-quorum", roll.Warn, "the only voter"},
		{"a table that is elsewhere moves", func(v *roll.View, _ *roll.Question) {
			v.Tables = append(v.Tables, table("u", "a", "a", "c"))
			v.Tables[1].Moving = true
		}, "", roll.OK, ""},
		{"a replica is behind", func(v *roll.View, _ *roll.Question) { v.Tables[0].Replicas[2].Level = false }, "table-quorum", roll.Block, "t would keep 1 of 3 replicas that are level (a) and needs 2"},
		{"of another table", func(v *roll.View, _ *roll.Question) {
			v.Tables = append(v.Tables, table("u", "a", "a", "c"))
			v.Tables[1].Replicas[1].Level = false
		}, "", roll.OK, ""},
		{"a single replica here", func(v *roll.View, _ *roll.Question) { v.Tables = append(v.Tables, table("u", "b", "b")) }, "table-single", roll.Block, "u"},
		{"accepted", func(v *roll.View, q *roll.Question) {
			v.Tables = append(v.Tables, table("u", "b", "b"))
			q.AllowUnavailable = true
		}, "table-single", roll.Warn, "u"},
		{"a table without an owner", func(v *roll.View, _ *roll.Question) { v.Tables[0].Owner = "" }, "owners", roll.Block, "t"},
		{"elsewhere", func(v *roll.View, _ *roll.Question) { v.Tables = append(v.Tables, table("u", "", "a", "c")) }, "owners", roll.Warn, "u"},
		{"a single replica here, whose owner is away", func(v *roll.View, q *roll.Question) {
			v.Tables = append(v.Tables, table("u", "", "b"))
			q.AllowUnavailable = true
		}, "owners", roll.Warn, "u"}, // it needs no other one to come back
		{"a replica on its way", func(v *roll.View, _ *roll.Question) { v.Tables[0].Moving = true }, "moves", roll.Block, "t"},
		{"a request was refused", func(_ *roll.View, q *roll.Question) { q.Refused = 1 }, "refused", roll.Block, "1 requests"},
		{"as many as may be", func(_ *roll.View, q *roll.Question) { q.Refused, q.MaxRefusals = 3, 3 }, "", roll.OK, ""},
	} {
		v, q := world(), roll.Question{Nodes: []string{"b"}, Expected: []string{"a", "b", "c"}}
		tc.change(v, &q)
		got := roll.Checks(v, q)
		i := slices.IndexFunc(got, func(c roll.Check) bool { return c.Name == tc.check })
		switch {
		case tc.check == "":
			for _, c := range got {
				if c.Level != roll.OK {
					t.Errorf("%s: %+v", tc.name, c)
				}
			}
		case i < 0 || got[i].Level != tc.level || !strings.Contains(got[i].Detail, tc.detail):
			t.Errorf("%s: want %s %s %q, got %+v", tc.name, tc.check, tc.level, tc.detail, got)
		case tc.level == roll.Block && got[i].Hint == "":
			t.Errorf("%s: no hint", tc.name)
		}
	}
}

// TestHintOfSmallClusters: where all is well and the cluster is too small, the hint is not
// to bring anything back.
func TestHintOfSmallClusters(t *testing.T) {
	for voters, want := range map[int]string{1: "--allow-unavailable", 2: "add a third node", 3: "bring the other voters back"} {
		v, q := world(), roll.Question{Nodes: []string{"b"}}
		v.Nodes[0].MetaVoter, v.Nodes[2].MetaVoter = voters == 3, voters > 1
		if voters == 3 {
			v.Nodes[2].Incarnation = ""
		}
		all := roll.Blocked(roll.Checks(v, q))
		i := slices.IndexFunc(all, func(c roll.Check) bool { return c.Name == "meta-quorum" })
		if i < 0 || !strings.Contains(all[i].Hint, want) {
			t.Errorf("%d voters: %+v, want %q", voters, all, want)
		}
	}
}

// TestGateOfSets: two nodes may go together only where every quorum survives both.
func TestGateOfSets(t *testing.T) {
	v := world()
	for _, id := range []string{"d", "e"} {
		v.Nodes = append(v.Nodes, roll.Node{ID: id, Incarnation: id + ".1.00000001", MetaVoter: true})
	}
	v.Tables = []roll.Table{table("five", "a", "a", "b", "c", "d", "e"), table("three", "a", "a", "b", "c")}
	q := roll.Question{Nodes: []string{"b", "d"}, MaxUnavailable: 2}
	if all := roll.Blocked(roll.Checks(v, q)); len(all) > 0 {
		t.Errorf("b and d: %+v", all)
	}
	q.Nodes = []string{"b", "c"}
	all := roll.Blocked(roll.Checks(v, q))
	if len(all) != 1 || all[0].Name != "table-quorum" || !strings.Contains(all[0].Detail, "three would keep 1") || strings.Contains(all[0].Detail, "five") {
		t.Errorf("b and c: %+v", all)
	}
}

func TestOrder(t *testing.T) {
	v := world()
	v.Nodes[1].Owned, v.Nodes[2].Owned = 5, 2
	if got := fmt.Sprint(roll.Order(v, v.IDs())); got != "[c b a]" {
		t.Errorf("the leader of the metadata last: %s", got)
	}
	v.Nodes[0].Wrong = []string{"behind"}
	if got := fmt.Sprint(roll.Order(v, v.IDs())); got != "[a c b]" {
		t.Errorf("what is not ready first: %s", got)
	}
}

func TestPlan(t *testing.T) {
	v := world()
	v.Nodes[2].Version = "2.0"
	p, err := roll.NewPlan(v, roll.Options{Version: "2.0", Skip: []string{"b"}, MaxUnavailable: 1})
	if err != nil || fmt.Sprint(p.Rolled()) != "[a]" {
		t.Fatalf("%+v, %v", p, err)
	}
	for _, n := range p.Nodes {
		if want := map[string]string{"a": "", "b": "it is among those of --skip", "c": "it runs 2.0 already"}[n.Node]; n.Skip != want {
			t.Errorf("%+v, want skipped %q", n, want)
		}
	}
	if _, err := roll.NewPlan(v, roll.Options{Only: []string{"x"}}); err == nil || !strings.Contains(err.Error(), "there is no node x") {
		t.Errorf("of no member: %v", err)
	}
	if changes := p.Changes(v); len(changes) > 0 {
		t.Errorf("nothing has changed: %q", changes)
	}
	for name, change := range map[string]func(v *roll.View){
		"and this is":       func(v *roll.View) { v.ClusterID = "c2" },
		"a is a.2.":         func(v *roll.View) { v.Nodes[0].Incarnation = "a.2.00000001" },
		"without a lease":   func(v *roll.View) { v.Nodes[0].Incarnation = "" },
		"has another disk":  func(v *roll.View) { v.Nodes[0].Disk = "new" },
		"a runs 3.0":        func(v *roll.View) { v.Nodes[0].Version = "3.0" },
		"d is new":          func(v *roll.View) { v.Nodes = append(v.Nodes, roll.Node{ID: "d"}) },
		"no member any":     func(v *roll.View) { v.Nodes = v.Nodes[:2] },
		"tables are others": func(v *roll.View) { v.Tables[0].Replicas = v.Tables[0].Replicas[:2] },
	} {
		v := world()
		v.Nodes[2].Version = "2.0"
		change(v)
		if got := fmt.Sprint(p.Changes(v)); !strings.Contains(got, name) {
			t.Errorf("changes %s, want %q", got, name)
		}
	}
}

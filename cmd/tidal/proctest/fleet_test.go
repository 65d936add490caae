package proctest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// late is how late the fake's followers may be.
const late = time.Second

// drive runs a small fleet against a fake cluster.
func drive(t *testing.T, f *fake) (*fleet, []target, *report) {
	t.Helper()
	targets := f.targets(t)
	fl := launch(t, targets, fleetOptions{tables: []string{"t0", "t1"}, perTable: 4, rate: 400})
	pause(300 * time.Millisecond)
	lasted := time.Since(fl.began)
	fl.stop()
	return fl, targets, summarise(fl.writes(), lasted)
}

// TestCheckFindsNothing: against honest nodes the harness has nothing to say.
func TestCheckFindsNothing(t *testing.T) {
	f := &fake{}
	f.lag = late / 2 // a follower may apply later
	fl, targets, r := drive(t, f)
	wrong, _ := readBack(targets, append(fl.writes(), fl.unsent([]string{"t0", "t1"})...), late)
	if r.refused > 0 || len(wrong) > 0 {
		t.Errorf("%s%v", r, wrong)
	}
	for _, table := range []string{"t0", "t1"} {
		if rate := r.perSecond(table); rate < 200 || rate > 500 {
			t.Errorf("%s: %.0f writes/s, asked for 400", table, rate)
		}
	}
	for _, w := range fl.writers {
		nodes := map[string]int{}
		for _, x := range w.writes {
			nodes[x.node]++
		}
		if each := len(w.writes) / 3; nodes["n1"] < each || nodes["n2"] < each || nodes["n3"] < each {
			t.Errorf("writer %d asked %v: want each node in turn", w.id, nodes)
		}
	}
}

// TestCheckFinds: each lie of a cluster is found, by its name.
func TestCheckFinds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		lies lies
		want string
	}{
		{"lost", lies{lose: 20}, "acknowledged, and lost"},
		{"applied again", lies{double: 20}, "it was applied again"},
		{"applied twice under one answer", lies{resend: 20}, "applied twice"},
		{"garbled", lies{garble: 20}, "value is"},
		{"missing from one replica", lies{hide: 20}, "n2: local: "},
		{"invented", lies{invent: 3}, "never sent, and there"},
		{"refused and applied", lies{refuse: 20, apply: true}, "refused as not applied"},
		{"replicas differ", lies{hang: 20, differ: true}, "replicas differ"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			fl, targets, r := drive(t, &fake{lies: tc.lies})
			wrong, _ := readBack(targets, append(fl.writes(), fl.unsent([]string{"t0", "t1"})...), late)
			if len(wrong) == 0 || !strings.Contains(wrong[0], tc.want) {
				t.Errorf("want %q, got %d wrong: %.200v\n%s", tc.want, len(wrong), wrong, r)
			}
		})
	}
}

// TestUnknownIsNoError: a broken connection leaves a row that may be there, once.
func TestUnknownIsNoError(t *testing.T) {
	fl, targets, r := drive(t, &fake{lies: lies{hang: 20}})
	wrong, applied := readBack(targets, fl.writes(), late)
	if len(wrong) > 0 || r.refused == 0 || applied != r.refused {
		t.Errorf("%d applied, want all of the unknown ones\n%s%v", applied, r, wrong)
	}
}

// TestRefusalsAreGrouped: refusals of one kind are one line of the report.
func TestRefusalsAreGrouped(t *testing.T) {
	_, _, r := drive(t, &fake{lies: lies{refuse: 10}})
	if r.refused < 2 || len(r.groups) != 1 {
		t.Fatalf("want several refusals in one group\n%s", r)
	}
	for why, g := range r.groups {
		if g.count != r.refused || why != "503 no-owner: table has had no owner for #s" {
			t.Errorf("%d of %d: %s", g.count, r.refused, why)
		}
	}
}

// TestNothingIsResent: a write whose connection broke is sent once, whatever
// net/http thinks.
func TestNothingIsResent(t *testing.T) {
	f := &fake{lies: lies{hang: 10}}
	got := map[string]int{}
	f.receive = func(key string) { got[key]++ } // called under the fake's lock
	fl, _, _ := drive(t, f)
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range fl.writes() {
		if n := got[fmt.Sprintf("/v1/tables/%s/rows/%s", w.table, w.key)]; n != 1 {
			t.Errorf("%s/%s arrived %d times", w.table, w.key, n)
		}
	}
}

// TestRotation: a node that is not healthy gets no writes.
func TestRotation(t *testing.T) {
	f := &fake{}
	fl := launch(t, f.targets(t), fleetOptions{tables: []string{"t0"}, perTable: 4, rate: 400})
	f.mu.Lock()
	f.sick = true
	f.mu.Unlock()
	eventually(t, 5*time.Second, func() error { return fl.outOfRotation(0) })
	left := time.Since(fl.began)
	pause(300 * time.Millisecond)
	fl.stop()
	after := 0
	for _, w := range fl.writes() {
		if w.at < left+10*time.Millisecond {
			continue
		}
		if after++; w.node == "n1" {
			t.Errorf("%s went to n1 at %v; it left the rotation at %v", w.key, w.at, left)
		}
	}
	if after == 0 {
		t.Error("nothing was written after n1 left the rotation")
	}
}

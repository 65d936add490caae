package ready_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"tidal/node/api"
	"tidal/node/internal/ready"
)

func TestLatch(t *testing.T) {
	type f = ready.Frontier
	for _, test := range []struct {
		name  string
		do    func(l *ready.Latch)
		level bool
	}{
		{"nobody said anything", func(l *ready.Latch) { l.Applied(100) }, false},
		{"an unset frontier", func(l *ready.Latch) { l.Heard(f{}); l.Applied(100) }, false},
		{"an index without a term", func(l *ready.Latch) { l.Heard(f{Index: 5}); l.Applied(100) }, false},
		{"a term without an index", func(l *ready.Latch) { l.Heard(f{Term: 5}); l.Applied(100) }, false},
		{"behind", func(l *ready.Latch) { l.Heard(f{2, 10}); l.Applied(9) }, false},
		{"reached", func(l *ready.Latch) { l.Heard(f{2, 10}); l.Applied(10) }, true},
		{"applied first, told after", func(l *ready.Latch) { l.Applied(10); l.Heard(f{2, 10}); l.Applied(10) }, true},
		{"a busy table runs ahead", func(l *ready.Latch) {
			for i := range uint64(20) {
				l.Heard(f{2, 10 + 5*i})
				l.Applied(5 * i)
			}
		}, true},
		{"a newer term sets a new goal", func(l *ready.Latch) { l.Heard(f{2, 10}); l.Heard(f{3, 20}); l.Applied(15) }, false},
		{"an older term does not", func(l *ready.Latch) { l.Heard(f{3, 20}); l.Heard(f{2, 10}); l.Applied(15) }, false},
		{"once is for ever", func(l *ready.Latch) { l.Heard(f{2, 10}); l.Applied(10); l.Heard(f{3, 99}); l.Applied(11) }, true},
		{"a leader is level with itself", func(l *ready.Latch) { l.Lead() }, true},
	} {
		var l ready.Latch
		test.do(&l)
		if l.Level() != test.level {
			t.Errorf("%s: level is %t", test.name, l.Level())
		}
	}
}

func level() ready.Latch {
	var l ready.Latch
	l.Lead()
	return l
}

func to(index uint64) ready.Latch {
	var l ready.Latch
	l.Heard(ready.Frontier{Term: 1, Index: index})
	return l
}

func serving() ready.Input {
	return ready.Input{
		Phase: ready.Serving, Formed: true, Leased: true, Members: 3, Heard: 3,
		Meta:   ready.Replica{Latch: level(), HasLeader: true},
		Tables: []ready.Replica{{Table: "t1", Latch: level(), HasLeader: true}},
	}
}

func say(reasons []api.Reason) string {
	var out []string
	for _, r := range reasons {
		s := r.Code + ": " + r.Detail
		if r.Table != "" || r.Lag != 0 {
			s += fmt.Sprintf(" [%s lag %d]", r.Table, r.Lag)
		}
		if r.Snapshot != nil {
			s += fmt.Sprint(" snapshot ", *r.Snapshot)
		}
		out = append(out, s)
	}
	return strings.Join(out, "; ")
}

func TestReasons(t *testing.T) {
	for _, test := range []struct {
		name string
		set  func(in *ready.Input)
		want string
	}{
		{"ready", func(*ready.Input) {}, ""},
		{"opening", func(in *ready.Input) { *in = ready.Input{Phase: ready.Prepare} }, "starting: the node is in phase prepare"},
		{"listening", func(in *ready.Input) { in.Phase = ready.Listen }, "starting: the node is in phase listen"},
		{"forming", func(in *ready.Input) { *in = ready.Input{Phase: ready.Start} }, "starting: the node is in phase start; forming: the node belongs to no cluster yet"},
		{"starting", func(in *ready.Input) { in.Phase = ready.Start }, "starting: the node is in phase start"},
		{"no phase", func(in *ready.Input) { in.Phase = "" }, "starting: the node is in phase "},
		{"lost its cluster", func(in *ready.Input) { in.Formed = false }, "forming: the node belongs to no cluster yet"},
		{"stop drains", func(in *ready.Input) { in.Phase = ready.Drain }, "draining: the node hands over its tables and will stop"},
		{"stops", func(in *ready.Input) { in.Phase = ready.Stop }, "stopping: the node stops"},
		{"lease gone", func(in *ready.Input) { in.Leased = false }, "no-lease: the node's lease is not granted"},
		{"operator's drain", func(in *ready.Input) { in.Draining = true }, "draining: the node was told to hand over its tables"},
		{"hears two of three", func(in *ready.Input) { in.Heard = 2 }, ""},
		{"hears one of three", func(in *ready.Input) { in.Heard = 1 }, "isolated: the node hears 1 of 3 members"},
		{"hears half", func(in *ready.Input) { in.Heard, in.Members = 2, 4 }, ""},
		{"the only one", func(in *ready.Input) { in.Heard, in.Members = 1, 1 }, ""},
		{"meta behind", func(in *ready.Input) { in.Meta = ready.Replica{Latch: to(9), Applied: 4} }, "meta-behind: has applied 4 of 9 entries [ lag 5]"},
		{"meta unknown", func(in *ready.Input) { in.Meta.Latch = ready.Latch{} }, "meta-behind: no leader has said yet how far it is"},
		{"table behind", func(in *ready.Input) {
			in.Tables = append(in.Tables, ready.Replica{Table: "t2", HasLeader: true, Applied: 7, Latch: to(1211)})
		}, "table-behind: has applied 7 of 1211 entries [t2 lag 1204]"},
		{"table behind, a snapshot comes", func(in *ready.Input) {
			in.Tables = append(in.Tables, ready.Replica{Table: "t2", HasLeader: true, Applied: 7, Latch: to(1211), Receives: true, Snapshot: 0.37})
		}, "table-behind: has applied 7 of 1211 entries, and receives a snapshot, of which 37 % are here [t2 lag 1204] snapshot 0.37"},
		{"level, a snapshot comes", func(in *ready.Input) { in.Tables[0].Receives = true }, ""},
		{
			"a replica that differs", func(in *ready.Input) { in.Fenced = []string{"t1"} },
			"replica-differs: the replica here differs from what most others have, and serves nothing [t1 lag 0]",
		},
		{"unset frontier", func(in *ready.Input) {
			in.Tables = append(in.Tables, ready.Replica{Table: "t2", HasLeader: true, Applied: 1 << 40})
		}, "table-behind: no leader has said yet how far it is [t2 lag 0]"},
		{"no leader anywhere", func(in *ready.Input) {
			in.Tables = append(in.Tables, ready.Replica{Table: "t2", Latch: to(9)}, ready.Replica{Table: "t3"})
		}, ""},
		{"level once, leader back, behind now", func(in *ready.Input) { in.Tables[0].Applied = 0 }, ""},
		{"all at once", func(in *ready.Input) {
			*in = ready.Input{Phase: ready.Serving, Formed: true, Members: 3, Heard: 1, Tables: []ready.Replica{{Table: "t1", HasLeader: true}}}
		}, "no-lease: the node's lease is not granted; isolated: the node hears 1 of 3 members; " +
			"meta-behind: no leader has said yet how far it is; table-behind: no leader has said yet how far it is [t1 lag 0]"},
	} {
		in := serving()
		test.set(&in)
		if got := say(ready.Reasons(in)); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestManyTablesAreCounted(t *testing.T) {
	in := serving()
	for i := range 100 {
		in.Tables = append(in.Tables, ready.Replica{Table: fmt.Sprint("x", i), HasLeader: true})
	}
	got := ready.Reasons(in)
	if len(got) != 21 || got[20].Detail != "and 80 more tables" {
		t.Errorf("%d reasons, the last is %+v", len(got), got[len(got)-1])
	}
	in = serving()
	in.Fenced = make([]string, 30)
	if got = ready.Reasons(in); len(got) != 21 || got[20].Detail != "and 10 more tables" {
		t.Errorf("%d reasons, the last is %+v", len(got), got[len(got)-1])
	}
}

// Every code is one of the set that the API promises.
func TestCodes(t *testing.T) {
	known := []string{"starting", "forming", "no-lease", "draining", "meta-behind", "table-behind", "isolated", "stopping"}
	seen := map[string]bool{}
	for _, phase := range []ready.Phase{ready.Prepare, ready.Start, ready.Serving, ready.Drain, ready.Stop} {
		for _, formed := range []bool{false, true} {
			in := ready.Input{Phase: phase, Formed: formed, Members: 3, Tables: []ready.Replica{{HasLeader: true}}}
			for _, r := range ready.Reasons(in) {
				seen[r.Code] = true
				if !slices.Contains(known, r.Code) {
					t.Errorf("code %q is not known", r.Code)
				}
			}
		}
	}
	if len(seen) != len(known) {
		t.Errorf("only %v were seen", seen)
	}
}

package proctest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// history reads acts on one row, one a line: from when to when, what, and what was
// told. "-" is no answer.
func history(t *testing.T, text string) (acts []act) {
	t.Helper()
	answers := map[string]told{
		"-": {}, "done1": {known: true, at: 1}, "done2": {known: true, at: 2}, "done3": {known: true, at: 3}, "done4": {known: true, at: 4},
		"none": {known: true}, "x1": {known: true, at: 1, value: "x"}, "x2": {known: true, at: 2, value: "x"},
		"y2": {known: true, at: 2, value: "y"}, "y3": {known: true, at: 3, value: "y"},
		"failed": {known: true, failed: true}, "failed1": {known: true, failed: true, at: 1}, "failed2": {known: true, failed: true, at: 2},
		"failed3": {known: true, failed: true, at: 3},
	}
	requests := map[string]asked{
		"get": {}, "x": {kind: actPut, value: "x"}, "y": {kind: actPut, value: "y"}, "z": {kind: actPut, value: "z"},
		"y-if-1": {kind: actPut, value: "y", match: 1}, "z-if-1": {kind: actPut, value: "z", match: 1}, "z-if-2": {kind: actPut, value: "z", match: 2},
		"y-if-none": {kind: actPut, value: "y", absent: true}, "delete": {kind: actDelete}, "delete-if-1": {kind: actDelete, match: 1},
	}
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		w := strings.Fields(line)
		request, ok := requests[w[1]]
		reply, also := answers[w[2]]
		if !ok || !also || len(w[0]) != 2 {
			t.Fatalf("%q: what is that?", line)
		}
		acts = append(acts, act{client: i, asked: request, told: reply, began: time.Duration(w[0][0]), ended: time.Duration(w[0][1])})
	}
	return acts
}

// TestJudgeRow gives the checker histories that are right, and some that are not.
func TestJudgeRow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, text string
		want       porcupine.CheckResult
	}{
		{"write and read", "ab x done1\ncd get x1", porcupine.Ok},
		{"no row yet", "ab get none", porcupine.Ok},
		{"lost", "ab x done1\ncd get none", porcupine.Illegal},
		{"stale", "ab x done1\ncd y done2\nef get x1", porcupine.Illegal},
		{"either, while it is written", "ab x done1\ncf y done2\nde get x1\ndg get y2", porcupine.Ok},
		{"new, then old", "ab x done1\nch y done2\nde get y2\nfg get x1", porcupine.Illegal},
		{"applied twice", "ab x done1\ncd get x2", porcupine.Illegal},
		{"versions go back", "ab x done2\ncd y done1", porcupine.Illegal},
		{"refused and there", "ab get x1", porcupine.Illegal},
		{"unknown and never seen", "ab x -\ncd get none\nef get none", porcupine.Ok},
		{"unknown and late", "ab x -\ncd get none\nef get x1", porcupine.Ok},
		{"unknown and gone again", "ab x -\ncd get x1\nef get none", porcupine.Illegal},
		{"unknown and twice", "ab x -\ncd get x1\nef y done2\ngh get x2", porcupine.Illegal},
		{"unknown before its time", "ab get x1\ncd x -", porcupine.Illegal},
		{"deleted by nobody knows whom", "ab x done1\ncd delete -\nef get x1\ngh get none\nij y done3\nkl get y3", porcupine.Ok},
		{"deleted once, gone twice", "ab x done1\ncd delete -\nef get none\ngh y done3\nij get none", porcupine.Illegal},
		{"deleted", "ab x done1\ncd delete done2\nef get none", porcupine.Ok},
		{"deleted and there", "ab x done1\ncd delete done2\nef get x1", porcupine.Illegal},
		{"a condition that holds", "ab x done1\ncd y-if-1 done2\nef get y2", porcupine.Ok},
		{"a condition that held once", "ab x done1\ncd y done2\nef z-if-1 done3", porcupine.Illegal},
		{"two with one condition", "ab x done1\ncf y-if-1 done2\ncf z-if-1 done3", porcupine.Illegal},
		{"a condition that fails", "ab x done1\ncd y done2\nef z-if-1 failed2", porcupine.Ok},
		{"a condition that must hold fails", "ab x done1\ncd y-if-1 failed1", porcupine.Illegal},
		{"a condition on a row that is gone", "ab x done1\ncd delete done2\nef y-if-1 failed", porcupine.Ok},
		{"it is gone, they say", "ab x done1\ncd y-if-1 failed", porcupine.Illegal},
		{"creates twice", "ab x done1\ncd y-if-none done2", porcupine.Illegal},
		{"creates", "ab y-if-none done2\ncd get y2", porcupine.Ok},
		{"an unknown one fails a condition", "ab x done1\ncd y -\nef z-if-1 failed2\ngh get y2", porcupine.Ok},
		{"one that nobody read fails a condition", "ab x done1\ncd y -\nef z-if-1 failed2\ngh z-if-2 done3", porcupine.Ok},
		{"nobody can have failed it", "ab x done1\nef z-if-1 failed2", porcupine.Illegal},
		{"one of two that nobody read fails a condition", "ab x done1\nab y -\ncd z -\nef z-if-1 failed2\ngh z-if-2 done3", porcupine.Ok},
		{"it began too late to have failed it", "ab x done1\nef z-if-1 failed2\ngh y -", porcupine.Illegal},
		{"its own condition cannot have held", "ab x done1\ncd y done2\nce z-if-1 -\nef z-if-2 failed3", porcupine.Illegal},
		{"its own condition can have held", "ab x done1\ncd y done2\nce z-if-2 -\nef y-if-1 failed3", porcupine.Ok},
		{"two that nobody read fail two conditions", "ab x done1\nab y -\nab y -\ncd z-if-1 failed2\nef z-if-2 failed3", porcupine.Ok},
		{"one that nobody read fails no two", "ab x done1\nab y -\ncd z-if-1 failed2\nef z-if-2 failed3", porcupine.Illegal},
		{"an unknown condition", "ab x done1\ncd delete-if-1 -\nef get x1\ngh get none", porcupine.Ok},
		{"an unknown condition that never held", "ab x done1\ncd y done2\nef delete-if-1 -\ngh get none", porcupine.Illegal},
	} {
		if got := judgeRow(history(t, test.text), time.Minute); got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
}

// TestJudgeRowOfManyUnknown has one of many writes of unknown outcome fail a condition,
// among reads: which one it was must not be tried out in every order.
func TestJudgeRowOfManyUnknown(t *testing.T) {
	t.Parallel()
	acts := history(t, "ab x done1")
	for i := range 40 {
		at := time.Duration('c' + 2*i)
		acts = append(acts,
			act{client: 2 * i, asked: asked{kind: actPut, value: fmt.Sprint(i)}, began: at, ended: at + 1},
			act{client: 2*i + 1, told: told{known: true, at: 1, value: "x"}, began: at, ended: at + 1})
	}
	late := act{client: 100, asked: asked{kind: actPut, value: "z", match: 1}, told: told{known: true, failed: true, at: 2}, began: 1000, ended: 1001}
	if got := judgeRow(append(slices.Clone(acts), late), time.Minute); got != porcupine.Ok {
		t.Errorf("it is %v, and one of 40 writes can have failed the condition", got)
	}
	old := act{client: 101, told: told{known: true, at: 1, value: "x"}, began: 1002, ended: 1003}
	if got := judgeRow(append(acts, late, old), time.Minute); got != porcupine.Illegal {
		t.Errorf("it is %v, and a read is older than the version that failed a condition", got)
	}
}

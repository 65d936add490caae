package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"tidal/node/api"
	"tidal/roll"
	"tidal/roll/generic"
)

// givesBack is a cluster of which no more is asked than to give nodes back.
type givesBack struct{ rolledCluster }

func (givesBack) Undrain(context.Context, string, roll.Hold) error { return nil }

// rollPausedWith begins a command about a roll whose operator refused three requests, and
// paused it.
func rollPausedWith(t *testing.T, format string) (*rolling, api.Roll, *bytes.Buffer) {
	t.Helper()
	f, err := generic.OpenFile(filepath.Join(t.TempDir(), "rolls.json"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	report, err := json.Marshal(roll.Report{Event: "report", Roll: 1, Epoch: 1, Status: "paused", Requests: 40, Refused: 3, Nodes: []roll.NodeReport{{Node: "a", Refused: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	var r api.Roll
	for _, x := range []struct {
		a api.RollAction
		c api.RollChange
	}{
		{api.RollStart, api.RollChange{By: "ann", Data: json.RawMessage(`{"nodes":[{"node":"a"}]}`)}},
		{api.RollEnd, api.RollChange{Epoch: 1, Status: api.RollPaused, Why: "3 were refused", Data: report}},
	} {
		if r, err = f.ChangeRoll(t.Context(), x.a, 1, x.c); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	return &rolling{app: &app{stdout: &out, stderr: t.Output()}, format: format, cl: f, tidal: givesBack{}}, r, &out
}

// TestAbortKeepsTheReport: who aborts a roll that is paused has counted nothing: what was
// counted until then stays, as the report of a roll that was aborted.
func TestAbortKeepsTheReport(t *testing.T) {
	w, r, _ := rollPausedWith(t, formatTable)
	if err := w.undo(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	r, err := w.cl.Roll(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	var report roll.Report
	if err = json.Unmarshal(r.Report, &report); err != nil {
		t.Fatalf("the roll is %+v: %v", r, err)
	}
	if report.Refused != 3 || report.Status != "aborted" || report.Why != r.Why || report.Epoch != 2 || report.Nodes[0].Unknown != "" {
		t.Errorf("the report is %+v", report)
	}
}

// TestNoReportOfBefore: a roll that was resumed is not shown with the report of its last
// pause as its own, in a table, in JSON, or when it was unlocked and is watched.
func TestNoReportOfBefore(t *testing.T) {
	for _, format := range []string{formatTable, formatJSON} {
		w, r, out := rollPausedWith(t, format)
		reports := func() bool { return strings.Contains(strings.ToLower(out.String()), "p99") }
		if err := w.show(t.Context(), 0); err != nil || !reports() {
			t.Errorf("paused it is shown as %s, %v", out, err)
		}
		if _, err := w.cl.ChangeRoll(t.Context(), api.RollTake, 1, api.RollChange{Epoch: 1, By: "bob"}); err != nil {
			t.Fatal(err)
		}
		out.Reset()
		if err := w.show(t.Context(), 0); err != nil || reports() || strings.Contains(out.String(), "paused") {
			t.Errorf("resumed it is shown as %s, %v", out, err)
		}
		r, err := w.cl.ChangeRoll(t.Context(), api.RollUnlock, 1, api.RollChange{By: "eve", Why: "unlocked by eve"})
		if err != nil {
			t.Fatal(err)
		}
		out.Reset()
		if err = w.ended(&r); codeOf(err) != exitAborted {
			t.Errorf("watched it ends with %v", err)
		}
		if format == formatJSON {
			var last roll.Report
			if err = json.Unmarshal(out.Bytes(), &last); err != nil || last.Status != "aborted" || last.Refused != 3 || !strings.Contains(last.Nodes[0].Unknown, "from the last pause to epoch 3") {
				t.Errorf("unlocked its last line is %s, %v", out, err)
			}
		}
	}
}

// TestUntoldHasAHint: a roll whose end the journal does not know ends with what it came to,
// and with what to do about the lock.
func TestUntoldHasAHint(t *testing.T) {
	untold := &roll.UntoldError{Err: errors.New("no quorum"), Hint: "resume it"}
	for _, tc := range []struct {
		err  error
		code exitCode
	}{{untold, exitFailed}, {errors.Join(roll.ErrAborted, untold), exitAborted}, {errors.Join(&roll.TroubleError{Why: "stuck", Hint: untold.Hint}, untold), exitPaused}} {
		err := rollError(1, tc.err)
		if codeOf(err) != tc.code || hintOf(err) != untold.Hint {
			t.Errorf("%v ends with %d, and the hint %q", err, codeOf(err), hintOf(err))
		}
	}
}

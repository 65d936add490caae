package main

import (
	"strings"
	"testing"

	"tidal/node/api"
)

// TestPausedByWhom: of a roll whose journal sees no processes, who asks for a pause is told
// for how long nobody has heard its operator, and when that is too long to promise one.
func TestPausedByWhom(t *testing.T) {
	w := &rolling{}
	ms := func(n int64) *int64 { return &n }
	for _, x := range []struct {
		silent      *int64
		heard, says string
		code        exitCode
	}{
		{silent: ms(1000)},
		{silent: ms(8200), heard: "nobody has heard its operator for 8s"},
		{silent: ms(15_000), says: "nobody is there to pause roll 3: nobody has heard ann for 15s", code: exitFailed},
		{heard: "whether its operator lives is not known"},
	} {
		r := &api.Roll{ID: 3, By: "ann", Status: api.RollRunning, Silent: x.silent}
		err := w.nobodyPauses(r)
		if codeOf(err) != x.code || err != nil && (!strings.Contains(err.Error(), x.says) || !strings.Contains(hintOf(err), "tidal roll resume")) {
			t.Errorf("of %v: %v", x, err)
		}
		if got := w.lastHeard(r); err == nil && (!strings.Contains(got, x.heard) || x.heard == "" && got != "") {
			t.Errorf("of %v is said %q", x, got)
		}
	}
}

package roll_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tidal/roll"
)

// TestWarningIsNoAnswer: what a command says on stderr is not its answer, and is there
// when it fails.
func TestWarningIsNoAnswer(t *testing.T) {
	const warns = "echo 'a host was added' >&2; echo 42; "
	for end, fails := range map[string]bool{"exit 0": false, "exit 3": true} {
		out, err := roll.Process{Argv: []string{"/bin/sh", "-c", warns + end}, Limit: 10 * time.Second}.Run(t.Context())
		if out != "42\n" || (err != nil) != fails {
			t.Errorf("%s: %q, %v", end, out, err)
		}
		failed, ok := errors.AsType[*roll.CommandError](err)
		if ok != fails || ok && (!strings.Contains(failed.Output, "a host was added") || !strings.Contains(failed.Output, "42")) {
			t.Errorf("%s: %v", end, err)
		}
	}
}

package roll

import (
	"strings"
	"testing"
)

// TestKillTime: who kills a node before it can have stopped is named before anything
// is stopped.
func TestKillTime(t *testing.T) {
	nodes := []Node{{ID: "a", Address: "https://a:1"}, {ID: "b", Address: "https://b:1"}}
	for ask, want := range map[string]struct {
		level Level
		text  string
	}{
		"echo 1min 30s": {OK, "at least 22s"},
		"echo infinity": {OK, "at least 22s"},
		"test {host} = a && echo 22s || echo 21.999s": {Block, "systemd would kill b after 21.999s"},
		"echo 0":                          {Block, "no time of systemd"},
		"true":                            {Block, "is there a unit tidal?"},
		"echo unit not found >&2; exit 4": {Block, "exit status 4: unit not found"},
	} {
		if c := checkKillTime(t.Context(), ask, nodes); c.Level != want.level || !strings.Contains(c.Detail, want.text) || (c.Hint == "") != (c.Level == OK) {
			t.Errorf("%s: %+v", ask, c)
		}
	}
	if c := (&Exec{Command: "service tidal restart"}).CheckKillTime(t.Context(), nodes); c.Level != Warn || !strings.Contains(c.Detail, "22s") {
		t.Errorf("a command of one's own: %+v", c)
	}
}

package main

import (
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"tidal": main})
}

// TestScript runs testdata/script/*.txtar: what a user types and what comes back.
func TestScript(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("HOME", e.WorkDir)
			e.Defer(func() { killFleets(t, e.WorkDir) })
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":  exits,
			"occupy": occupy,
			"await":  await,
			"bytes":  writeBytes,
		},
	})
}

// killFleets ends what a script that failed has left of its tidal dev.
func killFleets(t *testing.T, dir string) {
	t.Helper()
	states, err := filepath.Glob(filepath.Join(dir, "*", "dev.json"))
	if err != nil {
		t.Error(err)
	}
	for _, state := range states {
		f, err := readFleet(filepath.Dir(state))
		if err != nil {
			continue // a script may have made it so
		}
		for _, pid := range f.runningPIDs() {
			t.Logf("process %d of %s is left: it is killed", pid, f.dir)
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				t.Error(err)
			}
		}
	}
}

// exits runs a command and wants it to end with a code: exits CODE PROGRAM [ARGS].
func exits(ts *testscript.TestScript, neg bool, args []string) { //nolint:revive // the signature is testscript's
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM [ARGS]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		exit, ok := errors.AsType[*exec.ExitError](err)
		if !ok {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// writeBytes makes a file of any bytes, written as in a Go string: bytes FILE TEXT.
func writeBytes(ts *testscript.TestScript, _ bool, args []string) {
	text, err := strconv.Unquote(`"` + strings.ReplaceAll(args[1], `"`, `\"`) + `"`)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(text), 0o600))
}

// occupy listens on the port of the first node in a dev.json: occupy FILE.
func occupy(ts *testscript.TestScript, _ bool, args []string) {
	var state devState
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &state))
	l, err := net.Listen("tcp", state.Nodes[0].address())
	ts.Check(err)
	ts.Defer(func() { ts.Check(l.Close()) })
}

// await waits until a file is there: await FILE.
func await(ts *testscript.TestScript, _ bool, args []string) {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	for {
		if _, err := os.Stat(ts.MkAbs(args[0])); err == nil {
			return
		}
		select {
		case <-look.C:
		case <-deadline.C:
			ts.Fatalf("%s did not appear", args[0])
		}
	}
}

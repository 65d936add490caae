package proctest_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ends waits for the process, and holds it to an exit code and to the terminal as it was.
func (x *terminal) ends(code int) {
	x.t.Helper()
	x.waits()
	if got := x.cmd.ProcessState.ExitCode(); got != code {
		x.t.Errorf("it ended with %d instead of %d:\n%s", got, code, x.text(0))
	}
	x.calms()
}

// calms waits until the terminal is as it was: what was written to it may be on its way.
func (x *terminal) calms() {
	x.t.Helper()
	for begun := time.Now(); x.wild() != ""; pause(20 * time.Millisecond) {
		if time.Since(begun) > 3*time.Second {
			x.t.Fatal(x.wild())
		}
	}
}

// waits waits for the process.
func (x *terminal) waits() {
	x.t.Helper()
	done := make(chan error, 1)
	go func() { done <- x.cmd.Wait() }()
	select {
	case err := <-done:
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
			x.t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		x.t.Fatalf("it does not end; the screen:\n%s", x.text(0))
	}
}

// wild says how the terminal is not as it was.
func (x *terminal) wild() string {
	if after := termios(x.t, x.slave); after != x.before {
		return fmt.Sprintf("the terminal is not as it was:\n%+v\n%+v", after, x.before)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	shown := x.shown.String()
	if strings.Contains(shown, "\x1b[?1049h") && strings.LastIndex(shown, "\x1b[?1049l") < strings.LastIndex(shown, "\x1b[?1049h") {
		return "the other screen is still there"
	}
	if strings.LastIndex(shown, "\x1b[?25h") < strings.LastIndex(shown, "\x1b[?25l") {
		return "the cursor is still hidden"
	}
	return ""
}

// screen returns the process that shows the screen, the child of the one that was called.
func (x *terminal) screen() *os.Process {
	x.t.Helper()
	return childOf(x.t, x.cmd.Process.Pid)
}

// childOf returns the only child of a process.
func childOf(t *testing.T, pid int) *os.Process {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil || len(files) == 0 {
		t.Skipf("needs a kernel that tells of children: %v", err)
	}
	var all []string
	for _, file := range files {
		b, gone := os.ReadFile(file)
		if gone != nil && !errors.Is(gone, fs.ErrNotExist) { // a thread that ended
			t.Fatal(gone)
		}
		all = append(all, strings.Fields(string(b))...)
	}
	if len(all) != 1 {
		t.Fatalf("its children are %q", all)
	}
	child, err := strconv.Atoi(all[0])
	if err != nil {
		t.Fatal(err)
	}
	p, err := os.FindProcess(child)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// topAnswer is what the screen of a cluster that does not run shows.
const topAnswer = "no answer from any node yet"

// TestTopLeavesTheTerminalAsItWas, however it ends.
func TestTopLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{nodes: 1, plain: true}) // that does not run
	for _, tt := range []struct {
		name string
		end  func(x *terminal)
		code int
		says string
	}{
		{"q", func(x *terminal) { x.keys("q") }, 0, ""},
		{"ctrl-c", func(x *terminal) { x.keys("\x03") }, 130, "interrupted"},
		{"sigterm", func(x *terminal) { _ = x.cmd.Process.Signal(syscall.SIGTERM) }, 130, "interrupted"},
		{"sigint", func(x *terminal) { _ = x.cmd.Process.Signal(os.Interrupt) }, 130, "interrupted"},
		{"sigterm to the screen", func(x *terminal) { _ = x.screen().Signal(syscall.SIGTERM) }, 130, "interrupted"},
		{"sigterm to both", func(x *terminal) { _ = syscall.Kill(-x.cmd.Process.Pid, syscall.SIGTERM) }, 130, "interrupted"},
		{"the screen is killed", func(x *terminal) { _ = x.screen().Kill() }, 130, "ended by a signal: killed"},
	} {
		x := openTerminal(t, nil, c.topArgs(t)...)
		x.sees(0, 10*time.Second, topAnswer)
		since := x.written()
		tt.end(x)
		x.ends(tt.code)
		if tt.says != "" {
			x.sees(since, 5*time.Second, tt.says)
		}
		if t.Failed() {
			t.Fatalf("by %s", tt.name)
		}
	}
}

// TestTopPanics: a defect in any goroutine leaves the terminal as it was and the place in
// the program on it.
func TestTopPanics(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{nodes: 1, plain: true}) // that does not run
	for fault, says := range map[string]string{
		"update": "panic: a fault for the test", "command": "panic: a fault for the test",
		"goroutine": "panic: a fault for the test", "timer": "panic: a fault for the test",
		"fatal": "goroutine", // the runtime keeps the message of these to itself
	} {
		x := openTerminal(t, []string{"TIDAL_TOP_FAULT=" + fault}, c.topArgs(t)...)
		x.ends(70)
		// What is written before the screen is left is not seen.
		x.mu.Lock()
		since := strings.LastIndex(x.shown.String(), "\x1b[?1049l")
		x.mu.Unlock()
		for _, what := range []string{"tidal: internal error: " + says, "goroutine ", "tidal/tui."} {
			x.sees(max(since, 0), 3*time.Second, what)
		}
		if t.Failed() {
			t.Fatalf("by a fault in %s", fault)
		}
	}
}

// TestControlTopAlone: without a process that waits for the screen, a panic leaves the
// terminal as the screen had it.
func TestControlTopAlone(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{nodes: 1, plain: true}) // that does not run
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(r.Close(), w.Close()) })
	x := newTerminal(t)
	x.run([]string{"TIDAL_TOP_FAULT=goroutine", "TIDAL_SCREEN=" + strconv.Itoa(os.Getpid())}, []*os.File{w, r}, c.topArgs(t)...)
	x.waits()
	if x.wild() == "" {
		t.Error("the terminal is as it was")
	}
}

// TestTopIsKilled: the screen ends, and leaves the terminal as it was, when who waits for
// it is gone.
func TestTopIsKilled(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{nodes: 1, plain: true}) // that does not run
	// A shell runs it: a terminal whose first process is gone is of no use to anybody.
	line := append([]string{"sh", "-c", `"$@"; read line`, "sh"}, c.topArgs(t)...)
	x := openTerminal(t, nil, line...)
	x.sees(0, 10*time.Second, topAnswer)
	if err := childOf(t, x.cmd.Process.Pid).Kill(); err != nil {
		t.Fatal(err)
	}
	x.calms()
}

// TestTopIsInterruptedWhileItAsks: Ctrl-C waits for no answer.
func TestTopIsInterruptedWhileItAsks(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{nodes: 1, plain: true})
	l, err := net.Listen("tcp", c.nodes[0].listen) // takes calls, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	x := openTerminal(t, nil, c.topArgs(t)...)
	called, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = called.Close() })
	begun := time.Now()
	x.keys("\x03")
	x.ends(130)
	if took := time.Since(begun); took > soon() {
		t.Errorf("it took %v", took)
	}
}

// TestTopEndsWithItsTerminal, also where nobody told it.
func TestTopEndsWithItsTerminal(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{nodes: 1, plain: true}) // that does not run
	line := append([]string{"sh", "-c", `trap "" HUP; exec "$@"`, "sh"}, c.topArgs(t)...)
	x := openTerminal(t, nil, line...)
	x.sees(0, 10*time.Second, "no answer from any node yet")
	_ = x.slave.Close()
	_ = x.master.Close()
	done := make(chan error, 1)
	go func() { done <- x.cmd.Wait() }()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Error("it lives on without its terminal")
	}
}

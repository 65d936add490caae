package proctest_test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a real one, of a size, of which the test is the screen and the keyboard.
// It answers no question that a program asks it.
type terminal struct {
	t      *testing.T
	master *os.File
	slave  *os.File
	cmd    *exec.Cmd
	before unix.Termios
	mu     sync.Mutex
	shown  bytes.Buffer
}

// openTerminal runs a command line on a new terminal.
func openTerminal(t *testing.T, env []string, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	fd := int(master.Fd())
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: 120, Row: 40})
	}
	if err != nil {
		t.Skipf("terminals cannot be set up here: %v", err)
	}
	slave, err := os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("terminals cannot be opened here: %v", err)
	}
	x := &terminal{t: t, master: master, slave: slave, before: termios(t, slave)}
	x.cmd = exec.Command(args[0], args[1:]...)
	x.cmd.Env = append(append(cleanEnv(), "TERM=xterm-256color", "LANG=C.UTF-8", "CI="), env...)
	x.cmd.Env = without(x.cmd.Env, "CI=")
	x.cmd.Stdin, x.cmd.Stdout, x.cmd.Stderr = slave, slave, slave
	x.cmd.SysProcAttr = dieWithUs()
	x.cmd.SysProcAttr.Setsid, x.cmd.SysProcAttr.Setctty = true, true
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { // ends when the terminal is closed
		b := make([]byte, 64<<10)
		for {
			n, err := x.master.Read(b)
			x.mu.Lock()
			x.shown.Write(b[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		_ = x.cmd.Process.Kill()
		_ = x.slave.Close()
		_ = x.master.Close()
	})
	return x
}

func without(env []string, prefix string) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, prefix) {
			out = append(out, kv)
		}
	}
	return out
}

func termios(t *testing.T, f *os.File) unix.Termios {
	t.Helper()
	s, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *s
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]|\x1b[=>]`)

// text is what was written to the terminal since some number of bytes, without what
// moves and colours.
func (x *terminal) text(since int) string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return escapes.ReplaceAllString(string(x.shown.Bytes()[since:]), "")
}

func (x *terminal) written() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.shown.Len()
}

func (x *terminal) keys(text string) {
	x.t.Helper()
	if _, err := x.master.WriteString(text); err != nil {
		x.t.Fatal(err)
	}
}

// sees waits until something is on the screen, and returns how long that took.
func (x *terminal) sees(since int, patience time.Duration, what string) time.Duration {
	x.t.Helper()
	begun := time.Now()
	for !strings.Contains(x.text(since), what) {
		if time.Since(begun) > patience {
			text := x.text(since)
			x.t.Fatalf("%q is not on the screen within %v:\n%s", what, patience, text[max(0, len(text)-4000):])
		}
		pause(20 * time.Millisecond)
	}
	return time.Since(begun)
}

// ends waits for the process, and holds it to an exit code and to the terminal as it was.
func (x *terminal) ends(code int) {
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
	if got := x.cmd.ProcessState.ExitCode(); got != code {
		x.t.Errorf("it ended with %d instead of %d:\n%s", got, code, x.text(0))
	}
	if after := termios(x.t, x.slave); after != x.before {
		x.t.Errorf("the terminal is not as it was:\n%+v\n%+v", after, x.before)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	shown := x.shown.String()
	if strings.Contains(shown, "\x1b[?1049h") && strings.LastIndex(shown, "\x1b[?1049l") < strings.LastIndex(shown, "\x1b[?1049h") {
		x.t.Error("the other screen is still there")
	}
	if strings.LastIndex(shown, "\x1b[?25h") < strings.LastIndex(shown, "\x1b[?25l") {
		x.t.Error("the cursor is still hidden")
	}
}

// topArgs is a command line of tidal top for a cluster.
func (c *cluster) topArgs(t *testing.T, more ...string) []string {
	t.Helper()
	args := []string{binary(t), "top"}
	for _, n := range c.nodes {
		args = append(args, "--endpoint", c.scheme()+n.listen)
	}
	if !c.o.plain {
		dir := filepath.Join(c.dir, "certs")
		admin := filepath.Join(dir, "clients", "admin")
		args = append(args, "--ca", filepath.Join(dir, "bundle.crt"), "--cert", filepath.Join(admin, "tls.crt"), "--key", filepath.Join(admin, "tls.key"))
	}
	return append(args, more...)
}

// TestTop watches a real cluster on a real terminal, while a node is frozen and all of
// them go and come.
func TestTop(t *testing.T) {
	c := newCluster(t, clusterOptions{})
	c.startAll(t)
	c.createTables(t, 6)
	x := openTerminal(t, nil, c.topArgs(t)...)
	x.sees(0, 10*time.Second, "all well")
	x.sees(0, 10*time.Second, "nodes 3/3")
	x.keys("j") // what is typed early is not lost

	since := x.written()
	if err := c.nodes[2].signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	stale := x.sees(since, 5*time.Second, "? stale")
	down := stale + x.sees(since, 10*time.Second, "✗ down")
	since = x.written()
	if err := c.nodes[2].signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	well := x.sees(since, 10*time.Second, "all well")
	t.Logf("a frozen node is stale after %v, down after %v, and well again after %v", stale, down, well)

	for _, n := range c.nodes {
		n.kill()
	}
	since = x.written()
	x.sees(since, 5*time.Second, "NO ANSWER")
	c.startAll(t)
	back := x.sees(x.written(), 20*time.Second, "all well")
	t.Logf("after all nodes were away it is well again %v after they are", back)
	x.keys("2")
	x.sees(since, 5*time.Second, "FRONTIER")
	x.keys("\x03")
	x.ends(130)
}

// TestTopLeavesTheTerminalAsItWas, however it ends.
func TestTopLeavesTheTerminalAsItWas(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{nodes: 1, plain: true}) // that does not run
	for _, tt := range []struct {
		name string
		env  []string
		end  func(x *terminal)
		code int
	}{
		{"q", nil, func(x *terminal) { x.keys("q") }, 0},
		{"ctrl-c", nil, func(x *terminal) { x.keys("\x03") }, 130},
		{"sigterm", nil, func(x *terminal) { _ = x.cmd.Process.Signal(syscall.SIGTERM) }, 130},
		{"a panic in a goroutine", []string{"TIDAL_TOP_FAULT=goroutine"}, func(*terminal) {}, 70},
		{"a panic in the loop", []string{"TIDAL_TOP_FAULT=update"}, func(*terminal) {}, 70},
	} {
		x := openTerminal(t, tt.env, c.topArgs(t)...)
		if tt.env == nil {
			x.sees(0, 10*time.Second, "no answer from any node yet")
		}
		tt.end(x)
		x.ends(tt.code)
		if t.Failed() {
			t.Fatalf("by %s", tt.name)
		}
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

// TestOnlyTopTouchesTheTerminal: other commands write nothing but their own words to a
// terminal, and wait for no answer of one that gives none.
func TestOnlyTopTouchesTheTerminal(t *testing.T) {
	begun := time.Now()
	x := openTerminal(t, nil, binary(t), "version")
	x.ends(0)
	x.sees(0, 5*time.Second, "\n")
	if took := time.Since(begun); took > 3*time.Second {
		t.Errorf("it took %v", took)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if shown := x.shown.String(); strings.Contains(shown, "\x1b") {
		t.Errorf("it wrote %q", shown)
	}
}

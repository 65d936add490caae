package proctest_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// node is one `tidal serve`, started and ended as often as a test likes on one
// data directory.
type node struct {
	id      string
	listen  string // where clients dial; the proxy dials it too
	config  string // file
	program string // file; "": the binary under test
	logFile string
	proxy   *proxy   // peers dial it
	member  *proxy   // the member list names it; the same as proxy but in tests that tell them apart
	enter   []string // what its command line begins with, to run where the node is

	cmd  *exec.Cmd
	gone chan struct{} // closed when the process has been waited for
	took time.Duration // of the last stop
}

// reached is where peers dial the node: its own port if there is no proxy.
func (n *node) reached(p *proxy) string {
	if p == nil {
		return n.listen
	}
	return p.addr()
}

// start runs the node's process with the fault hooks given.
func (n *node) start(t *testing.T, faults string) {
	t.Helper()
	log, err := os.OpenFile(n.logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	program := n.program
	if program == "" {
		program = binary(t)
	}
	line := append(slices.Clone(n.enter), program, "serve", "--config", n.config)
	cmd := exec.Command(line[0], line[1:]...)
	cmd.Env = append(cleanEnv(), "TIDAL_FAULTS="+faults)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithUs()
	err = cmd.Start()
	_ = log.Close() // the child has its own descriptor
	if err != nil {
		t.Fatalf("%s: start: %v", n.id, err)
	}
	gone := make(chan struct{})
	n.cmd, n.gone = cmd, gone
	go func() { // owned by end, which waits for it
		_ = cmd.Wait() // the state is read from cmd.ProcessState
		close(gone)
	}()
}

// running reports whether the process is there.
func (n *node) running() bool {
	if n.gone == nil {
		return false
	}
	select {
	case <-n.gone:
		return false
	default:
		return true
	}
}

// signal sends a signal and waits for nothing.
func (n *node) signal(sig syscall.Signal) error {
	if err := n.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("%s: %v: %w", n.id, sig, err)
	}
	return nil
}

// stop ends the process gracefully; an error unless it exits 0 within patience.
func (n *node) stop(patience time.Duration) error {
	began := time.Now()
	if err := n.signal(syscall.SIGTERM); err != nil {
		return err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-n.gone:
	case <-timer.C:
		n.kill()
		return fmt.Errorf("%s: still running %v after SIGTERM; killed", n.id, patience)
	}
	n.took = time.Since(began)
	if code := n.cmd.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("%s: exit status %d after SIGTERM, want 0 (%s)", n.id, code, n.cmd.ProcessState)
	}
	return nil
}

// kill ends the process at once and waits until it is gone.
func (n *node) kill() {
	if !n.running() {
		return
	}
	_ = n.cmd.Process.Kill()
	<-n.gone
}

// tail is the end of the node's log.
func (n *node) tail(lines int) string {
	b, err := os.ReadFile(n.logFile)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(string(bytes.TrimSpace(b)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// cleanEnv is our environment without what would configure tidal.
func cleanEnv() []string {
	var env []string
	for _, kv := range os.Environ() {
		if !strings.HasPrefix(kv, "TIDAL_") {
			env = append(env, kv)
		}
	}
	return env
}

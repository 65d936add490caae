package proctest_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// inject has strace meddle with a running node's fsyncs until the test ends or the
// function that it returns is called.
func (n *node) inject(t *testing.T, what string) (end func()) {
	t.Helper()
	need(t, "strace")
	end, err := n.strace(what)
	if err != nil {
		t.Skipf("strace may not make system calls fail here: %v", err)
	}
	t.Cleanup(end)
	return end
}

// strace is inject without a test. It ends with the node.
func (n *node) strace(what string) (end func(), err error) {
	cmd := exec.Command("strace", "-f", "-o", "/dev/null", "-p", strconv.Itoa(n.cmd.Process.Pid), "-e", "trace=fsync,fdatasync", "-e", "inject="+what)
	cmd.SysProcAttr = dieWithUs()
	said, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return func() {}, err
	}
	end = func() {
		_ = cmd.Process.Signal(os.Interrupt) // it detaches
		_ = cmd.Wait()                       // an interrupted strace says so by its status
	}
	// It is attached once it says so; a kernel that does not let it says that.
	line, err := bufio.NewReader(said).ReadString('\n')
	go func() { _, _ = io.Copy(io.Discard, said) }() // until strace ends
	if !strings.Contains(line, "attached") {
		end()
		return func() {}, fmt.Errorf("strace cannot attach: %w", errors.Join(errors.New(line), err))
	}
	return end, nil
}

// TestFsyncFails has the kernel fail the fsyncs of a running node. It ends with 3
// and says in which file and what to do; with the disk well again it starts, and
// has what it had acknowledged.
func TestFsyncFails(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{nodes: 1, plain: true})
	n := c.nodes[0]
	c.startAll(t)
	c.createTables(t, 1)
	if a := c.must(t, 0, http.MethodPut, "/v1/tables/t0/rows/before", "v", nil); a.status/100 != 2 {
		t.Fatal(a)
	}
	end := n.inject(t, "fsync,fdatasync:error=EIO")
	go func() { _, _ = c.call(0, http.MethodPut, "/v1/tables/t0/rows/after", "v", nil) }() // nobody may answer it well
	select {
	case <-n.gone:
	case <-time.After(20 * time.Second):
		t.Fatal("the node runs on without its disk")
	}
	end()
	if code := n.cmd.ProcessState.ExitCode(); code != 3 {
		t.Errorf("exit status %d, want 3", code)
	}
	last := n.tail(10)
	last = last[max(0, strings.LastIndex(last, "\ntidal: ")):] // what still ran may have a line in the log after it
	for _, want := range []string{"tidal: the node cannot run: sync ", ".log at byte ", "input/output error", "hint: ", "tidal node replace n1"} {
		if !strings.Contains(last, want) {
			t.Errorf("the last words lack %q:\n%s", want, last)
		}
	}
	n.start(t, "")
	c.healthy(t, 20*time.Second)
	if a := c.must(t, 0, http.MethodGet, "/v1/tables/t0/rows/before", "", nil); string(a.body) != "v" {
		t.Errorf("what was acknowledged is gone: %s", a)
	}
	t.Logf("its last words:\n%s", last)
}

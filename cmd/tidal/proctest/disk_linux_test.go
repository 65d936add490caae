package proctest_test

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// inject has strace meddle with a running node's system calls until the test ends
// or the function that it returns is called.
func (n *node) inject(t *testing.T, what string) (end func()) {
	t.Helper()
	path, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("there is no strace here to make system calls fail")
	}
	cmd := exec.Command(path, "-f", "-o", "/dev/null", "-p", strconv.Itoa(n.cmd.Process.Pid), "-e", "trace=fsync,fdatasync", "-e", "inject="+what)
	cmd.SysProcAttr = dieWithUs()
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err = cmd.Start(); err != nil {
		t.Fatal(err)
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
		t.Skipf("strace cannot attach here: %s %v", line, err)
	}
	t.Cleanup(end)
	return end
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
	last := n.tail(2)
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

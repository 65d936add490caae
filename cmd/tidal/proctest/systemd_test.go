package proctest_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestSystemdUnits has systemd read the units of the examples.
func TestSystemdUnits(t *testing.T) {
	t.Parallel()
	need(t, "systemd-analyze")
	dir := t.TempDir()
	for _, unit := range []string{"tidal.service", "tidal.socket"} {
		b, err := os.ReadFile(filepath.Join("..", "..", "..", "examples", "systemd", unit))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Replace(string(b), "/usr/bin/tidal", binary(t), 1)
		if err := os.WriteFile(filepath.Join(dir, unit), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("systemd-analyze", "verify", filepath.Join(dir, "tidal.service"), filepath.Join(dir, "tidal.socket"))
	cmd.Env = append(os.Environ(), "SYSTEMD_UNIT_PATH="+dir+":")
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}

// TestSocketActivation runs a node whose port another process holds, as systemd does:
// who connects before the node is there waits for it.
func TestSocketActivation(t *testing.T) {
	t.Parallel()
	need(t, "systemd-socket-activate")
	c := newCluster(t, clusterOptions{plain: true})
	n := c.nodes[0]
	log, err := os.Create(n.logFile)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd := exec.Command("systemd-socket-activate", "-l", n.listen, binary(t), "serve", "--config", n.config)
	cmd.Env, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = cleanEnv(), log, log, dieWithUs()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	n.cmd, n.gone = cmd, make(chan struct{})
	go func() { // it ends with the cluster
		_ = cmd.Wait() // the state is read from cmd.ProcessState
		close(n.gone)
	}()
	for _, other := range c.nodes[1:] {
		other.start(t, "")
	}
	c.healthy(t, 30*time.Second)
	if tail := n.tail(100); !strings.Contains(tail, "msg=listening") {
		t.Errorf("it did not take the port:\n%s", tail)
	}
	if err := n.stop(30 * time.Second); err != nil {
		t.Error(err)
	}
}

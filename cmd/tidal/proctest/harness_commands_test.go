package proctest_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// command makes a command of the binary under test. It knows no clusters of whoever
// runs the test.
func (c *cluster) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(binary(t), args...)
	cmd.Env = append(cleanEnv(), "TIDAL_CONFIG="+filepath.Join(c.dir, "none.toml"))
	cmd.SysProcAttr = dieWithUs()
	return cmd
}

// tidal runs one and returns its exit code and all that it printed.
func (c *cluster) tidal(t *testing.T, args ...string) (code int, out string) {
	t.Helper()
	cmd := c.command(t, args...)
	b, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatalf("tidal %s: %v", strings.Join(args, " "), err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

func (c *cluster) certs() string { return filepath.Join(c.dir, "certs") }

// asAdmin adds the flags of a command that talks to the cluster, to any node.
func (c *cluster) asAdmin(args ...string) []string { return c.asAdminAt(c.nodes, args...) }

// asAdminAt has it talk to some of the nodes, to the first before the others.
func (c *cluster) asAdminAt(nodes []*node, args ...string) []string {
	args = slices.Clone(args)
	for _, n := range nodes {
		args = append(args, "--endpoint", c.scheme()+n.listen)
	}
	if c.o.plain {
		return args
	}
	return append(args, asClient(c.certs(), "admin")...)
}

// asClient are the flags of a client that has a certificate in a directory of them.
func asClient(certs, name string) []string {
	leaf := filepath.Join(certs, "clients", name, "tls")
	return []string{"--ca", filepath.Join(certs, "bundle.crt"), "--cert", leaf + ".crt", "--key", leaf + ".key"}
}

package proctest_test

import (
	"bytes"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestPlain runs a cluster without TLS, which loopback alone allows.
func TestPlain(t *testing.T) {
	t.Parallel()
	c := newCluster(t, clusterOptions{plain: true})
	c.startAll(t)
	c.createTables(t, 1)
	value := "byte for byte\x00\xff\r\n"
	if a := c.must(t, 0, http.MethodPut, "/v1/tables/t0/rows/k", value, nil); a.status/100 != 2 {
		t.Fatal(a)
	}
	for i, n := range c.nodes {
		if a := c.must(t, i, http.MethodGet, "/v1/tables/t0/rows/k", "", nil); string(a.body) != value {
			t.Errorf("%s: %d %q, want %q", n.id, a.status, a.body, value)
		}
	}
}

// TestPlainRefused shows that no other address goes without TLS.
func TestPlainRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("starts real processes: not with -short")
	}
	const (
		loop    = "http://127.0.0.1:18433"
		outside = "http://192.0.2.1:18433"
	)
	for _, tc := range []struct{ name, listen, advertise, member string }{
		{"listen", "0.0.0.0:18433", loop, loop},
		{"advertise", "127.0.0.1:18433", outside, loop},
		{"member", "127.0.0.1:18433", loop, outside},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			config := filepath.Join(dir, "tidal.toml")
			text := "[node]\nid = \"a\"\ndata = \"" + filepath.Join(dir, "data") + "\"\nlisten = \"" + tc.listen + "\"\nadvertise = \"" + tc.advertise +
				"\"\n[cluster]\nname = \"test\"\n[cluster.members]\na = \"" + loop + "\"\nb = \"" + tc.member + "\"\n"
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			cmd := exec.CommandContext(t.Context(), binary(t), "serve", "--config", config)
			cmd.Env, cmd.SysProcAttr = cleanEnv(), dieWithUs()
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := cmd.Run()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 3 {
				t.Fatalf("%v, want exit status 3\n%s", err, stderr.String())
			}
			if !strings.Contains(stderr.String(), "[tls]") {
				t.Errorf("the error does not name [tls]:\n%s", stderr.String())
			}
		})
	}
}

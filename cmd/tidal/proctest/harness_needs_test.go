package proctest_test

import (
	"os"
	"os/exec"
	"strconv"
	"testing"
)

// need skips the test where a program is not installed.
func need(t *testing.T, programs ...string) {
	t.Helper()
	for _, name := range programs {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("needs %s, which is not installed", name)
		}
	}
}

// needRoot skips the test where it may not make namespaces and file systems.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make namespaces and file systems")
	}
}

// onDemand skips what takes minutes, unless a variable asks for it, as a target of the
// Makefile does.
func onDemand(t *testing.T, variable, target string) {
	t.Helper()
	if os.Getenv(variable) == "" {
		t.Skipf("on demand: make %s", target)
	}
}

// runs reads how often to run; 0 skips the test.
func runs(t *testing.T, name string, otherwise int) int {
	t.Helper()
	n := otherwise
	if v := os.Getenv(name); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatalf("%s=%q: want a number", name, v)
		}
	}
	if n == 0 {
		t.Skipf("on demand: %s=N runs it N times", name)
	}
	return n
}

//go:build !linux

package proctest_test

import (
	"syscall"
	"testing"
)

func dieWithUs() *syscall.SysProcAttr { return nil }

// network is for Linux: see harness_network_linux_test.go.
type network struct{ addrs []string }

const nodePort = "8433"

func newNetwork(t *testing.T, _ int) *network {
	t.Helper()
	t.Skip("needs network namespaces")
	return nil
}

func (*network) enter(int) []string { return nil }

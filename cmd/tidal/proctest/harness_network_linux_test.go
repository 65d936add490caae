package proctest_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// network is a switch with a network namespace for each node. What a node shall not
// hear from another is dropped where it arrives, and nobody is told.
type network struct {
	bridge string
	spaces []string // names of the namespaces
	addrs  []string // of the nodes
}

// nodePort is every node's port where each has an address of its own.
const nodePort = "8433"

// newNetwork makes a network of its own until the test ends. It needs root.
func newNetwork(t *testing.T, nodes int) *network {
	t.Helper()
	needRoot(t)
	need(t, "ip", "nsenter", "sh")
	pid := os.Getpid()
	w := &network{bridge: fmt.Sprintf("td%d", pid)}
	subnet := fmt.Sprintf("10.213.%d", pid%256)
	t.Cleanup(w.remove)
	w.ip(t, "", "link add %[1]s type bridge\naddr add %[2]s.254/24 dev %[1]s\nlink set %[1]s up", w.bridge, subnet)
	for i := range nodes {
		space := fmt.Sprintf("%s-%d", w.bridge, i+1)
		addr := fmt.Sprintf("%s.%d", subnet, i+1)
		w.ip(t, "", "netns add %[1]s\nlink add %[1]s type veth peer name eth0 netns %[1]s\nlink set %[1]s master %[2]s up", space, w.bridge)
		w.spaces, w.addrs = append(w.spaces, space), append(w.addrs, addr)
		// Rules of ours come before the one for local addresses, and no connection
		// that is open passes them by.
		w.ip(t, space, "addr add %s/24 dev eth0\nlink set lo up\nlink set eth0 up\nrule add pref 10 lookup local\nrule del pref 0", addr)
		if out, err := exec.Command("nsenter", "--net="+w.path(i), "sh", "-c", "echo 0 >/proc/sys/net/ipv4/ip_early_demux").CombinedOutput(); err != nil {
			t.Fatalf("ip_early_demux: %v: %s", err, out)
		}
	}
	return w
}

func (w *network) remove() {
	for _, space := range w.spaces {
		_ = exec.Command("ip", "link", "del", space).Run()
		_ = exec.Command("ip", "netns", "del", space).Run()
	}
	_ = exec.Command("ip", "link", "del", w.bridge).Run()
}

func (w *network) path(node int) string { return "/run/netns/" + w.spaces[node] }

// enter is what a command begins with that runs where a node is.
func (w *network) enter(node int) []string { return []string{"nsenter", "--net=" + w.path(node)} }

// ip runs lines of the program ip in a namespace; "": in ours.
func (w *network) ip(t *testing.T, space, format string, args ...any) {
	t.Helper()
	run := []string{"-batch", "-"}
	if space != "" {
		run = append([]string{"-n", space}, run...)
	}
	cmd := exec.Command("ip", run...)
	cmd.Stdin = strings.NewReader(fmt.Sprintf(format, args...))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v: %s\n%s", run, err, out, fmt.Sprintf(format, args...))
	}
}

// cut keeps what one node sends from another, until heal.
func (w *network) cut(from, to int) error { return w.rule("add", from, to) }

func (w *network) heal(from, to int) error { return w.rule("del", from, to) }

func (w *network) rule(verb string, from, to int) error {
	return program("ip", "-n", w.spaces[to], "rule", verb, "pref", "5", "from", w.addrs[from], "blackhole")
}

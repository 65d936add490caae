package proctest_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sshd is a real sshd on the loopback addresses of a cluster's nodes. Whoever logs in
// there finds a systemctl that stands for systemd: it stops the process of that
// host's node by SIGTERM, and starts it again.
type sshd struct {
	dir string
}

// tool finds a program that the test cannot do without.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		path = filepath.Join("/usr/sbin", name)
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%s is not here: .ci/sshd installs it", name)
	}
	return path
}

func file(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

func newSSHD(t *testing.T, c *cluster) *sshd {
	t.Helper()
	s := &sshd{dir: t.TempDir()}
	in := func(name string) string { return filepath.Join(s.dir, name) }
	for _, key := range []string{"host", "user"} {
		if out, err := exec.Command(tool(t, "ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", in(key)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v\n%s", err, out)
		}
	}
	public, err := os.ReadFile(in("user.pub"))
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.ReadFile(in("host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	who, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(freePorts(t, 1)[0])
	conf := fmt.Sprintf("Port %s\nHostKey %s\nPidFile none\nAuthorizedKeysFile %s\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nSetEnv PATH=%s:/usr/bin:/bin\n",
		port, in("host"), in("authorized"), in("remote"))
	known := ""
	for _, n := range c.nodes {
		at, _, _ := net.SplitHostPort(n.listen)
		conf += "ListenAddress " + at + "\n"
		known += fmt.Sprintf("[%s]:%s %s", at, port, host)
	}
	for _, dir := range []string{"remote", "local"} {
		if err := os.Mkdir(in(dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	file(t, in("authorized"), string(public), 0o600)
	file(t, in("known"), known, 0o600)
	file(t, in("sshd_config"), conf, 0o600)
	file(t, in("ssh_config"), fmt.Sprintf("Host *\nPort %s\nUser %s\nIdentityFile %s\nIdentitiesOnly yes\nUserKnownHostsFile %s\nStrictHostKeyChecking yes\n",
		port, who.Username, in("user"), in("known")), 0o600)
	// The operator's own ssh, with a configuration that is not in his home.
	file(t, in("local/ssh"), fmt.Sprintf("#!/bin/sh\nexec %s -F %s \"$@\"\n", tool(t, "ssh"), in("ssh_config")), 0o700)
	file(t, in("remote/sudo"), "#!/bin/sh\nexec \"$@\"\n", 0o700)
	file(t, in("remote/systemctl"), fmt.Sprintf(`#!/bin/sh
[ "$*" = "show --property=TimeoutStopUSec --value tidal" ] && { echo 30s; exit; }
[ "$*" = "restart tidal" ] || { echo "Unknown operation: $*" >&2; exit 5; }
set -e
cd %s
set -- $SSH_CONNECTION # of the client, its port, of the server
n=n${3##*.}
echo "$n" >> %s
pid=$(cat $n/LOCK.tidal)
kill -TERM "$pid"
while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
setsid -f %s serve --config $n.toml >> $n.log 2>&1 < /dev/null
`, c.dir, in("restarted"), binary(t)), 0o700)
	if os.Getuid() == 0 { // of its own accord it makes no such folder
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			t.Fatal(err)
		}
	}
	launchForeign(t, tool(t, "sshd"), "-D", "-e", "-f", in("sshd_config"))
	for _, n := range c.nodes {
		at, _, _ := net.SplitHostPort(n.listen)
		eventually(t, 10*time.Second, func() error {
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(at, port), time.Second)
			if err == nil {
				_ = conn.Close()
			}
			return err
		})
	}
	return s
}

// TestRollSSH rolls a cluster by the preset systemd-ssh, through a real ssh and a real
// sshd, under clients behind a load balancer. No stranger's name becomes a command.
func TestRollSSH(t *testing.T) {
	foreign(t, "etcd") // where nothing may be skipped
	c := newCluster(t, clusterOptions{direct: true, hosts: true})
	c.startAll(t)
	s := newSSHD(t, c)
	t.Cleanup(func() { // what the stand-in started
		for _, n := range c.nodes {
			b, _ := os.ReadFile(filepath.Join(c.dir, n.id, "LOCK.tidal"))
			if pid, err := strconv.Atoi(strings.TrimSpace(string(b))); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	tables := c.createTables(t, gracefulTables)
	f := launch(t, c.targets(), fleetOptions{tables: tables, perTable: 2, rate: 50})
	cmd := c.rollCmd(t, "--yes", "--driver", "exec", "--command", "systemd-ssh", "--settle", "300ms", "-o", "json")
	cmd.Env = append(cmd.Env, "PATH="+filepath.Join(s.dir, "local")+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	lasted := time.Since(f.began)
	f.stop()
	r := summarise(f.writes(), lasted)
	t.Logf("%s", r)
	if err != nil || r.refused > 0 || !bytes.Contains(out, []byte(`"status":"done"`)) {
		t.Errorf("%v\n%s", err, out)
	}
	restarted, err := os.ReadFile(filepath.Join(s.dir, "restarted"))
	if lines := strings.Fields(string(restarted)); err != nil || len(lines) != len(c.nodes) {
		t.Errorf("systemctl was run on %v, %v", lines, err)
	}
	for i, n := range c.nodes {
		if start := c.local(t, i).Incarnation.Start; start != 2 {
			t.Errorf("%s was started %d times", n.id, start)
		}
	}
	wrong, _ := readBack(c.targets(), append(f.writes(), f.unsent(tables)...), followerLag)
	showList(t, "read back", wrong)

	// Nothing that a shell at the other end would take for something else is sent there,
	// and a unit that is not there pauses the roll.
	cmd = c.rollCmd(t, "--yes", "--only", "n1", "--driver", "exec", "--stall", "3s", "--settle", "0s",
		"--command", "ssh -o BatchMode=yes -- {host} sudo systemctl restart {node}")
	cmd.Env = append(cmd.Env, "PATH="+filepath.Join(s.dir, "local")+":"+os.Getenv("PATH"))
	out, _ = cmd.CombinedOutput()
	if code := cmd.ProcessState.ExitCode(); code != 8 || !bytes.Contains(out, []byte("Unknown operation: restart n1")) {
		t.Errorf("a unit that is not there: exit %d\n%s", code, out)
	}
	if got := c.local(t, 0).Incarnation; got.Start != 2 {
		t.Errorf("n1 is %s", got)
	}
}

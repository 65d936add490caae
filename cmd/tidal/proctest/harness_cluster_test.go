package proctest_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/pki"
)

// buildDir holds the binary under test while the tests run.
var buildDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "tidal-proctest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildDir = dir
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// build makes the binary with its fault hooks, once, unless TIDAL_BIN names one.
var build = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("TIDAL_BIN"); bin != "" {
		return filepath.Abs(bin)
	}
	bin := filepath.Join(buildDir, "tidal")
	marks := "-X main.stamped=" + markedVersion + " -X main.raised=" + markedLevels
	cmd := exec.Command("go", "build", "-tags", "faults", "-ldflags", marks, "-o", bin, "tidal/cmd/tidal")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return bin, nil
})

// binary is the path of the tidal under test.
func binary(t *testing.T) string {
	t.Helper()
	bin, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// clusterOptions shape a cluster. The zero value is three nodes with mutual TLS
// and no delay.
type clusterOptions struct {
	nodes        int           // 0: three
	joiners      int           // of them, the last: they join what the others have formed
	plain        bool          // no TLS
	delay        time.Duration // each way, between nodes
	faults       string        // TIDAL_FAULTS of every start
	splitMembers bool          // the member list names other proxies than advertise
	direct       bool          // no proxies: nodes reach each other where they listen
	apart        bool          // direct, and each node in a network namespace of its own
	visitor      bool          // with apart: one more namespace, for who is no node
	liveTLS      bool          // clients take new certificates as their files change
	hosts        bool          // with direct: each node has a loopback address of its own
}

// cluster is a set of nodes on loopback that end with the test.
type cluster struct {
	o       clusterOptions
	dir     string
	net     *network // of nodes that are apart
	nodes   []*node
	tls     *tls.Config // of the admin client; nil: plain
	clients []*http.Client
}

// newCluster writes certificates and configurations and starts nothing. Data and
// logs are the test's artifacts: go test -artifacts keeps them.
func newCluster(t *testing.T, o clusterOptions) *cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("starts real processes: not with -short")
	}
	if o.nodes == 0 {
		o.nodes = 3
	}
	c := &cluster{o: o, dir: t.ArtifactDir()}
	if o.apart {
		spaces := o.nodes
		if o.visitor {
			spaces++
		}
		c.net = newNetwork(t, spaces)
	}
	t.Cleanup(func() { c.end(t) })
	proxies := 1
	if o.splitMembers {
		proxies = 2
	}
	ports := freePorts(t, o.nodes*(1+proxies))
	for i := range o.nodes {
		id := fmt.Sprintf("n%d", i+1)
		n := &node{
			id: id, listen: ports[i],
			config: filepath.Join(c.dir, id+".toml"), logFile: filepath.Join(c.dir, id+".log"),
		}
		if o.hosts {
			n.listen = strings.Replace(n.listen, "127.0.0.1", fmt.Sprintf("127.0.0.%d", i+1), 1)
		}
		if o.apart {
			n.listen, n.enter = net.JoinHostPort(c.net.addrs[i], nodePort), c.net.enter(i)
		} else if !o.direct {
			n.proxy = newProxy(t, ports[o.nodes+i], n.listen, o.delay)
		}
		n.member = n.proxy
		if o.splitMembers {
			n.member = newProxy(t, ports[2*o.nodes+i], n.listen, o.delay)
		}
		c.nodes = append(c.nodes, n)
	}
	if !o.plain {
		c.issue(t)
	}
	for _, n := range c.nodes {
		if err := os.WriteFile(n.config, []byte(c.toml(n)), 0o600); err != nil {
			t.Fatal(err)
		}
		tr := transport(c.tls)
		t.Cleanup(tr.CloseIdleConnections)
		c.clients = append(c.clients, &http.Client{Transport: tr, Timeout: 20 * time.Second})
	}
	return c
}

// issue makes the certificates with the command that operators use.
func (c *cluster) issue(t *testing.T) {
	t.Helper()
	args := []string{"certs", "gen", "--dir", c.certs(), "--cluster", "test"}
	for _, n := range c.nodes {
		host, _, _ := strings.Cut(n.listen, ":")
		args = append(args, "--node", n.id+"="+host)
	}
	if code, out := c.tidal(t, args...); code != 0 {
		t.Fatalf("certs gen: exit %d\n%s", code, out)
	}
	if !c.o.liveTLS {
		c.tls = adminTLS(t, c.certs())
		return
	}
	pair, err := pki.LoadClient(pki.ClientFiles(c.certs(), "admin"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c.tls = pair.ClientTLS(300 * time.Millisecond)
}

// adminTLS is what the client admin dials with, read once from a directory of
// certificates.
func adminTLS(t *testing.T, dir string) *tls.Config {
	t.Helper()
	bundle, err := os.ReadFile(filepath.Join(dir, "bundle.crt"))
	if err != nil {
		t.Fatal(err)
	}
	leaf := filepath.Join(dir, "clients", "admin", "tls")
	pair, err := tls.LoadX509KeyPair(leaf+".crt", leaf+".key")
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(bundle) {
		t.Fatal("bundle.crt holds no certificate")
	}
	return &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, Certificates: []tls.Certificate{pair}}
}

func (c *cluster) toml(n *node) string {
	var b strings.Builder
	fmt.Fprintf(&b, "[node]\nid = %q\ndata = %q\nlisten = %q\nadvertise = %q\n", n.id,
		filepath.Join(c.dir, n.id), n.listen, c.scheme()+n.reached(n.proxy))
	b.WriteString("\n[disk]\nballast = \"16MiB\"\nreserve = \"64MiB\"\n")
	b.WriteString("\n[cluster]\nname = \"test\"\n")
	founders := c.founders()
	if slices.Contains(founders, n) {
		b.WriteString("\n[cluster.members]\n")
		for _, m := range founders {
			fmt.Fprintf(&b, "%s = %q\n", m.id, c.scheme()+m.reached(m.member))
		}
	} else {
		fmt.Fprintf(&b, "join = [%q]\n", c.scheme()+founders[0].reached(founders[0].proxy))
	}
	if !c.o.plain {
		leaf := filepath.Join(c.certs(), "nodes", n.id)
		fmt.Fprintf(&b, "\n[tls]\nca = %q\ncert = %q\nkey = %q\n", filepath.Join(c.certs(), "bundle.crt"),
			filepath.Join(leaf, "tls.crt"), filepath.Join(leaf, "tls.key"))
	}
	return b.String()
}

func (c *cluster) scheme() string {
	if c.o.plain {
		return "http://"
	}
	return "https://"
}

// targets are the nodes as clients see them.
func (c *cluster) targets() []target {
	var ts []target
	for _, n := range c.nodes {
		ts = append(ts, target{name: n.id, base: c.scheme() + n.listen, tls: c.tls})
	}
	return ts
}

// founders are the nodes that form the cluster.
func (c *cluster) founders() []*node { return c.nodes[:len(c.nodes)-c.o.joiners] }

// startAll starts every founder and waits until all are healthy.
func (c *cluster) startAll(t *testing.T) {
	t.Helper()
	for _, n := range c.founders() {
		n.start(t, c.o.faults)
	}
	c.healthy(t, 60*time.Second)
}

// healthy waits until every founder is.
func (c *cluster) healthy(t *testing.T, patience time.Duration) {
	t.Helper()
	for i := range c.founders() {
		eventually(t, patience, func() error { return c.health(i) })
	}
}

// health asks one node; an error unless it is ready.
func (c *cluster) health(i int) error {
	if !c.nodes[i].running() {
		return fmt.Errorf("%s is not running", c.nodes[i].id)
	}
	a, err := c.call(i, http.MethodGet, "/health", "", nil)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("%s: /health %d: %s", c.nodes[i].id, a.status, a.body)
	}
	return nil
}

// createTables makes n tables named t0, t1, …, with a replica on every founder.
func (c *cluster) createTables(t *testing.T, n int) []string {
	t.Helper()
	return c.createTablesOf(t, n, len(c.founders()))
}

// createTablesOf makes n tables named t0, t1, …, with so many replicas.
func (c *cluster) createTablesOf(t *testing.T, n, replicas int) []string {
	t.Helper()
	var names, owners []string
	for k := range n {
		name := fmt.Sprintf("t%d", k)
		i := k % len(c.founders())
		a := c.must(t, i, http.MethodPut, "/v1/tables/"+name, fmt.Sprintf(`{"replicas":%d}`, replicas), nil)
		if a.status/100 != 2 {
			t.Fatalf("create %s: %s", name, a)
		}
		table := c.table(t, i, name)
		if table.Owner == "" {
			t.Fatalf("create %s: returned before it has an owner: %+v", name, table)
		}
		names, owners = append(names, name), append(owners, name+"="+table.Owner)
	}
	t.Logf("owners: %s", strings.Join(owners, " "))
	return names
}

// table describes a table as a node sees it.
func (c *cluster) table(t *testing.T, i int, name string) (table api.Table) {
	t.Helper()
	a := c.must(t, i, http.MethodGet, "/v1/tables/"+name, "", nil)
	if err := json.Unmarshal(a.body, &table); err != nil || a.status != http.StatusOK {
		t.Fatalf("describe %s: %v: %s", name, err, a)
	}
	return table
}

// answer is an HTTP answer read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// String is the answer as a failed test shows it.
func (a answer) String() string { return fmt.Sprintf("%d %s", a.status, bytes.TrimSpace(a.body)) }

// call sends one request to one node.
func (c *cluster) call(i int, method, path, body string, header map[string]string) (answer, error) {
	req, err := http.NewRequestWithContext(context.Background(), method, c.scheme()+c.nodes[i].listen+path, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for k, v := range header {
		req.Header.Set(k, v)
	}
	res, err := c.clients[i].Do(req)
	if err != nil {
		return answer{}, err
	}
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, b}, errors.Join(err, res.Body.Close())
}

// must is call for requests that have to be answered.
func (c *cluster) must(t *testing.T, i int, method, path, body string, header map[string]string) answer {
	t.Helper()
	a, err := c.call(i, method, path, body, header)
	if err != nil {
		t.Fatalf("%s %s at %s: %v", method, path, c.nodes[i].id, err)
	}
	return a
}

// end kills what runs and shows the logs of a test that failed.
func (c *cluster) end(t *testing.T) {
	t.Helper()
	for _, n := range c.nodes {
		n.kill()
		if t.Failed() {
			t.Logf("end of %s's log:\n%s", n.id, n.tail(40))
		}
	}
}

// portsGiven are the addresses that freePorts gave to any test.
var portsGiven sync.Map

// freePorts finds n loopback addresses that nobody uses. They lie below the
// range that kernels give to outgoing connections: a node that is away for a
// moment must find its own port free again. No two tests get the same one.
func freePorts(t *testing.T, n int) []string {
	t.Helper()
	var addrs []string
	for try := 0; len(addrs) < n && try < 1000; try++ {
		addr := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000))
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		_ = ln.Close()
		if _, given := portsGiven.LoadOrStore(addr, t.Name()); !given {
			addrs = append(addrs, addr)
		}
	}
	if len(addrs) < n {
		t.Fatal("no free ports on 127.0.0.1")
	}
	return addrs
}

// poll asks f every 20 ms until it has no error; after patience it returns the last.
func poll(patience time.Duration, f func() error) error {
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %w", patience, err)
		}
		<-tick.C
	}
}

// eventually is poll for what has to come true.
func eventually(t *testing.T, patience time.Duration, f func() error) {
	t.Helper()
	if err := poll(patience, f); err != nil {
		t.Fatal(err)
	}
}

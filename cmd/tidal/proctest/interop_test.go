package proctest_test

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// foreign finds a binary of another project, or skips the test. `make interop`
// builds them.
func foreign(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("TIDAL_INTEROP")
	if dir == "" {
		t.Skip("on demand: make interop")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// genCerts makes certificates for nodes a, b and c with the command of the docs.
func genCerts(t *testing.T) (dir string, client *tls.Config) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "certs")
	cmd := exec.Command(binary(t), "certs", "gen", "--dir", dir, "--cluster", "prod", "--node", "a=127.0.0.1", "--node", "b=127.0.0.1", "--node", "c=127.0.0.1")
	cmd.Env = cleanEnv()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir, adminTLS(t, dir)
}

// launchForeign runs a server until the test ends.
func launchForeign(t *testing.T, name string, args ...string) {
	t.Helper()
	var log bytes.Buffer
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = &log, &log
	cmd.SysProcAttr = dieWithUs()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("%s %s:\n%s", name, strings.Join(args, " "), log.Bytes()[max(0, log.Len()-2000):])
		}
	})
}

// postEtcd asks one of the JSON services of etcd.
func postEtcd(tr *http.Transport, url, body string) ([]byte, error) {
	res, err := (&http.Client{Transport: tr, Timeout: 5 * time.Second}).Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%d %s", res.StatusCode, b)
	}
	return b, err
}

// TestEtcdTakesOurCertificates runs three etcd members on certificates of `certs
// gen`, with mutual TLS between them and for clients, as docs/certificates.md shows.
func TestEtcdTakesOurCertificates(t *testing.T) {
	bin := foreign(t, "etcd")
	dir, client := genCerts(t)
	ports := freePorts(t, 6)
	ids := []string{"a", "b", "c"}
	var members []string
	for i, id := range ids {
		members = append(members, id+"=https://"+ports[3+i])
	}
	for i, id := range ids {
		leaf := filepath.Join(dir, "nodes", id, "tls")
		launchForeign(t, bin, "--name", id, "--data-dir", filepath.Join(t.TempDir(), id),
			"--listen-client-urls", "https://"+ports[i], "--advertise-client-urls", "https://"+ports[i],
			"--listen-peer-urls", "https://"+ports[3+i], "--initial-advertise-peer-urls", "https://"+ports[3+i],
			"--initial-cluster", strings.Join(members, ","), "--initial-cluster-state", "new",
			"--trusted-ca-file", filepath.Join(dir, "bundle.crt"), "--client-cert-auth", "--cert-file", leaf+".crt", "--key-file", leaf+".key",
			"--peer-trusted-ca-file", filepath.Join(dir, "bundle.crt"), "--peer-client-cert-auth", "--peer-cert-file", leaf+".crt", "--peer-key-file", leaf+".key")
	}
	post := func(i int, path, body string) ([]byte, error) {
		tr := transport(client)
		defer tr.CloseIdleConnections()
		return postEtcd(tr, "https://"+ports[i]+path, body)
	}
	key, value := base64.StdEncoding.EncodeToString([]byte("k")), base64.StdEncoding.EncodeToString([]byte("v"))
	for i := range ids {
		eventually(t, 60*time.Second, func() error {
			_, err := post(i, "/v3/kv/put", fmt.Sprintf(`{"key":%q,"value":%q}`, key, value))
			return err
		})
		b, err := post((i+1)%3, "/v3/kv/range", fmt.Sprintf(`{"key":%q}`, key))
		if err != nil || !bytes.Contains(b, []byte(value)) {
			t.Errorf("read on another member: %s, %v", b, err)
		}
	}
	b, err := post(0, "/v3/cluster/member/list", "{}")
	var list struct{ Members []struct{ Name string } }
	if err != nil || json.Unmarshal(b, &list) != nil || len(list.Members) != 3 {
		t.Errorf("members: %s, %v", b, err)
	}
	client = client.Clone()
	client.Certificates = nil
	if b, err := post(0, "/v3/kv/range", fmt.Sprintf(`{"key":%q}`, key)); err == nil {
		t.Errorf("without a certificate: %s", b)
	}
}

// TestNATSTakesOurCertificates does the same with three nats-servers.
func TestNATSTakesOurCertificates(t *testing.T) {
	bin := foreign(t, "nats-server")
	dir, client := genCerts(t)
	ports := freePorts(t, 9)
	var routes []string
	for i := range 3 {
		routes = append(routes, fmt.Sprintf("%q", "nats-route://"+ports[3+i]))
	}
	for i, id := range []string{"a", "b", "c"} {
		secure := fmt.Sprintf("tls { cert_file: %q, key_file: %q, ca_file: %q, verify: true }",
			filepath.Join(dir, "nodes", id, "tls.crt"), filepath.Join(dir, "nodes", id, "tls.key"), filepath.Join(dir, "bundle.crt"))
		conf := filepath.Join(t.TempDir(), "nats.conf")
		text := fmt.Sprintf("server_name: %s\nlisten: %q\nhttp: %q\n%s\ncluster { name: prod, listen: %q, routes: [%s], %s }\n",
			id, ports[i], ports[6+i], secure, ports[3+i], strings.Join(routes, ", "), secure)
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		launchForeign(t, bin, "-c", conf)
	}
	for i := range 3 {
		eventually(t, 60*time.Second, func() error { return natsPeers(ports[6+i]) })
	}
	sub, r, err := natsDial(ports[0], client)
	if err != nil {
		t.Fatal(err)
	}
	defer sub.Close()
	_, _ = io.WriteString(sub, "SUB hello 1\r\nPING\r\n")
	if line, readErr := r.ReadString('\n'); readErr != nil || line != "PONG\r\n" {
		t.Fatalf("%q, %v", line, readErr)
	}
	pub, _, err := natsDial(ports[1], client)
	if err != nil {
		t.Fatal(err)
	}
	defer pub.Close()
	eventually(t, 20*time.Second, func() error { // the interest travels
		_, _ = io.WriteString(pub, "PUB hello 2\r\nhi\r\n")
		if err := sub.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			return err
		}
		line, err := r.ReadString('\n')
		if err == nil && !strings.HasPrefix(line, "MSG hello 1 2") {
			err = fmt.Errorf("%q", line)
		}
		return err
	})
	client = client.Clone()
	client.Certificates = nil
	if c, _, err := natsDial(ports[0], client); err == nil {
		c.Close()
		t.Error("without a certificate it is let in")
	}
}

// natsPeers is an error unless a server has routes to both others.
func natsPeers(monitor string) error {
	res, err := http.Get("http://" + monitor + "/routez")
	if err != nil {
		return err
	}
	defer res.Body.Close()
	var r struct {
		Routes []struct {
			RemoteName string `json:"remote_name"`
		} `json:"routes"`
	}
	if err = json.NewDecoder(res.Body).Decode(&r); err != nil {
		return err
	}
	peers := map[string]bool{}
	for _, one := range r.Routes {
		peers[one.RemoteName] = true
	}
	if len(peers) != 2 {
		return fmt.Errorf("routes to %v", peers)
	}
	return nil
}

// natsDial connects as a client: the server speaks first, in the clear.
func natsDial(address string, conf *tls.Config) (net.Conn, *bufio.Reader, error) {
	raw, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		return nil, nil, err
	}
	if err = raw.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return nil, nil, err
	}
	info := make([]byte, 0, 4096)
	for one := make([]byte, 1); !bytes.HasSuffix(info, []byte("\r\n")); info = append(info, one[0]) {
		if _, err = raw.Read(one); err != nil {
			return nil, nil, err
		}
	}
	conf = conf.Clone()
	conf.ServerName = "127.0.0.1"
	c := tls.Client(raw, conf)
	_, err = io.WriteString(c, "CONNECT {\"verbose\":false,\"pedantic\":false}\r\nPING\r\n")
	r := bufio.NewReader(c)
	for err == nil {
		var line string
		if line, err = r.ReadString('\n'); line == "PONG\r\n" {
			return c, r, c.SetDeadline(time.Time{})
		}
	}
	_ = raw.Close()
	return nil, nil, fmt.Errorf("no PONG: %w", err)
}

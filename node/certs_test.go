package node_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/node/config"
	"tidal/pki"
)

// secure gives the nodes certificates, and the test the admin's.
func (c *trio) secure() { c.secureBy(pki.Plan{Cluster: "test"}) }

func (c *trio) secureBy(p pki.Plan) {
	c.t.Helper()
	c.certs = filepath.Join(c.dir, "certs")
	for id := range c.ports {
		p.Nodes = append(p.Nodes, pki.Node{ID: id})
	}
	if _, err := pki.Gen(c.t.Context(), c.certs, p, time.Now()); err != nil {
		c.t.Fatal(err)
	}
	admin, err := pki.LoadClient(pki.ClientFiles(c.certs, "admin"), time.Now())
	if err != nil {
		c.t.Fatal(err)
	}
	tr := &http.Transport{TLSClientConfig: admin.ClientTLS(time.Second)}
	c.web = &http.Client{Transport: tr}
	c.t.Cleanup(tr.CloseIdleConnections)
}

func (c *trio) local(id string) (s api.LocalStatus) {
	c.t.Helper()
	_, body, _ := c.do(http.MethodGet, id, "/cluster/status/local", nil)
	if err := json.Unmarshal(body, &s); err != nil {
		c.t.Fatalf("%v: %s", err, body)
	}
	return s
}

// serials returns the serials of the nodes' certificates in the files.
func (c *trio) serials() map[string]string {
	c.t.Helper()
	out := map[string]string{}
	for id := range c.ports {
		leaf, err := pki.ReadCert(pki.NodeFiles(c.certs, id).Cert)
		if err != nil {
			c.t.Fatal(err)
		}
		out["spiffe://test/node/"+id] = pki.Serial(leaf)
	}
	return out
}

// outdated says which of a node's open connections show a node's certificate that
// is not in its file any more.
func (c *trio) outdated(id string, now map[string]string) string {
	s := c.local(id)
	if s.Certificates == nil || s.Certificates.Serial != now["spiffe://test/node/"+id] {
		return "it uses another certificate than its file holds"
	}
	if len(s.Connections) < len(c.ports) {
		return fmt.Sprintf("only %d kinds of connections", len(s.Connections))
	}
	for _, conn := range s.Connections {
		want, isNode := now[conn.Identity]
		if conn.Own != s.Certificates.Serial || isNode && conn.Peer != want {
			return fmt.Sprintf("%d connections with %s show %s and %s", conn.Count, conn.Identity, conn.Own, conn.Peer)
		}
	}
	return ""
}

// TestNewCertificatesWithoutARestart replaces key and certificate of every node
// under requests: all are answered, and after a moment no connection is left
// whose handshake was made with the old ones.
func TestNewCertificatesWithoutARestart(t *testing.T) {
	c := newTrio(t, "a", "b", "c")
	c.secure()
	for id := range c.ports {
		c.start(id)
	}
	for id := range c.ports {
		c.ready(id)
	}
	if code, body, _ := c.do(http.MethodPut, "a", "/v1/tables/t", []byte(`{"replicas":3}`)); code/100 != 2 {
		t.Fatalf("create a table: %d %s", code, body)
	}
	before := c.serials()
	for id := range c.ports {
		c.await("all connections of "+id, func() (bool, string) { why := c.outdated(id, before); return why == "", why })
	}
	if _, err := pki.Renew(t.Context(), c.certs, pki.Renewal{What: []string{"node/a", "node/b", "node/c"}, Rekey: true}, time.Now()); err != nil {
		t.Fatal(err)
	}
	c.reload["b"] <- syscall.SIGHUP // the others see it themselves
	code, body, _ := c.do(http.MethodPost, "b", "/v1/nodes/c/certs/reload", nil)
	var report api.NodeReport
	if err := json.Unmarshal(body, &report); err != nil || code != http.StatusOK || report.Node != "c" || report.Certificates.Serial != c.serials()["spiffe://test/node/c"] {
		t.Errorf("reload: %d %s, %v", code, body, err)
	}
	after, n := c.serials(), 0
	for id := range c.ports {
		c.await("no old connection of "+id, func() (bool, string) {
			n++
			for to := range c.ports {
				if code, body, _ := c.do(http.MethodPut, to, fmt.Sprintf("/v1/tables/t/rows/k%d", n), []byte("v")); code != http.StatusNoContent {
					t.Fatalf("put row %d on %s: %d %s", n, to, code, body)
				}
			}
			why := c.outdated(id, after)
			return why == "", why
		})
		if before["spiffe://test/node/"+id] == after["spiffe://test/node/"+id] {
			t.Errorf("node %s has its old certificate", id)
		}
	}
}

// TestSharedCertificate has two nodes share one certificate, each as itself.
func TestSharedCertificate(t *testing.T) {
	c := newTrio(t, "a", "b")
	c.secureBy(pki.Plan{Cluster: "test", SharedLeaf: true})
	shared := pki.NodeFiles(c.certs, pki.Shared)
	for id := range c.ports {
		c.startWith(id, func(f *config.Config) { f.TLS.Cert, f.TLS.Key = shared.Cert, shared.Key })
	}
	for id := range c.ports {
		c.ready(id)
	}
	c.tableOfOne("b")
	c.put("a", "k") // forwarded
	for id := range c.ports {
		if x := c.local(id).Certificates; x.Identity != "spiffe://test/node/*" {
			t.Errorf("node %s is %+v", id, x)
		}
	}
}

// TestBrokenCertificatesAreNotTaken: files that cannot be used change nothing but
// what the node says of them.
func TestBrokenCertificatesAreNotTaken(t *testing.T) {
	c := newTrio(t, "a")
	c.secure()
	c.start("a")
	c.ready("a")
	f := pki.NodeFiles(c.certs, "a")
	good, err := os.ReadFile(f.Cert)
	if err != nil {
		t.Fatal(err)
	}
	serial := c.serials()["spiffe://test/node/a"]
	if err = os.WriteFile(f.Cert, good[:len(good)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		code, body, _ := c.do(http.MethodPost, "a", "/v1/node/certs/reload", nil)
		var r api.NodeReport
		if err = json.Unmarshal(body, &r); err != nil || code != http.StatusOK {
			t.Fatalf("%d %s, %v", code, body, err)
		}
		if x := r.Certificates; x.Serial != serial || !strings.Contains(x.Problem, f.Cert+": the PEM block") || x.Taken != 1 || x.Failed == 0 {
			t.Errorf("%+v", x)
		}
	}
	_, body, _ := c.do(http.MethodGet, "a", "/metrics", nil)
	for _, line := range []string{"tidal_cert_files_good 0", "tidal_cert_reloads_total 1"} {
		if !strings.Contains(string(body), "\n"+line+"\n") {
			t.Errorf("the metrics lack %q", line)
		}
	}
	if err = os.WriteFile(f.Cert, good, 0o600); err != nil {
		t.Fatal(err)
	}
	c.await("the files are good again", func() (bool, string) {
		x := c.local("a").Certificates
		return x.Problem == "" && x.Serial == serial && x.Taken == 1, fmt.Sprintf("%+v", x)
	})
}

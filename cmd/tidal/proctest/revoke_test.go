package proctest_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// revokes has a client's certificate revoked with the command: its open connections
// end, it gets no others, and what a node or the command itself uses stays.
func (c *cluster) revokes(t *testing.T) {
	t.Helper()
	if code, out := c.tidal(t, "certs", "issue", "client", "gone=reader", "--dir", c.certs()); code != 0 {
		t.Fatalf("exit %d\n%s", code, out)
	}
	leaf := filepath.Join(c.certs(), "clients", "gone", "tls")
	pair, unreadable := tls.LoadX509KeyPair(leaf+".crt", leaf+".key")
	if unreadable != nil {
		t.Fatal(unreadable)
	}
	conf := c.tls.Clone()
	conf.Certificates = []tls.Certificate{pair}
	tr := transport(conf)
	defer tr.CloseIdleConnections()
	ask := func() error {
		res, err := (&http.Client{Transport: tr, Timeout: 5 * time.Second}).Get(c.scheme() + c.nodes[1].listen + "/v1/nodes")
		if err != nil {
			return err
		}
		err = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			err = errors.Join(err, fmt.Errorf("%d", res.StatusCode))
		}
		return err
	}
	if err := ask(); err != nil {
		t.Fatalf("before it is revoked: %v", err)
	}
	if code, out := c.tidal(t, c.asAdmin("certs", "revoke", leaf+".crt", "--reason", "lost")...); code != 0 || !strings.Contains(out, "is refused by every live node") {
		t.Fatalf("exit %d\n%s", code, out)
	}
	for range 2 { // on its open connection, and on another
		if ask() == nil {
			t.Error("a revoked certificate is let in")
		}
	}
	for file, say := range map[string]string{"nodes/n1": "node n1 lives and uses this certificate", "clients/admin": "the cluster would refuse you"} {
		if code, out := c.tidal(t, c.asAdmin("certs", "revoke", filepath.Join(c.certs(), file, "tls.crt"))...); code != 7 || !strings.Contains(out, say) {
			t.Errorf("%s: exit %d\n%s", file, code, out)
		}
	}
	for _, file := range []string{"intermediate.crt", "root.crt"} {
		if code, out := c.tidal(t, c.asAdmin("certs", "revoke", "--force", filepath.Join(c.certs(), "ca", file))...); code != 7 || !strings.Contains(out, "hint: tidal certs rotate") {
			t.Errorf("%s: exit %d\n%s", file, code, out)
		}
	}
	if code, out := c.tidal(t, c.asAdmin("certs", "revoke", "--list")...); code != 0 || !strings.Contains(out, "lost") || strings.Count(out, "\n") != 2 {
		t.Errorf("exit %d\n%s", code, out)
	}
}

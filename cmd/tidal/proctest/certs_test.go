package proctest_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/pki"
)

// serials asks each node for the certificate that it uses, and whether all its
// connections were made with those that the nodes use now.
func (c *cluster) serials(t *testing.T) (now map[string]string, outdated error) {
	t.Helper()
	now = map[string]string{}
	var all []api.LocalStatus
	for i := range c.nodes {
		s := c.local(t, i)
		if s.Certificates == nil {
			t.Fatalf("%s tells no certificate", s.Node)
		}
		all = append(all, s)
		now[s.Certificates.Identity] = s.Certificates.Serial
	}
	for _, s := range all {
		for _, conn := range s.Connections {
			want, isNode := now[conn.Identity]
			if conn.Own != s.Certificates.Serial || isNode && conn.Peer != want {
				return now, fmt.Errorf("%s: %d connections with %s show %.8s and %.8s", s.Node, conn.Count, conn.Identity, conn.Own, conn.Peer)
			}
		}
	}
	return now, nil
}

// TestCertsUnderLoad renews every certificate under writers, with new keys on every
// host. Nobody is refused, no connection breaks under a request, and after a moment
// none is open that shows an old serial. A file that is broken meanwhile is told,
// and takes nothing.
func TestCertsUnderLoad(t *testing.T) {
	if r := certsRun(t, ""); r.refused > 0 {
		t.Errorf("%d of %d writes were not answered 2xx", r.refused, r.total)
	}
}

// TestControlCertsCut closes connections at once when certificates change, and the
// writers must notice.
func TestControlCertsCut(t *testing.T) {
	for i := range runs(t, "TIDAL_CONTROLS", 0) {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			if r := certsRun(t, "certs-cut"); r.refused == 0 {
				t.Error("nothing was noticed: TestCertsUnderLoad cannot fail")
			}
		})
	}
}

// certsRun renews everything twice under writers, and returns how they fared.
func certsRun(t *testing.T, faults string) *report {
	t.Helper()
	c := newCluster(t, clusterOptions{delay: linkDelay, faults: faults})
	c.startAll(t)
	tables := c.createTables(t, 3)
	before, _ := c.serials(t)
	f := launch(t, c.targets(), fleetOptions{tables: tables, perTable: 6, rate: 200})
	pause(500 * time.Millisecond)
	for i, args := range [][]string{{"--all", "--rekey"}, {"--all"}} {
		if code, out := c.tidal(t, append([]string{"certs", "renew", "--dir", c.certs()}, args...)...); code != 0 || !strings.Contains(out, "4 renewed") {
			t.Fatalf("exit %d\n%s", code, out)
		}
		if i == 0 { // the second time they look themselves
			if code, out := c.tidal(t, c.asAdmin("certs", "reload")...); code != 0 || strings.Count(out, "in use since") != 3 {
				t.Fatalf("exit %d\n%s", code, out)
			}
		}
		began := time.Now()
		var after map[string]string
		eventually(t, 25*time.Second, func() error {
			now, outdated := c.serials(t)
			after = now
			for id, s := range now {
				if before[id] == s {
					return fmt.Errorf("%s uses its old certificate", id)
				}
			}
			return outdated
		})
		before = after
		t.Logf("no connection on an old certificate %v after the command", time.Since(began).Round(time.Millisecond))
	}
	if code, out := c.tidal(t, c.asAdmin("certs", "check", c.certs())...); code != 0 || strings.Count(out, "served") != 3 {
		t.Errorf("exit %d\n%s", code, out)
	}
	node := filepath.Join(c.certs(), "nodes", "n2")
	if code, out := c.tidal(t, "certs", "verify", c.nodes[0].listen, "--node", "n1", "--ca", filepath.Join(c.certs(), "bundle.crt"),
		"--cert", filepath.Join(node, "tls.crt"), "--key", filepath.Join(node, "tls.key")); code != 0 || !strings.Contains(out, "it takes our certificate spiffe://test/node/n2") {
		t.Errorf("exit %d\n%s", code, out)
	}
	c.revokes(t)
	lasted := time.Since(f.began)
	f.stop()
	r := summarise(f.writes(), lasted)
	t.Logf("%s", r)
	wrong, _ := readBack(c.targets(), append(f.writes(), f.unsent(tables)...), followerLag)
	showList(t, "read back", wrong)
	if faults == "" {
		c.returnsExpired(t)
	}
	return r
}

// returnsExpired has a node be away until its certificate has expired: it says so, and
// comes back by the command that it names.
func (c *cluster) returnsExpired(t *testing.T) {
	t.Helper()
	n := c.nodes[2]
	n.kill()
	began := time.Now()
	then := began.Add(-3 * time.Hour)
	if _, err := pki.Renew(t.Context(), c.certs(), pki.Renewal{What: []string{"node/" + n.id}, Life: 2 * time.Hour}, then); err != nil {
		t.Fatal(err)
	}
	n.start(t, "")
	eventually(t, 10*time.Second, func() error {
		if n.running() {
			return errors.New(n.id + " runs with an expired certificate")
		}
		return nil
	})
	if code, said := n.cmd.ProcessState.ExitCode(), n.tail(2); code != 3 ||
		!strings.Contains(said, "tls.crt: the certificate expired at") || !strings.Contains(said, "hint: renew it where it was made: tidal certs renew") {
		t.Fatalf("exit %d\n%s", code, said)
	}
	if code, out := c.tidal(t, "certs", "renew", "node/"+n.id, "--dir", c.certs()); code != 0 {
		t.Fatalf("exit %d\n%s", code, out)
	}
	n.start(t, "")
	c.healthy(t, 30*time.Second)
	t.Logf("%s is back %v after it was killed and its certificate expired", n.id, time.Since(began).Round(time.Millisecond))
}

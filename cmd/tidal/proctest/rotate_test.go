package proctest_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
)

// rotation asks the nodes that run how far a rotation is.
func (c *cluster) rotation() (r api.Rotation, err error) {
	for i := range c.nodes {
		var a answer
		if a, err = c.call(i, http.MethodGet, "/v1/certs/rotation", "", nil); err == nil {
			return r, json.Unmarshal(a.body, &r)
		}
	}
	return r, err
}

// trusted returns the roots that each node trusts, by node.
func (c *cluster) trusted(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for i, n := range c.nodes {
		s := c.local(t, i)
		if s.Certificates == nil {
			t.Fatalf("%s tells no certificate", n.id)
		}
		var roots []string
		for _, r := range s.Certificates.Roots {
			roots = append(roots, r.Fingerprint)
		}
		slices.Sort(roots)
		out[n.id] = strings.Join(roots, " ")
	}
	return out
}

// oldAdmin keeps a copy of the admin's certificate and dials with it.
func (c *cluster) oldAdmin(t *testing.T) (dial func() error) {
	t.Helper()
	admin := filepath.Join(c.certs(), "clients", "admin")
	pair, err := tls.LoadX509KeyPair(filepath.Join(admin, "tls.crt"), filepath.Join(admin, "tls.key"))
	if err != nil {
		t.Fatal(err)
	}
	return func() error {
		conf := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }}
		tr := transport(conf)
		defer tr.CloseIdleConnections()
		res, err := (&http.Client{Transport: tr, Timeout: 5 * time.Second}).Get("https://" + c.nodes[0].listen + "/v1/nodes")
		if err == nil {
			err = res.Body.Close()
		}
		return err
	}
}

// TestCertsRotate puts a new authority in the place of the old one under writers:
// nobody is refused, and at the end no connection is open on an old serial and
// nobody trusts the old root.
func TestCertsRotate(t *testing.T) {
	for i := range runs(t, "TIDAL_ROTATE", 0) {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			if r := rotateRun(t, func(*cluster) {}); r.refused > 0 {
				t.Errorf("%d of %d writes were not answered 2xx", r.refused, r.total)
			}
		})
	}
}

// TestCertsRotateKilled kills the command in each phase, and a node, and goes on.
func TestCertsRotateKilled(t *testing.T) {
	for i := range runs(t, "TIDAL_ROTATE", 0) {
		t.Run(strconv.Itoa(i+1), func(t *testing.T) {
			r := rotateRun(t, func(c *cluster) { c.rotateKilled(t) })
			t.Logf("%d of %d writes were not answered 2xx: nodes were killed", r.refused, r.total)
		})
	}
}

// rotateKilled has a rotation killed in every phase: the command first, then a node.
func (c *cluster) rotateKilled(t *testing.T) {
	t.Helper()
	order := []string{api.RotateTrust, api.RotateIssue, api.RotateSoak, api.RotateDrop}
	for k, phase := range order {
		cmd := c.command(t, c.asAdmin("certs", "rotate", "--dir", c.certs())...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		err := poll(30*time.Second, func() error {
			r, err := c.rotation()
			if err == nil && slices.Index(order, r.Phase) < k && r.Phase != api.RotateDone {
				err = fmt.Errorf("phase %q", r.Phase)
			}
			return err
		})
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if err != nil {
			t.Fatalf("phase %s: %v\n%s", phase, err, out.Bytes())
		}
		r, err := c.rotation()
		if err != nil {
			t.Fatal(err)
		}
		n := c.nodes[k%len(c.nodes)]
		n.kill()
		t.Logf("the command and %s were killed in phase %s", n.id, r.Phase)
		code, text := c.tidal(t, c.asAdmin("certs", "rotate", "--dir", c.certs(), "--timeout", "1s")...)
		if code != 8 && r.Phase != api.RotateDone {
			t.Errorf("with %s down: exit %d, want 8\n%s", n.id, code, text)
		}
		n.start(t, "")
		c.healthy(t, 60*time.Second)
	}
}

func rotateRun(t *testing.T, disturb func(*cluster)) *report {
	t.Helper()
	c := newCluster(t, clusterOptions{delay: linkDelay, liveTLS: true})
	c.startAll(t)
	tables := c.createTables(t, 3)
	before, _ := c.serials(t)
	roots := c.trusted(t)
	old := c.oldAdmin(t)
	f := launch(t, c.targets(), fleetOptions{tables: tables, perTable: 6, rate: 200})
	pause(500 * time.Millisecond)
	if code, out := c.tidal(t, c.asAdmin("certs", "rotate", "--dir", c.certs(), "--dry-run")...); code != 0 || !strings.Contains(out, "4. drop") {
		t.Fatalf("exit %d\n%s", code, out)
	}
	began := time.Now()
	disturb(c)
	code, out := c.tidal(t, c.asAdmin("certs", "rotate", "--dir", c.certs())...)
	t.Logf("exit %d after %v\n%s", code, time.Since(began).Round(time.Millisecond), out)
	if code != 0 {
		t.Fatal("the rotation did not end")
	}
	after, outdated := c.serials(t)
	if outdated != nil {
		t.Error(outdated)
	}
	now := c.trusted(t)
	for _, n := range c.nodes {
		id := "spiffe://test/node/" + n.id
		if before[id] == after[id] || roots[n.id] == now[n.id] || strings.Contains(now[n.id], " ") {
			t.Errorf("%s uses %.8s as before (%.8s), or trusts %q", n.id, after[id], before[id], now[n.id])
		}
	}
	if err := old(); err == nil {
		t.Error("a certificate of the old authority is accepted")
	}
	if kept, err := filepath.Glob(filepath.Join(c.certs(), "ca-*")); err != nil || len(kept) != 1 || !strings.Contains(kept[0], "ca-retired-") {
		t.Errorf("beside ca there is %v, %v", kept, err)
	}
	if code, out := c.tidal(t, c.asAdmin("certs", "check", c.certs())...); code != 0 {
		t.Errorf("exit %d\n%s", code, out)
	}
	lasted := time.Since(f.began)
	f.stop()
	r := summarise(f.writes(), lasted)
	t.Logf("%s", r)
	wrong, _ := readBack(c.targets(), append(f.writes(), f.unsent(tables)...), followerLag)
	showList(t, "read back", wrong)
	return r
}

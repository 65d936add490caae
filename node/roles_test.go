package node_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"tidal/node/api"
	"tidal/pki"
)

// documentedRoutes returns what docs/http-api.md says that each route needs.
func documentedRoutes(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile("../docs/http-api.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([A-Z]+ /[^`]*)` \\| ([^|]*) \\|").FindAllStringSubmatch(string(b), -1) {
		out[m[1]] = strings.TrimSpace(m[2])
	}
	return out
}

// someone is a client with a certificate, or without.
type someone struct {
	name string
	web  *http.Client
	// may says whether it may use a route by what the route needs, and with which
	// status it is refused; 0 is a handshake that fails.
	may func(needs string) (bool, int)
}

// TestRoles asks for every route there is as everybody that a cluster may meet,
// over real connections: who may not gets 401 or 403, or not even a handshake, and
// nothing is done; who may gets neither.
func TestRoles(t *testing.T) {
	c := newTrio(t, "a")
	c.secure()
	other := filepath.Join(c.dir, "other")
	for dir, cluster := range map[string]string{c.certs: "test", other: "staging"} {
		p := pki.Plan{Cluster: cluster, Nodes: []pki.Node{{ID: "a"}}, Clients: []pki.Client{
			{Name: "r", Role: "reader"}, {Name: "w", Role: "writer"}, {Name: "gone", Role: "admin"},
		}}
		if _, err := pki.Gen(t.Context(), dir, p, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	// The node trusts the other cluster's authority as well, as during a rotation or
	// by mistake: then it is the identity that keeps its clients out.
	if _, err := pki.AddRoots(t.Context(), c.certs, other+"/ca/root.crt", time.Now()); err != nil {
		t.Fatal(err)
	}
	foreign := t.TempDir()
	if _, err := pki.Gen(t.Context(), foreign, pki.Plan{Cluster: "test", Nodes: []pki.Node{{ID: "a"}}}, time.Now()); err != nil {
		t.Fatal(err)
	}
	c.start("a")
	c.ready("a")
	client := func(files pki.Files) *http.Client {
		conf := &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}
		if files.Cert != "" {
			pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
			if err != nil {
				t.Fatal(err)
			}
			conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
		}
		tr := &http.Transport{TLSClientConfig: conf}
		t.Cleanup(tr.CloseIdleConnections)
		return &http.Client{Transport: tr}
	}
	rank := map[string]int{"nothing": 0, "a certificate": 1, "reader": 2, "writer": 3, "admin": 4}
	upTo := func(have string, status int) func(string) (bool, int) {
		return func(needs string) (bool, int) { return rank[needs] <= rank[have], status }
	}
	never := func(string) (bool, int) { return false, 0 }
	gone := client(pki.ClientFiles(c.certs, "gone"))
	// It has a connection from before.
	if status, _ := c.as(gone, "GET /v1/nodes"); status != http.StatusOK {
		t.Fatalf("before it is revoked: %d", status)
	}
	leaf, err := pki.ReadCert(pki.ClientFiles(c.certs, "gone").Cert)
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Sprintf(`{"serial":%q,"reason":"lost"}`, pki.Serial(leaf))
	if code, answer, _ := c.do(http.MethodPost, "a", "/v1/certs/revoked", []byte(body)); code != http.StatusNoContent {
		t.Fatalf("revoke: %d %s", code, answer)
	}
	// What signed the node's own certificate stays, whoever asks: nobody could take
	// that back.
	for _, file := range []string{"intermediate.crt", "root.crt"} {
		signer, readErr := pki.ReadCert(filepath.Join(c.certs, "ca", file))
		if readErr != nil {
			t.Fatal(readErr)
		}
		body = fmt.Sprintf(`{"serial":%q}`, pki.Serial(signer))
		if code, answer, _ := c.do(http.MethodPost, "a", "/v1/certs/revoked", []byte(body)); code != http.StatusConflict || !strings.Contains(string(answer), "tidal certs rotate") {
			t.Errorf("revoke %s: %d %s", file, code, answer)
		}
	}
	c.await("revoked", func() (bool, string) { return c.local("a").Certificates.Revoked == 1, "" })
	routes := documentedRoutes(t)
	if len(routes) < 20 {
		t.Fatalf("%d routes are documented", len(routes))
	}
	for _, who := range []someone{
		{"nobody", client(pki.Files{}), upTo("nothing", http.StatusUnauthorized)},
		{"a reader", client(pki.ClientFiles(c.certs, "r")), upTo("reader", http.StatusForbidden)},
		{"a writer", client(pki.ClientFiles(c.certs, "w")), upTo("writer", http.StatusForbidden)},
		{"a node", client(pki.NodeFiles(c.certs, "a")), upTo("a certificate", http.StatusForbidden)},
		{"another cluster's admin", client(pki.ClientFiles(other, "admin")), never},
		{"another authority's admin", client(pki.ClientFiles(foreign, "admin")), never},
		{"who was revoked", client(pki.ClientFiles(c.certs, "gone")), never},
		{"who was revoked, on its old connection", gone, never},
	} {
		for route, needs := range routes {
			if needs == "a node's certificate" {
				continue // it takes connections over and has rules of its own
			}
			may, want := who.may(needs)
			if may && needs == "admin" {
				continue // it would be done
			}
			got, code := c.as(who.web, route)
			switch {
			case may && (got == 0 || got == http.StatusUnauthorized || got == http.StatusForbidden):
				t.Errorf("%s: %s (needs %s): %d, and it may", route, who.name, needs, got)
			case !may && got != want:
				t.Errorf("%s: %s (needs %s): %d, want %d", route, who.name, needs, got, want)
			case !may && got != 0 && !strings.HasPrefix(route, "HEAD") && api.KindOf(code).Status != got:
				t.Errorf("%s: %s: status %d with code %q", route, who.name, got, code)
			}
		}
	}
	if code, answer, _ := c.do(http.MethodGet, "a", "/v1/tables", nil); code != http.StatusOK || string(answer) != "{\"tables\":[]}\n" {
		t.Errorf("something was done: %d %s", code, answer)
	}
}

// as asks for a route, with names in the place of what is variable in it. The
// status is 0 if there is no answer.
func (c *trio) as(web *http.Client, route string) (status int, code api.Code) {
	c.t.Helper()
	method, path, _ := strings.Cut(route, " ")
	path = strings.NewReplacer("{table}", "t", "{key}", "k", "{node}", "a").Replace(path)
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, c.url("a")+path, strings.NewReader(""))
	if err != nil {
		c.t.Fatal(err)
	}
	res, err := web.Do(req)
	if err != nil {
		return 0, ""
	}
	defer res.Body.Close()
	var p api.Problem
	if res.Header.Get("Content-Type") == "application/x-ndjson" {
		return res.StatusCode, "" // it has no end
	}
	if body, err := io.ReadAll(res.Body); err == nil {
		_ = json.Unmarshal(body, &p) // not every answer is a problem
	}
	return res.StatusCode, p.Code
}

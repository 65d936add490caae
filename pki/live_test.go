package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tidal/pki"
)

// take puts a file of one directory in the place of another's, as mv does.
func take(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err = errors.Join(os.WriteFile(to+".new", data, 0o600), os.Rename(to+".new", to)); err != nil {
		t.Fatal(err)
	}
}

// Certificate and key come one after the other, and for as long as they do not
// fit the old pair serves. Each look says so, and the one after the second file
// takes both.
func TestReloadKeepsTheLastGoodSet(t *testing.T) {
	dir, next := world(t), t.TempDir()
	if err := os.CopyFS(next, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	for name := range tree(t, next) { // CopyFS gives the keys away
		if err := os.Chmod(filepath.Join(next, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := pki.Renew(t.Context(), next, pki.Renewal{What: []string{"node/b"}, Rekey: true}, time.Now()); err != nil {
		t.Fatal(err)
	}
	b, a := server(t, dir, "b"), server(t, dir, "a")
	listen := b.ServerTLS()
	first := pki.Serial(b.Leaf())
	f, g := pki.NodeFiles(dir, "b"), pki.NodeFiles(next, "b")
	look := func(changed bool, say string, want pki.Loads) {
		t.Helper()
		got, err := b.Reload(time.Now())
		if got != changed || (err == nil) != (say == "") || err != nil && !strings.Contains(err.Error(), say) {
			t.Fatalf("changed %t, %v; want %t, %q", got, err, changed, say)
		}
		l := b.Loads()
		if l.Taken != want.Taken || l.Failed != want.Failed || (l.Problem == nil) != (say == "") {
			t.Errorf("loads %+v, want %+v", l, want)
		}
		if m := meet(t, listen, a.NodeTLS("b"), "localhost"); m.dialError != nil || pki.Serial(m.dialed.PeerCertificates[0]) != pki.Serial(b.Leaf()) {
			t.Errorf("served: %v", m.dialError)
		}
	}
	look(false, "", pki.Loads{Taken: 1})
	if err := os.Chtimes(f.Cert, time.Now(), time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	look(false, "", pki.Loads{Taken: 1})
	take(t, g.Cert, f.Cert)
	look(false, "fits the private key", pki.Loads{Taken: 1, Failed: 1})
	look(false, "fits the private key", pki.Loads{Taken: 1, Failed: 2})
	if pki.Serial(b.Leaf()) != first {
		t.Error("half a pair was taken")
	}
	take(t, g.Key, f.Key)
	look(true, "", pki.Loads{Taken: 2, Failed: 2})
	if pki.Serial(b.Leaf()) == first {
		t.Error("the new pair was not taken")
	}
	if err := os.Chmod(f.Key, 0o644); err != nil { // the same content, so nothing changes
		t.Fatal(err)
	}
	look(false, "", pki.Loads{Taken: 2, Failed: 2})
	if err := os.Remove(f.CA); err != nil {
		t.Fatal(err)
	}
	look(false, "no such file", pki.Loads{Taken: 2, Failed: 3})
	take(t, dir+"/ca/root.crt", f.CA)
	look(false, "", pki.Loads{Taken: 2, Failed: 3})
}

// Trust is as live as the certificate: a root that is added admits whom it signed
// from the next handshake on, and one that is removed no longer does, at the node
// and at a client whose configuration is as old as the process.
func TestTrustIsLive(t *testing.T) {
	dir, other := world(t), world(t)
	b := server(t, dir, "b")
	listen := b.ServerTLS()
	old := client(t, pki.ClientFiles(dir, "admin"))
	dial := old.ClientTLS(time.Hour) // a server that it does not know makes it look at once
	foreign := server(t, other, "b").ServerTLS()
	them := client(t, pki.Files{CA: dir + "/bundle.crt"}).NodeTLS("b")
	them.GetClientCertificate = client(t, pki.ClientFiles(other, "admin")).NodeTLS("").GetClientCertificate
	check := func(trusts bool) {
		t.Helper()
		if _, err := b.Reload(time.Now()); err != nil {
			t.Fatal(err)
		}
		if m := meet(t, listen, them, "localhost"); (m.acceptError == nil) != trusts {
			t.Errorf("the node meets a client of the other root: %v, want it accepted: %t", m.acceptError, trusts)
		}
		m := meet(t, foreign, dial, "localhost")
		var unverified *tls.CertificateVerificationError
		if accepted := m.dialError == nil || !errors.As(m.dialError, &unverified); accepted != trusts {
			t.Errorf("the client meets a node of the other root: %v, want it accepted: %t", m.dialError, trusts)
		}
		if m = meet(t, listen, dial, "localhost"); m.dialError != nil || m.acceptError != nil {
			t.Errorf("the client meets its node: %v, %v", m.dialError, m.acceptError)
		}
		if m = meet(t, listen, dial, "node-a.example.com"); m.dialError == nil || !strings.Contains(m.dialError.Error(), "node-b.example.com") {
			t.Errorf("the client takes any name: %v", m.dialError)
		}
	}
	check(false)
	roots, err := pki.AddRoots(t.Context(), dir, other+"/ca/root.crt", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	check(true)
	if _, err = pki.RemoveRoot(t.Context(), dir, roots[1].Fingerprint, time.Now()); err != nil {
		t.Fatal(err)
	}
	old.Renewed(0)
	check(false)
	// Its own certificate, too.
	n := old.Renewed(0)
	if _, err = pki.Renew(t.Context(), dir, pki.Renewal{What: []string{"client/admin"}, Rekey: true}, time.Now()); err != nil {
		t.Fatal(err)
	}
	if m := meet(t, listen, old.ClientTLS(0), "localhost"); m.dialError != nil || pki.Serial(m.accepted.PeerCertificates[0]) != pki.Serial(cert(t, dir+"/clients/admin/tls.crt")) {
		t.Errorf("it shows its old certificate, %v", m.dialError)
	}
	if got := old.Renewed(time.Hour); got != n+1 {
		t.Errorf("renewed %d times, want %d", got, n+1)
	}
}

func TestRevoked(t *testing.T) {
	dir := world(t)
	a, b := server(t, dir, "a"), server(t, dir, "b")
	admin, app := client(t, pki.ClientFiles(dir, "admin")), client(t, pki.ClientFiles(dir, "app"))
	refused := func(listen, dial *pki.Keypair, node string) error {
		m := meet(t, listen.ServerTLS(), dial.NodeTLS(node), "localhost")
		return errors.Join(m.acceptError, m.dialError)
	}
	b.Revoke([]string{pki.Serial(admin.Leaf()), "12ab"})
	if err := refused(b, admin, ""); err == nil || !strings.Contains(err.Error(), "spiffe://prod/role/admin/admin, serial "+pki.Serial(admin.Leaf())+", was revoked") {
		t.Errorf("a revoked client: %v", err)
	}
	if err := refused(b, app, ""); err != nil {
		t.Errorf("another client: %v", err)
	}
	a.Revoke([]string{pki.Serial(b.Leaf())})
	if err := refused(b, a, "b"); err == nil || !strings.Contains(err.Error(), "was revoked") {
		t.Errorf("a revoked node is dialled: %v", err)
	}
	a.Revoke([]string{pki.Serial(cert(t, dir+"/ca/intermediate.crt"))})
	if err := refused(a, app, ""); err == nil || !strings.Contains(err.Error(), "was revoked") {
		t.Errorf("a client of a revoked issuer: %v", err)
	}
	a.Revoke([]string{pki.Serial(cert(t, dir+"/ca/root.crt"))})
	if err := refused(a, app, ""); err == nil || !strings.Contains(err.Error(), "was revoked") {
		t.Errorf("a client under a revoked root: %v", err)
	}
	if err := refused(b, a, "b"); err == nil || !strings.Contains(err.Error(), "was revoked") {
		t.Errorf("a node under a revoked root is dialled: %v", err)
	}
	a.Revoke(nil)
	if err := refused(a, app, ""); err != nil {
		t.Errorf("nothing is revoked: %v", err)
	}
}

func TestValidUntil(t *testing.T) {
	dir := t.TempDir()
	mustGen(t, dir, abc(), start())
	leaf, inter := cert(t, dir+"/nodes/a/tls.crt"), cert(t, dir+"/ca/intermediate.crt")
	if got := pki.ValidUntil([]*x509.Certificate{inter, leaf}); !got.Equal(leaf.NotAfter) {
		t.Errorf("until %s", got)
	}
	if got := pki.ValidUntil(nil); !got.IsZero() {
		t.Errorf("nothing is valid until %s", got)
	}
}

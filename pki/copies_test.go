package pki_test

import (
	"runtime"
	"testing"

	"tidal/pki"
)

// TestConnectionsShareCertificates lets one client meet a node twice, and another once:
// what is parsed of its certificates is there once, and is given up with the last
// connection.
func TestConnectionsShareCertificates(t *testing.T) {
	dir := world(t)
	b := server(t, dir, "b")
	share(t, dir, b)
	for range 100 { // the cleanups run after a collection, and not in it
		if runtime.GC(); b.Copies() <= 1 { // the root lives on with the bundle
			return
		}
		runtime.Gosched()
	}
	t.Errorf("%d certificates are kept that nobody uses", b.Copies())
}

func share(t *testing.T, dir string, b *pki.Keypair) {
	t.Helper()
	listen := b.ServerTLS()
	var met []meeting
	for _, name := range []string{"admin", "admin", "app"} {
		c := client(t, pki.ClientFiles(dir, name))
		m := meet(t, listen, c.NodeTLS(""), "localhost")
		if m.dialError != nil || m.acceptError != nil {
			t.Fatal(m.dialError, m.acceptError)
		}
		met = append(met, m)
	}
	one, two, other := met[0].accepted, met[1].accepted, met[2].accepted
	for i, c := range one.PeerCertificates {
		if c != two.PeerCertificates[i] {
			t.Errorf("certificate %d is there twice", i)
		}
	}
	for i, c := range one.VerifiedChains[0] {
		if c != two.VerifiedChains[0][i] {
			t.Errorf("certificate %d of the chain is there twice", i)
		}
	}
	if one.PeerCertificates[0] == other.PeerCertificates[0] || one.PeerCertificates[0].Equal(other.PeerCertificates[0]) {
		t.Error("two clients have one certificate")
	}
	if n := b.Copies(); n < 3 {
		t.Errorf("%d certificates are kept while they are in use", n)
	}
	runtime.KeepAlive(met)
}

package pki

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
)

// Loads is what became of a Keypair's looks at its files.
type Loads struct {
	Taken   uint64    // sets of files that came into use, the first included
	Failed  uint64    // looks at files that were no good
	Since   time.Time // when the set in use was taken
	Problem error     // of the last look; nil: what is in use is what the files hold
}

// loads guards Loads, and has one look at the files follow another.
type loads struct {
	sync.Mutex
	Loads
	looked time.Time
}

// Loads returns what became of the looks at the files.
func (k *Keypair) Loads() Loads {
	k.loads.Lock()
	defer k.loads.Unlock()
	return k.loads.Loads
}

// Reload looks at the files and reports whether something else is used from the
// next handshake on. That is decided by what is in the files, not by their
// times. If anything is wrong with them, what was loaded before stays, and the
// next look tries again.
func (k *Keypair) Reload(now time.Time) (changed bool, err error) {
	k.loads.Lock()
	defer k.loads.Unlock()
	return k.reloadLocked(now)
}

func (k *Keypair) reloadLocked(now time.Time) (changed bool, err error) {
	k.loads.looked = now
	if m := k.current.Load(); m != nil && m.sum == k.files.sum() {
		k.loads.Problem = nil
		return false, nil
	}
	if err = k.load(now); err != nil {
		k.loads.Failed++
		k.loads.Problem = err
		return false, err
	}
	k.loads.Taken++
	k.loads.Since, k.loads.Problem = now, nil
	return true, nil
}

// look is a Reload if none was for so long. What is wrong with the files Loads
// says.
func (k *Keypair) look(every time.Duration) {
	k.loads.Lock()
	defer k.loads.Unlock()
	if now := time.Now(); now.Sub(k.loads.looked) >= every {
		_, _ = k.reloadLocked(now) // kept in Problem
	}
}

// Renewed looks at the files if the last look was every ago, and returns how many
// sets of them have come into use.
func (k *Keypair) Renewed(every time.Duration) uint64 {
	k.look(every)
	return k.Loads().Taken
}

// sum returns a hash of the contents of the files, zero if one cannot be read:
// whoever loads them says why.
func (f Files) sum() (sum [sha256.Size]byte) {
	h := sha256.New()
	for _, path := range []string{f.CA, f.Cert, f.Key} {
		if path == "" {
			continue
		}
		data, err := readFile(path)
		if err != nil {
			return sum
		}
		_ = binary.Write(h, binary.BigEndian, uint64(len(data))) // a hash takes everything
		h.Write(data)
	}
	h.Sum(sum[:0])
	return sum
}

// readFile reads a file of at most maxPEM bytes.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	return io.ReadAll(io.LimitReader(f, maxPEM+1))
}

// Chain returns the certificate that is shown now and its issuers as far as they
// are sent along; none of a client without one.
func (k *Keypair) Chain() []*x509.Certificate { return k.current.Load().chain }

// Issuers returns the issuers of the certificate that is shown now, up to the root
// in the trust bundle, which is not sent along.
func (k *Keypair) Issuers() []*x509.Certificate {
	m := k.current.Load()
	if len(m.chain) == 0 {
		return nil
	}
	issuers := slices.Clone(m.chain[1:])
	if root := issuerOf(m.chain[len(m.chain)-1], m.trusted); root != nil {
		issuers = append(issuers, root)
	}
	return issuers
}

// Roots returns the trust bundle that is in use.
func (k *Keypair) Roots() []*x509.Certificate { return k.current.Load().trusted }

// Shown is a connection that wants to know which certificate it was served with.
type Shown interface {
	Show(leaf *x509.Certificate)
}

// ClientTLS returns a configuration for all connections to nodes that a client
// makes in its life: certificate, key and roots are those of the moment of each
// handshake. The files are looked at before a handshake if the last look was
// every ago, so that a client takes new ones without being told.
func (k *Keypair) ClientTLS(every time.Duration) *tls.Config {
	c := k.NodeTLS("")
	c.RootCAs = nil
	// The roots in a configuration that is in use cannot be changed, so the chain is
	// verified here, under those of now.
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		k.look(every)
		var err error
		if cs.VerifiedChains, err = verifyServer(&cs, k.current.Load().roots); err != nil {
			k.look(0) // they may have come this moment
			cs.VerifiedChains, err = verifyServer(&cs, k.current.Load().roots)
		}
		if err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: cs.PeerCertificates, Err: err}
		}
		return k.Names(&cs, "")
	}
	return c
}

func verifyServer(cs *tls.ConnectionState, roots *x509.CertPool) ([][]*x509.Certificate, error) {
	inter := x509.NewCertPool()
	for _, c := range cs.PeerCertificates[1:] {
		inter.AddCert(c)
	}
	return cs.PeerCertificates[0].Verify(x509.VerifyOptions{
		DNSName: cs.ServerName, Roots: roots, Intermediates: inter,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
}

// Revoke makes the serial numbers, in hex, those whose certificates are refused
// from the next handshake on, whatever they are valid for. An issuer's refuses all
// that it signed.
func (k *Keypair) Revoke(serials []string) {
	set := make(map[string]bool, len(serials))
	for _, s := range serials {
		set[s] = true
	}
	k.revoked.Store(&set)
}

// Revoked returns an error if the other side's certificate, or one of its issuers',
// is among those that Revoke was given.
func (k *Keypair) Revoked(cs *tls.ConnectionState) error {
	set := k.revoked.Load()
	if set == nil {
		return nil
	}
	for _, c := range cs.PeerCertificates {
		if s := Serial(c); (*set)[s] {
			return fmt.Errorf("the certificate %s, serial %s, was revoked", uriOf(cs.PeerCertificates[0]), s)
		}
	}
	// A root is not sent along. One way to a root that was not revoked is enough.
	var gone string
	for _, chain := range cs.VerifiedChains {
		i := slices.IndexFunc(chain, func(c *x509.Certificate) bool { return (*set)[Serial(c)] })
		if i < 0 {
			return nil
		}
		gone = Serial(chain[i])
	}
	if gone != "" {
		return fmt.Errorf("an issuer of the certificate %s, serial %s, was revoked", uriOf(cs.PeerCertificates[0]), gone)
	}
	return nil
}

// Serial returns a certificate's serial number in hex, as everything here writes
// it.
func Serial(c *x509.Certificate) string { return serialHex(c) }

// ValidUntil returns when the first certificate of a chain expires; zero of an
// empty one.
func ValidUntil(chain []*x509.Certificate) time.Time {
	var end time.Time
	for _, c := range chain {
		if end.IsZero() || c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	return end
}

package pki

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"runtime"
	"sync"
	"weak"
)

// copies has the connections of one client keep one copy of its certificates, as
// crypto/tls does for a server's: parsed they take 5 KB a connection.
type copies struct {
	certs sync.Map // of sha256 of the DER to weak.Pointer[x509.Certificate]
}

// in puts the copies into a connection. A state has its slices in common with it.
func (s *copies) in(cs *tls.ConnectionState) {
	for i, c := range cs.PeerCertificates {
		cs.PeerCertificates[i] = s.of(c)
	}
	for _, chain := range cs.VerifiedChains {
		for i, c := range chain {
			chain[i] = s.of(c)
		}
	}
}

// of returns the copy of a certificate; it is forgotten once nobody has it.
func (s *copies) of(c *x509.Certificate) *x509.Certificate {
	key := sha256.Sum256(c.Raw)
	pointer := weak.Make(c)
	for {
		have, loaded := s.certs.LoadOrStore(key, pointer)
		if !loaded {
			runtime.AddCleanup(c, func(weak.Pointer[x509.Certificate]) { s.certs.CompareAndDelete(key, pointer) }, pointer)
			return c
		}
		if there := value(have); there != nil {
			return there
		}
		s.certs.CompareAndDelete(key, have)
	}
}

func value(have any) *x509.Certificate {
	if p, ok := have.(weak.Pointer[x509.Certificate]); ok {
		return p.Value()
	}
	return nil
}

package pki

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/smallstep/certificates/cas/apiv1"
	"github.com/smallstep/certificates/cas/softcas"
	"go.step.sm/crypto/keyutil"
)

// How long certificates live, and how far they begin in the past, so that a
// machine whose clock is behind accepts a new one. An authority begins before
// whatever it signs.
const (
	rootLife    = 10 * 365 * 24 * time.Hour
	interLife   = 2 * 365 * 24 * time.Hour
	leafLife    = 397 * 24 * time.Hour
	caBackdate  = 25 * time.Hour
	leafBefore  = time.Hour
	minLife     = time.Minute
	minIssuer   = 4 // an issuer must outlive 1/minIssuer of what it signs
	rootPathLen = 2 // leaves room to sign a next root with this one when it is rotated
)

// authority is the root and the intermediate of a directory. A key is nil when
// its file is not there; then nothing can be signed with it.
type authority struct {
	root, inter       *x509.Certificate
	rootKey, interKey crypto.Signer
}

func newKey() (crypto.Signer, error) { return keyutil.GenerateSigner("EC", "P-256", 0) }

// newSerial returns a random number of 127 bits, which fits the 20 octets that
// RFC 5280 allows and cannot be guessed.
func newSerial() (*big.Int, error) {
	for {
		n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
		if err != nil || n.Sign() > 0 {
			return n, err
		}
	}
}

// sign completes and signs a template. A nil issuer signs with the template
// itself: a root.
func sign(ctx context.Context, t, issuer *x509.Certificate, key crypto.Signer) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	t.SerialNumber = serial
	if issuer == nil {
		issuer = t
	}
	ca, err := softcas.New(ctx, apiv1.Options{CertificateChain: []*x509.Certificate{issuer}, Signer: key})
	if err != nil {
		return nil, err
	}
	// Lifetime must be given but has no effect: the template has both dates.
	made, err := ca.CreateCertificate(&apiv1.CreateCertificateRequest{Template: t, Lifetime: t.NotAfter.Sub(t.NotBefore)})
	if err != nil {
		return nil, err
	}
	return made.Certificate, nil
}

// caName makes the common name of an authority's certificate. Day and key tell
// generations apart, whose names would otherwise be the same to a verifier.
func caName(cluster, what string, pub crypto.PublicKey, now time.Time) (pkix.Name, error) {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return pkix.Name{}, err
	}
	sum := sha256.Sum256(der)
	return pkix.Name{CommonName: fmt.Sprintf("tidal %s %s %s %x", cluster, what, now.UTC().Format(time.DateOnly), sum[:2])}, nil
}

func newRoot(ctx context.Context, cluster string, key crypto.Signer, s scope, now time.Time) (*x509.Certificate, error) {
	name, err := caName(cluster, "root", key.Public(), now)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		Subject: name, PublicKey: key.Public(), NotBefore: now.Add(-caBackdate), NotAfter: now.Add(rootLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLen: rootPathLen, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	s.constrain(t, cluster)
	return sign(ctx, t, nil, key)
}

func newIntermediate(ctx context.Context, cluster string, key crypto.Signer, a *authority, now time.Time) (*x509.Certificate, error) {
	name, err := caName(cluster, "issuing", key.Public(), now)
	if err != nil {
		return nil, err
	}
	until, err := clamp(a.root, now, interLife)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		Subject: name, PublicKey: key.Public(), NotBefore: now.Add(-caBackdate), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true, MaxPathLen: 0, MaxPathLenZero: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	if t.NotBefore.Before(a.root.NotBefore) {
		t.NotBefore = a.root.NotBefore
	}
	return sign(ctx, t, a.root, a.rootKey)
}

// clamp returns the end of a certificate that would live for life from now on,
// and not beyond its issuer. An issuer that is not valid, or has so little time
// left that the certificate would be a surprise soon, is refused.
func clamp(issuer *x509.Certificate, now time.Time, life time.Duration) (time.Time, error) {
	name := issuer.Subject.CommonName
	left := issuer.NotAfter.Sub(now)
	switch {
	case now.Before(issuer.NotBefore):
		return time.Time{}, &Error{Kind: KindRefused, Message: fmt.Sprintf("the authority %q is not valid before %s, and the clock says %s", name, stamp(issuer.NotBefore), stamp(now)), Hint: "check this machine's clock"}
	case left <= 0:
		return time.Time{}, &Error{Kind: KindRefused, Message: fmt.Sprintf("the authority %q expired at %s, and what it signs would be worth nothing", name, stamp(issuer.NotAfter)), Hint: issuerHint(issuer)}
	case left < life/minIssuer:
		return time.Time{}, &Error{Kind: KindRefused, Message: fmt.Sprintf("the authority %q has %d days left, too little for a certificate of %d days", name, left/(24*time.Hour), life/(24*time.Hour)), Hint: issuerHint(issuer)}
	case left < life:
		return issuer.NotAfter, nil
	}
	return now.Add(life), nil
}

// issuerHint is what helps against an issuer at its end.
func issuerHint(issuer *x509.Certificate) string {
	if issuer.CheckSignatureFrom(issuer) != nil {
		return "tidal certs renew ca makes it anew, under the same root"
	}
	return newDirHint
}

const newDirHint = "make a new authority: tidal certs gen with all nodes and another --dir"

// issue signs a leaf's certificate and proves it: it must verify from the root
// as the other side will verify it, constraints included.
func (a *authority) issue(ctx context.Context, l leaf, pub crypto.PublicKey, now time.Time) (*x509.Certificate, error) {
	until, err := clamp(a.inter, now, l.life)
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		Subject: pkix.Name{CommonName: l.commonName()}, PublicKey: pub, URIs: []*url.URL{l.id.uri()},
		NotBefore: now.Add(-leafBefore), NotAfter: until, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: l.uses(),
	}
	for _, n := range l.names {
		if n.DNS != "" {
			t.DNSNames = append(t.DNSNames, n.DNS)
		} else {
			t.IPAddresses = append(t.IPAddresses, net.IP(n.IP.AsSlice()))
		}
	}
	c, err := sign(ctx, t, a.inter, a.interKey)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l, err)
	}
	if err := a.prove(c, l, now); err != nil {
		return nil, err
	}
	return c, nil
}

func (a *authority) prove(c *x509.Certificate, l leaf, now time.Time) error {
	roots, inter := x509.NewCertPool(), x509.NewCertPool()
	roots.AddCert(a.root)
	inter.AddCert(a.inter)
	_, err := c.Verify(x509.VerifyOptions{Roots: roots, Intermediates: inter, CurrentTime: now, KeyUsages: l.uses()})
	var invalid x509.CertificateInvalidError
	if errors.As(err, &invalid) && invalid.Reason == x509.CANotAuthorizedForThisName {
		return &Error{
			Kind: KindRefused, Err: err,
			Message: fmt.Sprintf("%s: this authority may not sign for it: %s; it may for %s", l, invalid.Detail, permitted(a.root)),
			Hint:    "the names of the first run decide what an authority may sign for; " + newDirHint,
		}
	}
	if err != nil {
		return fmt.Errorf("%s: the new certificate does not verify: %w", l, err)
	}
	return nil
}

// scope is what a new root may sign for, besides identities of its cluster.
type scope struct {
	like    *x509.Certificate // what another root may, and nothing else; nil: what follows
	leaves  []leaf            // for these and their neighbours
	nets    []netip.Prefix    // addresses in these networks
	anyName bool              // every host name and address
}

// constrain writes into a root what it may sign for, so that whoever steals its
// key cannot speak for other clusters or for the rest of the world: identities
// of this cluster, loopback and private networks and those of the addresses
// given, localhost and the domains of the names given. A bare name (node-a) or
// one directly under a top-level domain (a.lan) has no domain that its
// neighbours share and strangers do not; with one of these the DNS names of the
// root are not limited. There are no excluded names: verifiers disagree on them.
func (s scope) constrain(t *x509.Certificate, cluster string) {
	t.PermittedURIDomains = []string{cluster}
	t.PermittedDNSDomainsCritical = true
	if s.like != nil {
		t.PermittedDNSDomains, t.PermittedIPRanges = s.like.PermittedDNSDomains, s.like.PermittedIPRanges
		return
	}
	if s.anyName {
		return
	}
	for _, p := range []string{"127.0.0.0/8", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "::1/128", "fc00::/7"} {
		permitIP(t, netip.MustParsePrefix(p))
	}
	for _, p := range s.nets {
		permitIP(t, p)
	}
	domains, limited := []string{"localhost"}, true
	for _, l := range s.leaves {
		domains = append(domains, l.within...)
		for _, n := range l.names {
			switch {
			case n.DNS == "":
				permitAddress(t, n.IP)
			case !slices.ContainsFunc(domains, func(d string) bool { return inside(n.DNS, d) }):
				_, parent, _ := strings.Cut(n.DNS, ".")
				limited = limited && strings.Contains(parent, ".")
				domains = append(domains, parent)
			}
		}
	}
	if limited {
		t.PermittedDNSDomains = domains
	}
}

func inside(name, domain string) bool { return name == domain || strings.HasSuffix(name, "."+domain) }

func permitAddress(t *x509.Certificate, ip netip.Addr) {
	bits := 24
	if ip.Is6() {
		bits = 64
	}
	if !slices.ContainsFunc(t.PermittedIPRanges, func(r *net.IPNet) bool { return r.Contains(ip.AsSlice()) }) {
		permitIP(t, netip.PrefixFrom(ip, bits).Masked())
	}
}

func permitIP(t *x509.Certificate, p netip.Prefix) {
	t.PermittedIPRanges = append(t.PermittedIPRanges, &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())})
}

// permitted lists what a root may sign for.
func permitted(root *x509.Certificate) string {
	var all []string
	if len(root.PermittedDNSDomains) == 0 {
		all = append(all, "every host name")
	}
	if len(root.PermittedIPRanges) == 0 {
		all = append(all, "every address")
	}
	all = append(all, root.PermittedDNSDomains...)
	for _, r := range root.PermittedIPRanges {
		all = append(all, r.String())
	}
	return strings.Join(all, ", ")
}

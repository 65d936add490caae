package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Finding is something about a certificate that does not work, or not everywhere.
type Finding struct {
	Severity string `json:"severity"` // error or warning
	Where    string `json:"where"`    // the file and the certificate in it, or the name
	What     string `json:"what"`
	Fix      string `json:"fix,omitempty"`
}

// maxTrusted is the longest life of a server's certificate that every client
// takes: Apple's refuse more.
const maxTrusted = 825 * 24 * time.Hour

// findings collects what Lint finds in one place.
type findings struct {
	where string
	all   []Finding
}

func (f *findings) fail(fix, format string, args ...any) {
	f.all = append(f.all, Finding{"error", f.where, fmt.Sprintf(format, args...), fix})
}

func (f *findings) warn(fix, format string, args ...any) {
	f.all = append(f.all, Finding{"warning", f.where, fmt.Sprintf(format, args...), fix})
}

// LintNames says of each name what is wrong with it in a certificate.
func LintNames(names []string) []Finding {
	var f findings
	for _, s := range names {
		f.where = s
		n, err := ParseName(s)
		switch e, ok := err.(*Error); { //nolint:errorlint // ParseName returns it bare
		case ok:
			f.fail(e.Hint, "%s", e.Message)
		case n.Note != "":
			f.warn("", "%s", n.Note)
		}
	}
	return f.all
}

// Lint says what is wrong with the certificates in a file: a chain with its leaf,
// or a bundle of authorities. It judges foreign certificates too.
func Lint(path string, now time.Time) ([]Finding, error) {
	certs, err := readCerts(path)
	if err != nil {
		return nil, err
	}
	f := &findings{where: path}
	leaf := slices.IndexFunc(certs, func(c *x509.Certificate) bool { return !c.IsCA })
	if leaf >= 0 {
		f.lintChain(certs, leaf)
	}
	for i, c := range certs {
		f.where = fmt.Sprintf("%s: certificate %d (%s)", path, i+1, clip(c.Subject.CommonName))
		f.lintCommon(c, now)
		switch {
		case i == leaf:
			f.lintLeaf(c)
		case !c.IsCA:
			f.fail("put each into a file of its own", "a second certificate that is no authority's")
		}
	}
	return f.all, nil
}

func (f *findings) lintChain(certs []*x509.Certificate, leaf int) {
	if leaf > 0 {
		f.warn("write it leaf first", "the leaf stands behind its issuers: tidal reads that, many programs do not")
	}
	chain := chainOf(certs[leaf], certs)
	for _, c := range certs {
		if c.IsCA && c.CheckSignatureFrom(c) == nil {
			f.warn("take it out: the other side has the root or does not trust it", "the root %s is in it", clip(c.Subject.CommonName))
		} else if !slices.Contains(chain, c) && c.IsCA {
			f.warn("take it out", "%s is in it and did not sign the leaf", clip(c.Subject.CommonName))
		}
	}
	if len(chain) == 1 && !bytes.Equal(certs[leaf].RawIssuer, certs[leaf].RawSubject) {
		f.warn("append the intermediate, unless a root signed it itself", "it holds the leaf alone: who trusts only the root of %q cannot verify it", clip(certs[leaf].Issuer.CommonName))
	}
}

// lintCommon is what holds for leaves and authorities alike.
func (f *findings) lintCommon(c *x509.Certificate, now time.Time) {
	switch stateOf(c, now) {
	case StateExpired, StateEarly:
		chain := []*x509.Certificate{c}
		f.fail(dateHint(now, chain), "%s", dates(now, chain))
	case StateDue:
		f.warn("tidal certs renew", "less than a third of its life is left: it ends at %s", stamp(c.NotAfter))
	case StateOK, StateBroken:
	}
	if len(c.Subject.CommonName) > 64 {
		f.warn("give it a shorter one: names of hosts do not belong there", "the common name has %d bytes, and many programs take at most 64", len(c.Subject.CommonName))
	}
	if c.SerialNumber.BitLen() > 159 {
		f.warn("", "the serial number has more than 20 bytes")
	}
	switch c.SignatureAlgorithm {
	case x509.MD5WithRSA, x509.SHA1WithRSA, x509.ECDSAWithSHA1, x509.MD2WithRSA, x509.DSAWithSHA1:
		f.fail("sign it with SHA-256", "it is signed with %s, which nobody accepts any more", c.SignatureAlgorithm)
	default:
	}
	switch k := c.PublicKey.(type) {
	case *rsa.PublicKey:
		if k.N.BitLen() < 2048 {
			f.fail("make a key of 2048 bits or more, or of P-256", "its RSA key has %d bits", k.N.BitLen())
		}
	case *ecdsa.PublicKey:
		if k.Curve.Params().BitSize < 256 {
			f.fail("use P-256", "its key is on the curve %s", k.Curve.Params().Name)
		}
	case ed25519.PublicKey:
		f.warn("P-256 works everywhere", "its key is Ed25519, which browsers and some libraries refuse")
	}
}

func (f *findings) lintLeaf(c *x509.Certificate) {
	if life := c.NotAfter.Sub(c.NotBefore); life > maxTrusted {
		f.warn("398 days or less suits everybody", "it lives for %d days, and some clients refuse more than 825", life/(24*time.Hour))
	}
	client, server := f.lintUses(c)
	id, err := identityOf(c)
	if err != nil {
		f.warn("tidal certs makes certificates with an identity", "tidal takes it for nobody's: %s", err)
	}
	serves := server && (err != nil || id.Node != "")
	if serves && !client {
		f.fail("nodes need serverAuth and clientAuth", "it may serve and not dial: between nodes it works in one direction only")
	}
	if id.Node == AnyNode {
		f.warn("tidal certs gen without --shared-leaf makes one for each node", "it speaks for every node of cluster %s: who has its key can be each of them", id.Cluster)
	}
	if id.Role != "" && server {
		f.warn("make it without serverAuth", "a client's certificate that may also serve")
	}
	if len(certNames(c)) == 0 && serves {
		f.fail("name the hosts as subject alternative names", "it names no host: the common name %q is ignored", clip(c.Subject.CommonName))
	}
	f.lintNames(c)
	f.lintOrdinals(c)
}

func (f *findings) lintUses(c *x509.Certificate) (client, server bool) {
	free := len(c.ExtKeyUsage)+len(c.UnknownExtKeyUsage) == 0 || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageAny)
	client = free || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	server = free || slices.Contains(c.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	if !client && !server {
		f.fail("make it for serverAuth or clientAuth", "it is made for neither serving nor dialling")
	}
	if c.KeyUsage != 0 && c.KeyUsage&x509.KeyUsageDigitalSignature == 0 {
		f.fail("add the key usage digitalSignature", "its key may not sign, which TLS 1.3 needs")
	}
	return client, server
}

func (f *findings) lintNames(c *x509.Certificate) {
	for _, d := range c.DNSNames {
		n, err := ParseName(d)
		switch e, ok := err.(*Error); { //nolint:errorlint // ParseName returns it bare
		case ok:
			f.fail(e.Hint, "%s", e.Message)
		case n.DNS == "":
			f.fail("write it as an IP address", "the address %s is written as a host name, where no client looks for it", clip(d))
		case strings.HasSuffix(d, "."):
			f.fail("write it without the dot", "the name %s ends in a dot, and no client matches that", clip(d))
		case n.DNS != d:
			f.warn("write it in lower case", "the name %s is not in lower case, and some clients compare bytes", clip(d))
		case n.Note != "":
			f.warn("", "%s", n.Note)
		}
	}
	for _, ip := range c.IPAddresses {
		if a, ok := netip.AddrFromSlice(ip); ok {
			if _, err := addressName(a.String(), a.Unmap()); err != nil {
				f.fail("", "%s", err)
			}
		}
	}
	for _, u := range c.URIs {
		if strings.EqualFold(u.Scheme, "spiffe") {
			continue
		}
		if _, err := ParseName(u.String()); err != nil || !strings.Contains(u.String(), "://") {
			f.fail("write host names and addresses as such", "%s is written as a URI, where no client looks for a host", clip(u.String()))
		}
	}
}

// lintOrdinals warns of pods that are named one by one: the next one is not.
func (f *findings) lintOrdinals(c *x509.Certificate) {
	parents := map[string]int{}
	for _, d := range c.DNSNames {
		first, parent, _ := strings.Cut(d, ".")
		i := strings.LastIndexByte(first, '-')
		if i > 0 && i < len(first)-1 && strings.Trim(first[i+1:], "0123456789") == "" && parent != "" {
			parents[first[:i]+"-N."+parent]++
		}
	}
	for name, n := range parents {
		_, parent, _ := strings.Cut(name, ".")
		if n > 1 && !slices.Contains(c.DNSNames, "*."+parent) {
			f.warn("name *."+parent, "it names %d pods %s one by one: the next one will not be covered", n, name)
		}
	}
}

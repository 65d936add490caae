package pki

import (
	"crypto/x509"
	"fmt"
	"strings"
)

// ReadCert returns the first certificate in a file that is not an authority's, or
// the first if all are.
func ReadCert(path string) (*x509.Certificate, error) {
	certs, err := readCerts(path)
	if err != nil {
		return nil, err
	}
	return chosen(certs), nil
}

// chosen is the one of a file's certificates that ReadCert returns.
func chosen(certs []*x509.Certificate) *x509.Certificate {
	for _, c := range certs {
		if !c.IsCA {
			return c
		}
	}
	return certs[0]
}

// Coverage says whether a certificate is valid for a name.
type Coverage struct {
	Name   string   `json:"name"` // as clients compare it
	Covers bool     `json:"covers"`
	By     string   `json:"by,omitempty"`  // the name in the certificate that covers it
	Why    string   `json:"why,omitempty"` // it does not
	Names  []string `json:"names"`         // all in the certificate
}

// Covers says whether a client that dials a name accepts the certificate for it,
// as Go and OpenSSL agree. The name is one that clients dial: a host or an
// address, without a port.
func Covers(c *x509.Certificate, name string) (Coverage, error) {
	n, err := ParseName(name)
	if err != nil {
		return Coverage{}, err
	}
	if strings.HasPrefix(n.DNS, "*") {
		return Coverage{}, usage("give a name that somebody dials, as in tidal-7"+n.DNS[1:], "name %q is a wildcard, and nobody dials that", clip(name))
	}
	out := Coverage{Name: n.String(), Names: certNames(c)}
	for _, have := range out.Names {
		got, err := ParseName(have)
		if err != nil || got.String() != strings.ToLower(have) {
			continue // clients disagree about such a name
		}
		if got.IP == n.IP && got.DNS == "" && n.DNS == "" || got.DNS != "" && n.DNS != "" && matches(got.DNS, n.DNS) {
			out.Covers, out.By = true, have
			return out, nil
		}
	}
	out.Why = uncovered(c, n, out.Names)
	return out, nil
}

func matches(pattern, host string) bool {
	if rest, wild := strings.CutPrefix(pattern, "*."); wild {
		_, parent, _ := strings.Cut(host, ".")
		return parent == rest
	}
	return pattern == host
}

func uncovered(c *x509.Certificate, n Name, names []string) string {
	for _, have := range names {
		rest, wild := strings.CutPrefix(strings.ToLower(have), "*.")
		switch {
		case wild && n.DNS == rest:
			return fmt.Sprintf("%s covers the names below %s, and not %s itself", have, rest, rest)
		case wild && strings.HasSuffix(n.DNS, "."+rest):
			return fmt.Sprintf("%s covers one label before %s, and %s has more", have, rest, n.DNS)
		case n.DNS != "" && strings.HasPrefix(strings.ToLower(have), n.DNS+"."):
			return fmt.Sprintf("it has %s: the short form %s is another name", have, n.DNS)
		case n.DNS != "" && strings.HasPrefix(n.DNS, strings.ToLower(have)+"."):
			return fmt.Sprintf("it has the short form %s: the long form %s is another name", have, n.DNS)
		}
	}
	switch {
	case len(names) == 0 && c.Subject.CommonName != "":
		return fmt.Sprintf("it names no host at all; the common name %q is ignored by every client", clip(c.Subject.CommonName))
	case len(names) == 0:
		return "it names no host at all: it is not for serving"
	case n.DNS == "":
		return "the address is not among its addresses: " + strings.Join(names, ", ")
	}
	return "none of its names matches: " + strings.Join(names, ", ")
}

package pki

import (
	"fmt"
	"slices"
)

// Foreign says why the certificate in a file, as ReadCert takes it, is none that nodes of
// this one's cluster would let in: it is of another cluster, or no authority in the trust
// bundle signed it. "" if neither is so. Dates do not count.
func (k *Keypair) Foreign(path string) (string, error) {
	certs, err := readCerts(path)
	if err != nil {
		return "", err
	}
	c := chosen(certs)
	if id, err := identityOf(c); err == nil && k.cluster != "" && id.Cluster != k.cluster {
		return fmt.Sprintf("the certificate is %s, of cluster %s, and this is cluster %s", id, id.Cluster, k.cluster), nil
	}
	roots := k.Roots()
	known := slices.Concat(certs, k.Chain())
	for range len(known) + 1 {
		if slices.ContainsFunc(roots, c.Equal) || issuerOf(c, roots) != nil {
			return "", nil
		}
		if c = issuerOf(c, known); c == nil {
			break
		}
	}
	return "no authority in this cluster's trust bundle signed the certificate", nil
}

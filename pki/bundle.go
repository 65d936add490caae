package pki

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Root is an authority in a trust bundle.
type Root struct {
	Fingerprint string    `json:"fingerprint"` // SHA-256 of the certificate, hex
	Subject     string    `json:"subject"`
	NotAfter    time.Time `json:"not_after"`
	State       string    `json:"state"`         // as of Entry, or added, removed
	Use         []string  `json:"use,omitempty"` // certificates of the directory that need it
}

// Fingerprint returns the SHA-256 of a certificate in hex.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// Bundle lists the roots in a directory's trust bundle.
func Bundle(dir string, now time.Time) ([]Root, error) {
	d := directory{path: dir}
	certs, err := readCerts(d.join(bundleFile))
	if err != nil {
		return nil, err
	}
	return d.describe(certs, now)
}

func (d directory) describe(certs []*x509.Certificate, now time.Time) ([]Root, error) {
	uses, err := d.uses(certs)
	if err != nil {
		return nil, err
	}
	var out []Root
	for _, c := range certs {
		fp := Fingerprint(c)
		out = append(out, Root{Fingerprint: fp, Subject: c.Subject.CommonName, NotAfter: c.NotAfter.UTC(), State: string(stateOf(c, now)), Use: uses[fp]})
	}
	return out, nil
}

// uses says which nodes and clients of the directory have a certificate under
// each of the roots, by fingerprint.
func (d directory) uses(roots []*x509.Certificate) (map[string][]string, error) {
	all, err := d.leaves()
	if err != nil {
		return nil, err
	}
	uses := map[string][]string{}
	for _, o := range all {
		certs, err := readCerts(d.join(o.folder() + "/tls.crt"))
		if err != nil {
			return nil, err
		}
		chain := chainOf(certs[0], certs)
		for _, root := range roots {
			if chain[len(chain)-1].CheckSignatureFrom(root) == nil {
				fp := Fingerprint(root)
				uses[fp] = append(uses[fp], o.String())
			}
		}
	}
	return uses, nil
}

// AddRoots adds the authorities in a file to a directory's trust bundle. Those
// that are there stay.
func AddRoots(ctx context.Context, dir, file string, now time.Time) ([]Root, error) {
	more, err := readCerts(file)
	if err != nil {
		return nil, err
	}
	for _, c := range more {
		switch {
		case !c.IsCA:
			return nil, badFile(file, "give the ca/root.crt or the bundle.crt of the other authority", "%s is not an authority's certificate", clip(c.Subject.CommonName))
		case c.CheckSignatureFrom(c) != nil:
			return nil, badFile(file, "give its root", "%s is an intermediate, and a trust bundle holds roots", clip(c.Subject.CommonName))
		case now.After(c.NotAfter):
			return nil, badFile(file, "", "%s expired at %s", clip(c.Subject.CommonName), stamp(c.NotAfter))
		}
	}
	return changeBundle(ctx, dir, now, func(r *run, certs []*x509.Certificate) ([]*x509.Certificate, []Root, error) {
		var added []*x509.Certificate
		for _, c := range more {
			if !slices.ContainsFunc(certs, c.Equal) {
				certs, added = append(certs, c), append(added, c)
			}
		}
		roots, err := r.dir.describe(certs, now)
		for i := range roots {
			if i >= len(certs)-len(added) {
				roots[i].State = "added"
			}
		}
		return certs, roots, err
	})
}

// RemoveRoot removes a root from a directory's trust bundle, which a beginning of
// its fingerprint or its whole subject names. A root that a certificate of the
// directory needs, or that signs here, is refused.
func RemoveRoot(ctx context.Context, dir, which string, now time.Time) ([]Root, error) {
	return changeBundle(ctx, dir, now, func(r *run, certs []*x509.Certificate) ([]*x509.Certificate, []Root, error) {
		roots, err := r.dir.describe(certs, now)
		if err != nil {
			return nil, nil, err
		}
		var hits []int
		for i, root := range roots {
			if which != "" && (root.Subject == which || len(which) >= 6 && strings.HasPrefix(root.Fingerprint, strings.ToLower(which))) {
				hits = append(hits, i)
			}
		}
		if len(hits) != 1 {
			return nil, nil, usage("tidal certs bundle show lists them; give at least 6 digits of a fingerprint", "%d roots in the bundle are %q", len(hits), clip(which))
		}
		i := hits[0]
		path := r.dir.join(bundleFile)
		switch {
		case len(certs) == 1:
			return nil, nil, refusedTrust(path, "it is the only root, and without it nobody is trusted")
		case len(roots[i].Use) > 0:
			return nil, nil, refusedTrust(path, "the certificates of %s were signed under it", strings.Join(roots[i].Use, ", "))
		case r.ca.root != nil && certs[i].Equal(r.ca.root):
			return nil, nil, refusedTrust(path, "it is the root of the authority that signs here")
		}
		roots[i].State = "removed"
		return slices.Delete(certs, i, i+1), roots, nil
	})
}

func refusedTrust(path, format string, args ...any) error {
	return &Error{
		Kind: KindRefused, Message: path + ": the root stays: " + fmt.Sprintf(format, args...),
		Hint: "make certificates under another authority first",
	}
}

type bundleChange func(r *run, certs []*x509.Certificate) ([]*x509.Certificate, []Root, error)

func changeBundle(ctx context.Context, dir string, now time.Time, change bundleChange) ([]Root, error) {
	r := newRun(ctx, directory{path: dir}, Plan{}, now)
	var roots []Root
	_, err := r.work(func() error {
		certs, err := readCerts(r.dir.join(bundleFile))
		if err != nil {
			return err
		}
		if r.ca.root, _, err = r.caCert(rootCert, rootKeyFile); err != nil {
			return err
		}
		had := len(certs)
		next, told, err := change(r, certs)
		if err != nil {
			return err
		}
		if roots = told; len(next) != had {
			r.writes = append(r.writes, writeCerts(bundleFile, next...))
		}
		return nil
	})
	return roots, err
}

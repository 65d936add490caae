package pki

import (
	"crypto/x509"
	"errors"
	"os"
	"slices"
	"time"
)

// State says how a certificate is.
type State string

// The states, the best first.
const (
	StateOK      State = "ok"
	StateDue     State = "due"     // it should be renewed
	StateEarly   State = "early"   // it is not valid yet: a clock is wrong
	StateExpired State = "expired" // it was valid
	StateBroken  State = "broken"  // it cannot be used: see Problem
)

// Entry is a certificate that Survey found.
type Entry struct {
	Kind      string    `json:"kind"` // root, intermediate, bundle, node, client or file
	Name      string    `json:"name"` // node id or client name; a common name for the others
	State     State     `json:"state"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
	Serial    string    `json:"serial"` // hex; "" if it cannot be read
	Issuer    string    `json:"issuer,omitempty"`
	Identity  string    `json:"identity,omitempty"`
	Path      string    `json:"path"`
	Problem   string    `json:"problem,omitempty"`
	Hint      string    `json:"hint,omitempty"`
}

// stateOf returns how a certificate is by its dates alone.
func stateOf(c *x509.Certificate, now time.Time) State {
	switch {
	case now.Before(c.NotBefore):
		return StateEarly
	case now.After(c.NotAfter):
		return StateExpired
	case Due(c, now):
		return StateDue
	}
	return StateOK
}

// Survey looks at every certificate in a directory that Gen made, or at those in a
// file of certificates. It fails only if there is nothing to look at.
func Survey(path string, now time.Time) ([]Entry, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	if !info.IsDir() {
		return surveyFile("file", path, now), nil
	}
	d := directory{path: path}
	all, err := d.leaves()
	if err != nil {
		return nil, err
	}
	var out []Entry
	for _, f := range []struct{ kind, name string }{{"root", rootCert}, {"intermediate", interCert}, {"bundle", bundleFile}} {
		there, err := d.exists(f.name)
		if err != nil {
			return nil, err
		}
		if there || f.kind == "bundle" && len(all) > 0 {
			out = append(out, surveyFile(f.kind, d.join(f.name), now)...)
		}
	}
	if len(out) == 0 && len(all) == 0 {
		return nil, badFile(path, "name a directory that tidal certs gen made, or a file of certificates", "holds no certificates: neither bundle.crt nor nodes/ nor clients/")
	}
	roots, rootsErr := loadRoots(d.join(bundleFile))
	for _, o := range all {
		e := surveyLeaf(d, o, roots, now)
		if e.State != StateBroken && rootsErr != nil {
			e.setProblem(rootsErr)
		}
		out = append(out, e)
	}
	return out, nil
}

func surveyFile(kind, path string, now time.Time) []Entry {
	certs, err := readCerts(path)
	if err != nil {
		e := Entry{Kind: kind, Path: path}
		e.setProblem(err)
		return []Entry{e}
	}
	var out []Entry
	for _, c := range certs {
		e := entryOf(kind, c.Subject.CommonName, path, c, now)
		if kind != "file" && !c.IsCA {
			e.setProblem(badFile(path, "take it out of this file", "%s is not an authority's certificate", clip(c.Subject.CommonName)))
		}
		out = append(out, e)
	}
	return out
}

func entryOf(kind, name, path string, c *x509.Certificate, now time.Time) Entry {
	e := Entry{
		Kind: kind, Name: name, State: stateOf(c, now), NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(),
		Serial: serialHex(c), Issuer: c.Issuer.CommonName, Identity: uriOf(c), Path: path,
	}
	switch e.State {
	case StateEarly, StateExpired:
		e.Problem, e.Hint = dates(now, []*x509.Certificate{c}), dateHint(now, []*x509.Certificate{c})
	case StateOK, StateDue, StateBroken:
	}
	return e
}

func (e *Entry) setProblem(err error) {
	e.State, e.Problem = StateBroken, err.Error()
	if known, ok := errors.AsType[*Error](err); ok {
		e.Hint = known.Hint
	}
}

// surveyLeaf judges a leaf as the process that uses it will. Its key may be on
// another machine.
func surveyLeaf(d directory, o owned, roots *x509.CertPool, now time.Time) Entry {
	f := leafFiles(d.path, o.folder())
	certs, err := readCerts(f.Cert)
	if err != nil {
		e := Entry{Kind: o.kind, Name: o.name, Path: f.Cert}
		e.setProblem(err)
		return e
	}
	leaf := certs[0]
	there, err := d.exists(o.folder() + "/tls.key")
	if err == nil && there {
		leaf, err = leafWithKey(f, certs)
	}
	if leaf == nil {
		leaf = certs[0]
	}
	e := entryOf(o.kind, o.name, f.Cert, leaf, now)
	if err != nil {
		e.setProblem(err)
		return e
	}
	if e.State == StateExpired || e.State == StateEarly || roots == nil {
		return e
	}
	uses := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if o.kind == "node" {
		uses = append(uses, x509.ExtKeyUsageServerAuth)
	}
	for _, use := range uses {
		if err = verifyLeaf(f, chainOf(leaf, certs), verifyFor{roots, now, use}); err != nil {
			e.setProblem(err)
			return e
		}
	}
	if id, err := identityOf(leaf); err != nil {
		e.setProblem(badFile(f.Cert, "", "%s", err))
	} else if ownedBy(id) != o {
		e.setProblem(badFile(f.Cert, "put each certificate back into its own folder", "is the certificate of %s, and this is the folder of %s", id, o))
	}
	return e
}

func leafWithKey(f Files, certs []*x509.Certificate) (*x509.Certificate, error) {
	key, err := readKey(f.Key)
	if err != nil {
		return nil, err
	}
	leaf := leafOf(certs, key)
	if leaf == nil {
		return nil, badFile(f.Cert, "tidal certs renew --rekey makes a certificate for this key", "no certificate in it fits the private key in %s", f.Key)
	}
	return leaf, nil
}

// Worst returns the worst state of the entries.
func Worst(all []Entry) State {
	order := []State{StateOK, StateDue, StateEarly, StateExpired, StateBroken}
	worst := 0
	for _, e := range all {
		worst = max(worst, slices.Index(order, e.State))
	}
	return order[worst]
}

package pki

import (
	"context"
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

// MakeRequest makes a private key, unless there is one, and a request to certify
// it, for the one node or client of the plan: KEY and CSR lie where Gen would put
// them, and the key never leaves its host. The request is signed by Sign where the
// authority is. One that is there is replaced only if the plan says Overwrite.
func MakeRequest(ctx context.Context, dir string, p Plan, now time.Time) (Report, error) {
	if len(p.Nodes)+len(p.Clients) != 1 {
		return Report{}, usage("each host makes its own", "a request is for one node or one client, and %d are named", len(p.Nodes)+len(p.Clients))
	}
	leaves, err := p.leaves()
	if err != nil {
		return Report{}, err
	}
	if err = makeDir(dir); err != nil {
		return Report{}, err
	}
	r := newRun(ctx, directory{path: dir}, p, now)
	r.leaves = leaves
	return r.work(r.prepareRequest)
}

func (r *run) prepareRequest() error {
	l := r.leaves[0]
	path := l.folder() + "/tls.csr"
	there, err := r.dir.exists(path)
	if err != nil {
		return err
	}
	if there && !r.plan.Overwrite {
		if err = r.sameRequest(path, l); err != nil {
			return err
		}
		r.report.Files = append(r.report.Files, Result{Kind: "request", Name: l.name(), State: "kept", Path: r.dir.join(path)})
		return nil
	}
	key, err := r.keyOrNew(l.folder() + "/tls.key")
	if err != nil {
		return err
	}
	t := &x509.CertificateRequest{Subject: pkix.Name{CommonName: l.commonName()}, URIs: []*url.URL{l.id.uri()}}
	t.DNSNames, t.IPAddresses = split(l.names)
	der, err := x509.CreateCertificateRequest(rand.Reader, t, key)
	if err != nil {
		return fmt.Errorf("%s: %w", l, err)
	}
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
	r.writes = append(r.writes, write{path: path, mode: certMode, data: data})
	r.report.Files = append(r.report.Files, Result{Kind: "request", Name: l.name(), State: "made", Path: r.dir.join(path), Names: nameTexts(l.names)})
	return nil
}

// sameRequest refuses a request that is there and asks for something else.
func (r *run) sameRequest(path string, l leaf) error {
	csr, err := readRequest(r.dir.join(path))
	if err != nil {
		return err
	}
	have, err := requestNames(csr, r.dir.join(path))
	if err != nil {
		return err
	}
	if ids, want := uriTexts(csr.URIs), l.id.String(); ids != want || !slices.Equal(nameTexts(have), nameTexts(l.names)) {
		return &Error{
			Kind: KindRefused, Hint: "--overwrite makes a new request; the key stays",
			Message: fmt.Sprintf("%s: a request is there for %s with the names %s, and another is asked for", r.dir.join(path), ids, strings.Join(nameTexts(have), ", ")),
		}
	}
	return nil
}

// split returns names as certificates hold them.
func split(names []Name) (dns []string, ips []net.IP) {
	for _, n := range names {
		if n.DNS != "" {
			dns = append(dns, n.DNS)
		} else {
			ips = append(ips, net.IP(n.IP.AsSlice()))
		}
	}
	return dns, ips
}

func nameTexts(names []Name) []string {
	var out []string
	for _, n := range names {
		out = append(out, n.String())
	}
	return out
}

func uriTexts(uris []*url.URL) string {
	var all []string
	for _, u := range uris {
		all = append(all, u.String())
	}
	return strings.Join(all, ", ")
}

// readRequest reads the one request in a file and checks that its maker has the
// key.
func readRequest(path string) (*x509.CertificateRequest, error) {
	blocks, err := readPEM(path, func(string, fs.FileInfo) error { return nil })
	if err != nil {
		return nil, err
	}
	var found []*pem.Block
	var kinds []string
	for _, b := range blocks {
		kinds = append(kinds, b.Type)
		if b.Type == "CERTIFICATE REQUEST" || b.Type == "NEW CERTIFICATE REQUEST" {
			found = append(found, b)
		}
	}
	if len(found) != 1 {
		return nil, badFile(path, "tidal certs csr makes a request", "holds %d certificate requests, and one is wanted; its blocks are %s", len(found), strings.Join(kinds, ", "))
	}
	csr, err := x509.ParseCertificateRequest(found[0].Bytes)
	if err != nil {
		return nil, badFile(path, "", "is not a request that can be used: %s", reason(err))
	}
	if err = csr.CheckSignature(); err != nil {
		return nil, badFile(path, "make the request again", "was not signed with the key that it is for: %s", reason(err))
	}
	return csr, nil
}

// requestNames returns the names in a request, each held to the rules for names.
func requestNames(csr *x509.CertificateRequest, path string) ([]Name, error) {
	texts := slices.Clone(csr.DNSNames)
	for _, ip := range csr.IPAddresses {
		texts = append(texts, ip.String())
	}
	if len(csr.EmailAddresses) > 0 {
		return nil, badFile(path, "make it again without them", "asks for mail addresses, and a node or client has none")
	}
	names, err := parseNames(texts)
	if err != nil {
		return nil, wrapUsage(path, err)
	}
	for _, d := range csr.DNSNames {
		if n, _ := ParseName(d); n.DNS == "" { // it parsed a moment ago
			return nil, badFile(path, "ask for it as an address", "asks for the host name %q, which is an address", clip(d))
		}
	}
	return names, nil
}

// SignRequest signs a request for the one node or client of the plan. Its
// identity is the plan's, whatever the request asks for; a request that names
// another identity is refused. Names come from the request, held to the rules for
// names and to what the authority may sign for; if the plan names some, only those
// are allowed. What else a request wants (to be an authority, other uses) is not
// looked at. The certificate lies where Gen would put it, with no key beside it.
func SignRequest(ctx context.Context, dir, csrPath string, p Plan, now time.Time) (Report, error) {
	var err error
	if p.Cluster, err = clusterOf(dir, p.Cluster); err != nil {
		return Report{}, err
	}
	if len(p.Nodes)+len(p.Clients) != 1 {
		return Report{}, usage("say whose request it is: --node ID or --client NAME=ROLE", "%d nodes and clients are named, and a request is for one", len(p.Nodes)+len(p.Clients))
	}
	leaves, err := p.leaves()
	if err != nil {
		return Report{}, err
	}
	csr, err := readRequest(csrPath)
	if err != nil {
		return Report{}, err
	}
	l := leaves[0]
	allowed := len(p.Nodes) == 1 && len(p.Nodes[0].Names) > 0
	if l.names, err = agreedNames(csr, csrPath, l, allowed); err != nil {
		return Report{}, err
	}
	r := newRun(ctx, directory{path: dir}, p, now)
	return r.work(r.prepareRoot, r.prepareIntermediate, r.prepareBundle, func() error { return r.signRequest(csr, csrPath, l) })
}

// agreedNames returns the names that a request gets.
func agreedNames(csr *x509.CertificateRequest, path string, l leaf, listed bool) ([]Name, error) { //nolint:revive // a fact, not a mode
	if ids := uriTexts(csr.URIs); ids != "" && ids != l.id.String() {
		return nil, &Error{
			Kind: KindRefused, Message: fmt.Sprintf("%s: asks to be %s, and it is to be signed for %s", path, ids, l.id),
			Hint: "sign it for whom it was made, or have it made again",
		}
	}
	names, err := requestNames(csr, path)
	if err != nil {
		return nil, err
	}
	if !l.isNode() {
		if len(names) > 0 {
			return nil, badFile(path, "make it again without names", "asks for the names %s, and a client is dialled by nobody", strings.Join(nameTexts(names), ", "))
		}
		return nil, nil
	}
	local := []string{"localhost", "127.0.0.1", "::1"}
	for _, n := range names {
		if listed && !slices.Contains(nameTexts(l.names), n.String()) {
			return nil, &Error{
				Kind: KindRefused, Message: fmt.Sprintf("%s: asks for the name %s, which is not among those allowed: %s", path, n, strings.Join(nameTexts(l.names), ", ")),
				Hint: "allow it behind --node " + l.name() + "=, or have the request made again",
			}
		}
	}
	more, err := parseNames(local)
	if err != nil {
		return nil, err
	}
	for _, n := range more { // a node dials itself
		if !slices.Contains(nameTexts(names), n.String()) {
			names = append(names, n)
		}
	}
	return names, nil
}

func (r *run) signRequest(csr *x509.CertificateRequest, csrPath string, l leaf) error {
	path := l.folder() + "/tls.crt"
	there, err := r.dir.exists(path)
	if err != nil {
		return err
	}
	if there && !r.plan.Overwrite {
		certs, readErr := readCerts(r.dir.join(path))
		if readErr != nil {
			return readErr
		}
		c := certs[0]
		if same(c.PublicKey, csr.PublicKey) && uriOf(c) == l.id.String() && slices.Equal(certNames(c), nameTexts(l.names)) && !Due(c, r.now) {
			r.add(l.kind(), l.name(), "kept", path, c)
			return nil
		}
		return &Error{
			Kind: KindRefused, Message: fmt.Sprintf("%s: a certificate of %s is there", r.dir.join(path), l),
			Hint: "--overwrite puts the one for this request in its place",
		}
	}
	key, err := r.key(l.folder() + "/tls.key")
	if err != nil {
		return err
	}
	if key != nil && !same(key.Public(), csr.PublicKey) {
		return &Error{
			Kind: KindRefused, Message: fmt.Sprintf("%s: is not the key of the request %s", r.dir.join(l.folder()+"/tls.key"), csrPath),
			Hint: "take this key to its machine or delete it; the request has its own",
		}
	}
	if r.ca.interKey == nil {
		return badFile(r.dir.join(interKeyFile), "put it back for this run", "is missing, and it signs the certificate of %s", l)
	}
	c, err := r.ca.issue(r.ctx, l, csr.PublicKey, r.now)
	if err != nil {
		return err
	}
	r.made(l.kind(), l.name(), path, c, r.ca.inter)
	return nil
}

// same reports whether two public keys are one.
func same(a, b any) bool {
	k, ok := a.(interface{ Equal(x crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

package pki

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// maxNodes bounds the nodes of one run: four times what a cluster may have.
const maxNodes = 200

// Plan is what a directory of certificates shall hold.
type Plan struct {
	Cluster   string
	Nodes     []Node
	Clients   []Client // besides the admin, which is always made
	Overwrite bool     // make new keys and certificates for these nodes and clients; the authority stays

	// SharedLeaf has one certificate made for all nodes, with the names of all, instead
	// of one for each: whoever has its key can be each of them.
	SharedLeaf bool

	// Life is how long the nodes' and clients' certificates live; 0: 397 days.
	Life time.Duration
}

// Node is a node's certificate. It is also valid for localhost, 127.0.0.1 and ::1.
type Node struct {
	ID     string
	Names  []string // host names and IP addresses by which it is dialled
	Within []string // domains that a new authority may sign for because of this node, besides those of its names
}

// Client is a client's certificate.
type Client struct {
	Name string
	Role string // of Roles
}

// Report says what a run of Gen found and did.
type Report struct {
	Cluster string   `json:"cluster"`
	Dir     string   `json:"dir"`
	Files   []Result `json:"files"`
	Notes   []string `json:"notes,omitempty"` // what was changed in the names given, or may not work everywhere
}

// Result is one certificate of a Report.
type Result struct {
	Kind     string    `json:"kind"`  // root, intermediate, bundle, node or client
	Name     string    `json:"name"`  // node id or client name; "" for the others
	State    string    `json:"state"` // made, renewed, removed or kept
	Path     string    `json:"path"`  // of the certificate
	NotAfter time.Time `json:"not_after"`
	Serial   string    `json:"serial"` // hex
	Names    []string  `json:"names,omitempty"`
}

// Made returns how many certificates and bundles are new or changed.
func (r Report) Made() int {
	n := 0
	for _, f := range r.Files {
		if f.State != "kept" {
			n++
		}
	}
	return n
}

// Gen makes what is missing in a directory: the authority, the trust bundle, and
// a key and certificate for each node and client of the plan and for the client
// admin. What is there stays as it is, so a second run changes nothing, and a run
// that was killed is completed. Everything is signed and verified before the
// first file is written; after an error of another kind than KindFiles nothing
// has changed. Errors are *Error where the user can do something about them.
func Gen(ctx context.Context, dir string, p Plan, now time.Time) (Report, error) {
	return gen(ctx, directory{path: dir}, p, now)
}

func gen(ctx context.Context, d directory, p Plan, now time.Time) (Report, error) {
	if len(p.Nodes) == 0 || len(p.Nodes) > maxNodes {
		return Report{}, errors.Join(CheckCluster(p.Cluster),
			usage("name each node, as in --node a=node-a.example.com", "%d nodes are named, and 1 to %d can be made at once", len(p.Nodes), maxNodes))
	}
	leaves, err := p.leaves(Client{Name: "admin", Role: "admin"})
	if err != nil {
		return Report{}, err
	}
	if err = makeDir(d.path); err != nil {
		return Report{}, err
	}
	r := newRun(ctx, d, p, now)
	r.leaves, r.scope = leaves, scope{leaves: leaves}
	return r.work(r.prepareRoot, r.prepareIntermediate, r.prepareBundle, r.prepareLeaves)
}

// leaf is a certificate that the plan asks for.
type leaf struct {
	id     Identity
	names  []Name
	within []string
	life   time.Duration
}

func (l leaf) isNode() bool { return l.id.Node != "" }

func (l leaf) kind() string   { return ownedBy(l.id).kind }
func (l leaf) name() string   { return ownedBy(l.id).name }
func (l leaf) folder() string { return ownedBy(l.id).folder() }

func (l leaf) String() string { return l.kind() + " " + l.name() }

// commonName is for people only. A client's holds characters that no host name
// has: OpenSSL takes a dotted common name for one where there is no other.
func (l leaf) commonName() string {
	switch {
	case l.id.Node == AnyNode:
		return "every node of " + l.id.Cluster
	case l.isNode():
		return l.id.Node
	}
	return clip(fmt.Sprintf("%s (%s)", l.id.Name[:min(len(l.id.Name), 50)], l.id.Role))
}

func (l leaf) uses() []x509.ExtKeyUsage {
	if l.isNode() { // it serves, and dials other nodes
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
}

// leaves checks the plan and returns its certificates, the nodes first, then the
// clients, those that are always made before the others.
func (p Plan) leaves(always ...Client) ([]leaf, error) {
	if err := CheckCluster(p.Cluster); err != nil {
		return nil, err
	}
	life, err := leafLifeOf(p.Life)
	if err != nil {
		return nil, err
	}
	var out []leaf
	for _, n := range p.Nodes {
		if err := checkNode(n.ID); err != nil {
			return nil, err
		}
		names, err := parseNames(append(slices.Clone(n.Names), "localhost", "127.0.0.1", "::1"))
		if err != nil {
			return nil, wrapUsage("node "+n.ID, err)
		}
		out = append(out, leaf{id: Identity{Cluster: p.Cluster, Node: n.ID}, names: names, within: n.Within, life: life})
	}
	for _, c := range append(always, p.Clients...) {
		if err := checkClient(c.Name, c.Role); err != nil {
			return nil, err
		}
		out = append(out, leaf{id: Identity{Cluster: p.Cluster, Role: c.Role, Name: c.Name}, life: life})
	}
	for i, l := range out {
		if slices.ContainsFunc(out[:i], func(o leaf) bool { return o.String() == l.String() }) {
			return nil, usage("name each once", "%s is named twice", l)
		}
	}
	if p.SharedLeaf {
		return share(p.Cluster, out), nil
	}
	return out, nil
}

// share returns the leaves with one for all nodes in the place of theirs: it has the
// names of all.
func share(cluster string, leaves []leaf) []leaf {
	all := leaf{id: Identity{Cluster: cluster, Node: AnyNode}}
	out := []leaf{all}
	for _, l := range leaves {
		if !l.isNode() {
			out = append(out, l)
			continue
		}
		all.life, all.within = l.life, append(all.within, l.within...)
		for _, n := range l.names {
			if !slices.ContainsFunc(all.names, n.same) {
				all.names = append(all.names, n)
			}
		}
	}
	out[0] = all
	return out
}

func wrapUsage(what string, err error) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return fmt.Errorf("%s: %w", what, err)
	}
	return &Error{Kind: e.Kind, Message: what + ": " + e.Message, Hint: e.Hint, Err: err}
}

// leafLifeOf returns how long a leaf lives that shall live for life, 0 being the
// default.
func leafLifeOf(life time.Duration) (time.Duration, error) {
	if life == 0 {
		return leafLife, nil
	}
	if life < minLife || life > interLife {
		return 0, usage("the default, 397 days, suits most", "a life of %s is asked for, and a certificate lives for %s to %d days", life, minLife, interLife/(24*time.Hour))
	}
	return life, nil
}

// run is one run of a command on a directory: it looks at each file in turn and collects what is to
// be written.
type run struct {
	ctx    context.Context //nolint:containedctx // a run lives inside one call
	dir    directory
	plan   Plan
	leaves []leaf
	scope  scope // of a new root
	now    time.Time

	ca     authority
	roots  *x509.CertPool // of the bundle
	signed []*x509.Certificate
	writes []write
	report Report
}

func newRun(ctx context.Context, d directory, p Plan, now time.Time) *run {
	return &run{
		ctx: ctx, dir: d, plan: p, now: now.UTC().Truncate(time.Second),
		report: Report{Cluster: p.Cluster, Dir: d.path},
	}
}

// work locks the directory, takes the steps, and writes what they want written:
// nothing if one fails.
func (r *run) work(steps ...func() error) (Report, error) {
	held, err := lock(r.dir.path)
	if err != nil {
		return Report{}, err
	}
	defer held.Close() //nolint:errcheck // only locked
	for _, step := range steps {
		if err := step(); err != nil {
			return Report{}, err
		}
	}
	writes := r.writes
	if len(r.signed) > 0 {
		serials, err := writeSerials(r.signed)
		if err != nil {
			return Report{}, err
		}
		writes = append([]write{serials}, writes...)
	}
	return r.report, r.dir.run(writes)
}

func (r *run) add(kind, name, state, path string, c *x509.Certificate) {
	r.report.Files = append(r.report.Files, Result{
		Kind: kind, Name: name, State: state, Path: r.dir.join(path),
		NotAfter: c.NotAfter.UTC(), Serial: serialHex(c), Names: certNames(c),
	})
}

// key returns the key in a file, or nil if there is none.
func (r *run) key(name string) (crypto.Signer, error) {
	if err := r.dir.removeTemp(name); err != nil {
		return nil, err
	}
	there, err := r.dir.exists(name)
	if err != nil || !there {
		return nil, err
	}
	return readKey(r.dir.join(name))
}

// keyOrNew returns the key in a file, or a new one that will be written there.
func (r *run) keyOrNew(name string) (crypto.Signer, error) {
	key, err := r.key(name)
	if err != nil || key != nil {
		return key, err
	}
	if key, err = newKey(); err != nil {
		return nil, err
	}
	w, err := writeKey(name, key)
	if err != nil {
		return nil, err
	}
	r.writes = append(r.writes, w)
	return key, nil
}

// caCert returns the authority's certificate in a file and its key if that is
// there too, or nil if there is no certificate.
func (r *run) caCert(certName, keyName string) (*x509.Certificate, crypto.Signer, error) {
	there, err := r.dir.exists(certName)
	if err != nil || !there {
		return nil, nil, err
	}
	path := r.dir.join(certName)
	certs, err := readCerts(path)
	if err != nil {
		return nil, nil, err
	}
	c := certs[0]
	if !c.IsCA || len(certs) != 1 {
		return nil, nil, badFile(path, "", "is not the one certificate of an authority")
	}
	key, err := r.key(keyName)
	if err != nil {
		return nil, nil, err
	}
	if key != nil && !fits(c, key) {
		return nil, nil, badFile(r.dir.join(keyName), "", "is not the key of %s", path)
	}
	return c, key, nil
}

func (r *run) prepareRoot() error {
	c, key, err := r.caCert(rootCert, rootKeyFile)
	if err != nil {
		return err
	}
	if c != nil {
		if got := strings.Join(c.PermittedURIDomains, ", "); got != r.plan.Cluster {
			return &Error{
				Kind: KindRefused, Hint: "give that cluster's name, or another --dir",
				Message: fmt.Sprintf("%s is the authority of cluster %q, and certificates of cluster %q are asked for", r.dir.join(rootCert), got, r.plan.Cluster),
			}
		}
		r.ca.root, r.ca.rootKey = c, key
		r.add("root", "", "kept", rootCert, c)
		return nil
	}
	// A rotation that was killed at a bad moment leaves no authority in its place.
	for _, aside := range []string{oldDir, nextDir} {
		if there, statErr := r.dir.exists(aside); statErr != nil || there {
			return errors.Join(statErr, badFile(r.dir.join(rootCert), "tidal certs rotate completes it", "is missing, and a rotation of the authority was under way"))
		}
	}
	// A root that is gone must not be replaced by another under what it signed.
	if there, statErr := r.dir.exists(interCert); statErr != nil || there {
		return errors.Join(statErr, badFile(r.dir.join(rootCert), "put it back, or use another --dir", "is missing, and the intermediate that it signed is there"))
	}
	if r.ca.rootKey, err = r.keyOrNew(rootKeyFile); err != nil {
		return err
	}
	if r.ca.root, err = newRoot(r.ctx, r.plan.Cluster, r.ca.rootKey, r.scope, r.now); err != nil {
		return err
	}
	r.made("root", "", rootCert, r.ca.root)
	return nil
}

// made records a new certificate and what is to be written for it.
func (r *run) made(kind, name, path string, chain ...*x509.Certificate) {
	r.signed = append(r.signed, chain[0])
	r.writes = append(r.writes, writeCerts(path, chain...))
	r.add(kind, name, "made", path, chain[0])
}

func (r *run) prepareIntermediate() error {
	c, key, err := r.caCert(interCert, interKeyFile)
	if err != nil {
		return err
	}
	if c != nil {
		if c.CheckSignatureFrom(r.ca.root) != nil {
			return badFile(r.dir.join(interCert), "", "was not signed by %s", r.dir.join(rootCert))
		}
		r.ca.inter, r.ca.interKey = c, key
		r.add("intermediate", "", "kept", interCert, c)
		return nil
	}
	if r.ca.rootKey == nil {
		return badFile(r.dir.join(rootKeyFile), "put it back for this run", "is missing, and there is no intermediate to sign with")
	}
	if r.ca.interKey, err = r.keyOrNew(interKeyFile); err != nil {
		return err
	}
	if r.ca.inter, err = newIntermediate(r.ctx, r.plan.Cluster, r.ca.interKey, &r.ca, r.now); err != nil {
		return err
	}
	r.made("intermediate", "", interCert, r.ca.inter)
	return nil
}

func (r *run) prepareBundle() error {
	r.roots = x509.NewCertPool()
	there, err := r.dir.exists(bundleFile)
	if err != nil {
		return err
	}
	state, certs := "kept", []*x509.Certificate{r.ca.root}
	if !there {
		state = "made"
		r.writes = append(r.writes, writeCerts(bundleFile, r.ca.root))
	} else if certs, err = readCerts(r.dir.join(bundleFile)); err != nil {
		return err
	}
	if !slices.ContainsFunc(certs, r.ca.root.Equal) {
		return badFile(r.dir.join(bundleFile), "append ca/root.crt to it", "does not hold the root in %s, so nobody would trust what is signed here", r.dir.join(rootCert))
	}
	for _, c := range certs {
		r.roots.AddCert(c)
	}
	r.add("bundle", "", state, bundleFile, r.ca.root)
	return nil
}

func (r *run) prepareLeaves() error {
	for _, l := range r.leaves {
		for _, n := range l.names {
			if n.Note != "" && !slices.Contains(r.report.Notes, n.Note) {
				r.report.Notes = append(r.report.Notes, n.Note)
			}
		}
		there, err := r.dir.exists(l.folder() + "/tls.crt")
		if err != nil {
			return err
		}
		if there && !r.plan.Overwrite {
			err = r.keepLeaf(l)
		} else {
			err = r.makeLeaf(l)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (r *run) makeLeaf(l leaf) error {
	if r.ca.interKey == nil {
		return badFile(r.dir.join(interKeyFile), "put it back for this run", "is missing, and it signs the certificate of %s", l)
	}
	keyName := l.folder() + "/tls.key"
	key, err := r.leafKey(keyName)
	if err != nil {
		return err
	}
	c, err := r.ca.issue(r.ctx, l, key.Public(), r.now)
	if err != nil {
		return err
	}
	r.made(l.kind(), l.name(), l.folder()+"/tls.crt", c, r.ca.inter)
	return nil
}

// leafKey returns a new key for a leaf, or the one that a killed run left
// without its certificate.
func (r *run) leafKey(name string) (crypto.Signer, error) {
	if !r.plan.Overwrite {
		return r.keyOrNew(name)
	}
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	w, err := writeKey(name, key)
	r.writes = append(r.writes, w)
	return key, err
}

// keepLeaf checks that the certificate that is there does what the plan asks
// for. Its key may have been taken to its machine.
func (r *run) keepLeaf(l leaf) error {
	f := leafFiles(r.dir.path, l.folder())
	key, err := r.key(l.folder() + "/tls.key")
	if err != nil {
		return err
	}
	certs, err := readCerts(f.Cert)
	if err != nil {
		return err
	}
	c := certs[0]
	if key != nil && !fits(c, key) {
		return badFile(f.Cert, overwriteHint, "was not made for the private key beside it")
	}
	chain := chainOf(c, certs)
	for _, use := range l.uses() {
		if err := verifyLeaf(f, chain, verifyFor{r.roots, r.now, use}); err != nil {
			return withOverwriteHint(err)
		}
	}
	if id, err := identityOf(c); err != nil || id != l.id {
		return refused(f.Cert, "it is the certificate of %s, and %s is asked for", uriOf(c), l.id)
	}
	if lacks := lacking(c, l.names); len(lacks) > 0 {
		return refused(f.Cert, "the certificate of %s is there and is not valid for %s", l, strings.Join(lacks, ", "))
	}
	r.add(l.kind(), l.name(), "kept", l.folder()+"/tls.crt", c)
	return nil
}

const overwriteHint = "--overwrite makes new keys and certificates for the nodes and clients named on the line"

func refused(path, format string, args ...any) error {
	return &Error{Kind: KindRefused, Message: path + ": " + fmt.Sprintf(format, args...), Hint: overwriteHint}
}

func withOverwriteHint(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return &Error{Kind: KindRefused, Message: e.Message, Hint: overwriteHint, Err: err}
	}
	return err
}

func uriOf(c *x509.Certificate) string {
	var all []string
	for _, u := range c.URIs {
		all = append(all, u.String())
	}
	return strings.Join(all, ", ")
}

func lacking(c *x509.Certificate, names []Name) []string {
	have := certNames(c)
	var lacks []string
	for _, n := range names {
		if !slices.Contains(have, n.String()) {
			lacks = append(lacks, n.String())
		}
	}
	return lacks
}

// certNames returns the host names and addresses of a certificate.
func certNames(c *x509.Certificate) []string {
	names := slices.Clone(c.DNSNames)
	for _, ip := range c.IPAddresses {
		names = append(names, ip.String())
	}
	return names
}

func serialHex(c *x509.Certificate) string { return fmt.Sprintf("%032x", c.SerialNumber) }

package pki

import (
	"crypto"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// Files are the paths of what one process shows and trusts.
type Files struct {
	CA   string // trust bundle: the roots, PEM
	Cert string // leaf and intermediates, PEM; a client may have none
	Key  string // the leaf's private key, PEM; a client may have none

	// Dialled is the host by which others dial a node, for which its certificate must be
	// valid; "": that is not looked at.
	Dialled string
}

// Keypair is the certificate, key and trust bundle of one process. Reload replaces
// them under running listeners and dialers; all methods may be called at once.
type Keypair struct {
	files   Files
	cluster string // that the other side must belong to; "" for a client without a certificate: any
	node    string // that the certificate must name; "" for a client
	current atomic.Pointer[material]
	revoked atomic.Pointer[map[string]bool] // serials that are refused; nil: none
	loads   loads
	copies  copies // of certificates of clients
}

// material is one loaded set. It never changes.
type material struct {
	sum     [sha256.Size]byte // of the files
	cert    *tls.Certificate  // nil: a client without a certificate
	chain   []*x509.Certificate
	roots   *x509.CertPool
	trusted []*x509.Certificate // what is in roots
	server  *tls.Config
}

// LoadServer reads the files of a node. The certificate must be valid at now for
// serving and for dialling under the roots of the bundle, and name exactly this
// node of this cluster. The error names the file and the reason.
func LoadServer(f Files, cluster, node string, now time.Time) (*Keypair, error) {
	id := Identity{Cluster: cluster, Node: node}
	if err := errors.Join(CheckCluster(cluster), checkNode(node)); err != nil {
		return nil, err
	}
	k := &Keypair{files: f, cluster: id.Cluster, node: id.Node}
	if _, err := k.Reload(now); err != nil {
		return nil, err
	}
	return k, nil
}

// LoadClient reads the files of a client. Without Cert and Key it trusts the
// bundle and shows nothing; else the certificate must be valid at now for
// dialling under the roots of the bundle and carry an identity, whose cluster is
// then the only one that it talks to. The error names the file and the reason.
func LoadClient(f Files, now time.Time) (*Keypair, error) {
	k := &Keypair{files: f}
	if _, err := k.Reload(now); err != nil {
		return nil, err
	}
	if m := k.current.Load(); m.cert != nil {
		id, err := identityOf(m.cert.Leaf)
		if err != nil {
			return nil, badFile(f.Cert, "", "%s", err)
		}
		k.cluster = id.Cluster
	}
	return k, nil
}

// load reads the files and uses them from the next handshake on. If anything is
// wrong with them, what was loaded before stays.
func (k *Keypair) load(now time.Time) error {
	m := &material{sum: k.files.sum()} // a change from here on is seen by the next look
	var err error
	if m.trusted, err = readRoots(k.files.CA); err != nil {
		return err
	}
	m.roots = poolOf(m.trusted)
	if k.node != "" || k.files.Cert != "" || k.files.Key != "" {
		if m.cert, m.chain, err = loadPair(k.files, m.roots, now, k.uses()); err != nil {
			return err
		}
		if err = k.checkIdentity(m.cert.Leaf); err != nil {
			return err
		}
		if err = k.checkDialled(m.cert.Leaf); err != nil {
			return err
		}
	}
	m.server = k.serverConfig(m)
	k.current.Store(m)
	return nil
}

func (k *Keypair) uses() []x509.ExtKeyUsage {
	if k.node != "" { // a node serves, and dials other nodes
		return []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	return []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
}

func (k *Keypair) checkIdentity(leaf *x509.Certificate) error {
	if k.cluster == "" {
		return nil // a client's first load; LoadClient looks itself
	}
	id, err := identityOf(leaf)
	if err != nil {
		return badFile(k.files.Cert, "tidal certs gen makes certificates with an identity", "%s", err)
	}
	if id.Cluster != k.cluster || !id.speaksFor(k.node) {
		want := "a client of cluster " + k.cluster
		if k.node != "" {
			want = "node " + k.node + " of cluster " + k.cluster
		}
		return badFile(k.files.Cert, "take the certificate that was made for it", "the certificate is %s, and %s is wanted", id, want)
	}
	return nil
}

func (k *Keypair) checkDialled(leaf *x509.Certificate) error {
	if k.files.Dialled == "" {
		return nil
	}
	cover, err := Covers(leaf, k.files.Dialled)
	if err != nil {
		return wrapUsage("the name by which others dial this node", err)
	}
	if !cover.Covers {
		return badFile(k.files.Cert, "tidal certs gen or issue with --overwrite and all its names makes one, or have the node dialled by a name that it has",
			"the certificate is not valid for %s, by which others dial this node: %s", cover.Name, cover.Why)
	}
	return nil
}

// Leaf returns the certificate that is shown now; nil for a client without one.
func (k *Keypair) Leaf() *x509.Certificate {
	if c := k.current.Load().cert; c != nil {
		return c.Leaf
	}
	return nil
}

// ServerTLS returns the configuration for a node's listener: TLS 1.3, HTTP/1.1,
// a client certificate is verified if one is given, and must then carry an
// identity of this cluster. Whether a route needs one is for the route to say,
// by PeerNode and ClientRole. A connection below TLS that is a Shown is told which
// certificate it is served with.
func (k *Keypair) ServerTLS() *tls.Config {
	c := k.current.Load().server.Clone()
	// The whole configuration is looked up per handshake, since the roots that
	// clients are verified with cannot be changed in one that is in use.
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		m := k.current.Load()
		if c, ok := hello.Conn.(Shown); ok && m.cert != nil {
			c.Show(m.cert.Leaf)
		}
		return m.server, nil
	}
	return c
}

func (k *Keypair) serverConfig(m *material) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"http/1.1"},
		ClientAuth: tls.VerifyClientCertIfGiven,
		ClientCAs:  m.roots,
		// A resumed session would live on under roots that are no longer trusted.
		SessionTicketsDisabled: true,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if m.cert == nil {
				return nil, errors.New("a client's certificate cannot serve")
			}
			return m.cert, nil
		},
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return nil
			}
			if _, err := peer(&cs, k.cluster); err != nil {
				return err
			}
			k.copies.in(&cs)
			return k.Revoked(&cs)
		},
	}
}

// NodeTLS returns the configuration for one connection to a node: its
// certificate must be valid for the host that is dialled (the caller or tls.Dial
// sets ServerName, without a trailing dot) and name a node of this cluster, and
// that node if node is not "". Take a new one for each connection: the roots are
// those of now. With TLS 1.3 a handshake succeeds here before the other side has
// judged our certificate; only an answer proves that it was accepted.
func (k *Keypair) NodeTLS(node string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		NextProtos: []string{"http/1.1"},
		RootCAs:    k.current.Load().roots,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			if c := k.current.Load().cert; c != nil {
				return c, nil
			}
			return &tls.Certificate{}, nil
		},
		VerifyConnection: func(cs tls.ConnectionState) error { return k.Names(&cs, node) },
	}
}

// Names returns an error unless the other side's verified certificate names this
// node of the cluster and was not revoked; node "" takes any node.
func (k *Keypair) Names(cs *tls.ConnectionState, node string) error {
	got, err := PeerNode(cs, k.cluster)
	if err != nil {
		return err
	}
	if node != "" && !(Identity{Node: got}).speaksFor(node) {
		return fmt.Errorf("the certificate names node %s, and node %s is wanted", got, node)
	}
	return k.Revoked(cs)
}

func loadRoots(path string) (*x509.CertPool, error) {
	certs, err := readRoots(path)
	if err != nil {
		return nil, err
	}
	return poolOf(certs), nil
}

func poolOf(certs []*x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, c := range certs {
		pool.AddCert(c)
	}
	return pool
}

// readRoots reads a trust bundle.
func readRoots(path string) ([]*x509.Certificate, error) {
	if path == "" {
		return nil, &Error{Kind: KindFiles, Message: "no trust bundle is given", Hint: "name the bundle.crt that tidal certs gen made"}
	}
	certs, err := readCerts(path)
	if err != nil {
		return nil, err
	}
	for i, c := range certs {
		if !c.IsCA {
			return nil, badFile(path, "the trust bundle is bundle.crt, not a node's tls.crt", "certificate %d (%s) is not an authority's", i+1, clip(c.Subject.CommonName))
		}
	}
	return certs, nil
}

// loadPair reads a certificate and its key and puts the chain in order: the leaf
// is the certificate that fits the key, wherever it stands in the file.
func loadPair(f Files, roots *x509.CertPool, now time.Time, uses []x509.ExtKeyUsage) (*tls.Certificate, []*x509.Certificate, error) {
	if f.Cert == "" || f.Key == "" {
		return nil, nil, &Error{Kind: KindFiles, Message: "a certificate and a key are given together or not at all", Hint: "name both tls.crt and tls.key"}
	}
	key, err := readKey(f.Key)
	if err != nil {
		return nil, nil, err
	}
	certs, err := readCerts(f.Cert)
	if err != nil {
		return nil, nil, err
	}
	leaf := leafOf(certs, key)
	if leaf == nil {
		return nil, nil, badFile(f.Cert, "take tls.crt and tls.key from the same directory", "no certificate in it fits the private key in %s", f.Key)
	}
	chain := chainOf(leaf, certs)
	for _, use := range uses {
		if err := verifyLeaf(f, chain, verifyFor{roots, now, use}); err != nil {
			return nil, nil, err
		}
	}
	pair := &tls.Certificate{PrivateKey: key, Leaf: leaf}
	for _, c := range chain {
		pair.Certificate = append(pair.Certificate, c.Raw)
	}
	return pair, chain, nil
}

func leafOf(certs []*x509.Certificate, key crypto.Signer) *x509.Certificate {
	for _, c := range certs {
		if fits(c, key) {
			return c
		}
	}
	return nil
}

// fits reports whether a certificate was made for a key.
func fits(c *x509.Certificate, key crypto.Signer) bool {
	pub, ok := key.Public().(interface{ Equal(crypto.PublicKey) bool })
	return ok && pub.Equal(c.PublicKey)
}

// chainOf follows the issuers from the leaf through a file's certificates. A root
// is left out: the other side has it, or does not trust it.
func chainOf(leaf *x509.Certificate, certs []*x509.Certificate) []*x509.Certificate {
	chain := []*x509.Certificate{leaf}
	for len(chain) <= len(certs) {
		last := chain[len(chain)-1]
		next := issuerOf(last, certs)
		if next == nil || next.CheckSignatureFrom(next) == nil {
			break
		}
		chain = append(chain, next)
	}
	return chain
}

func issuerOf(c *x509.Certificate, certs []*x509.Certificate) *x509.Certificate {
	for _, p := range certs {
		if p != c && c.CheckSignatureFrom(p) == nil {
			return p
		}
	}
	return nil
}

type verifyFor struct {
	roots *x509.CertPool
	now   time.Time
	use   x509.ExtKeyUsage
}

func verifyLeaf(f Files, chain []*x509.Certificate, v verifyFor) error {
	leaf := chain[0]
	inter := x509.NewCertPool()
	for _, c := range chain[1:] {
		inter.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: v.roots, Intermediates: inter, CurrentTime: v.now, KeyUsages: []x509.ExtKeyUsage{v.use}})
	if err == nil {
		return nil
	}
	fail := func(hint, format string, args ...any) error {
		e := badFile(f.Cert, hint, format, args...)
		e.Err = err
		return e
	}
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	last := chain[len(chain)-1]
	switch {
	case errors.As(err, &unknown):
		return fail("tls.crt holds the certificate and then its intermediate; the bundle holds the root; both must be of the same authority",
			"no root in %s has signed it: it ends at an issuer %q, which is in neither file", f.CA, clip(last.Issuer.CommonName))
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fail(dateHint(v.now, chain), "%s", dates(v.now, chain))
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		what := "serving (server authentication)"
		if v.use == x509.ExtKeyUsageClientAuth {
			what = "dialling (client authentication)"
		}
		return fail("a node's certificate needs both server and client authentication, a client's the latter", "the certificate is not made for %s", what)
	}
	return fail("", "the certificate is not valid: %s", reason(err))
}

func dates(now time.Time, chain []*x509.Certificate) string {
	for i, c := range chain {
		what := "the certificate"
		if i > 0 {
			what = fmt.Sprintf("its issuer %q", clip(c.Subject.CommonName))
		}
		if now.Before(c.NotBefore) {
			return fmt.Sprintf("%s is not valid before %s, and the clock says %s", what, stamp(c.NotBefore), stamp(now))
		}
		if now.After(c.NotAfter) {
			return fmt.Sprintf("%s expired at %s, and the clock says %s", what, stamp(c.NotAfter), stamp(now))
		}
	}
	return "the root of its chain is not valid at " + stamp(now)
}

func dateHint(now time.Time, chain []*x509.Certificate) string {
	if now.Before(chain[0].NotBefore) {
		return "check this machine's clock"
	}
	return renewHint
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

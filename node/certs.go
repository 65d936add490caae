package node

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"tidal/node/api"
	"tidal/node/internal/cluster"
	"tidal/node/internal/peer"
	"tidal/node/internal/server"
	"tidal/pki"
)

const (
	certsLook = 3 * time.Second // between looks at the files of the certificates
	certsTidy = time.Second     // between looks at connections that are to end
)

// watchCerts takes new certificates into use as their files change, and closes
// connections whose certificate has ended.
func (n *node) watchCerts(run context.Context) error {
	if n.keys == nil {
		return nil
	}
	look, tidy := time.NewTicker(certsLook), time.NewTicker(certsTidy)
	defer look.Stop()
	defer tidy.Stop()
	for {
		select {
		case <-look.C:
			n.reloadCerts(run)
		case <-n.o.Reload:
			n.reloadCerts(run)
		case now := <-tidy.C:
			n.refuseRevoked(run)
			n.leaveOld()
			n.server.Tidy(now)
		case <-run.Done():
			return nil
		}
	}
}

// refuseRevoked has what the cluster has revoked refused from now on, and closes
// the connections that were made with it before.
func (n *node) refuseRevoked(ctx context.Context) {
	if n.keys == nil {
		return
	}
	list := n.cluster.Revoked()
	if len(list) == 0 {
		return
	}
	// Each time: one that shook hands while the list grew is found now.
	defer func() {
		n.server.CloseIf(n.keys.Revoked)
		n.net.CloseIf(n.keys.Revoked)
	}()
	if uint64(len(list)) == n.revoked.Load() { // nothing is ever taken off it
		return
	}
	serials := make([]string, 0, len(list))
	for _, r := range list {
		serials = append(serials, r.Serial)
	}
	n.keys.Revoke(serials)
	n.revoked.Store(uint64(len(list)))
	n.log.InfoContext(ctx, "revoked certificates are refused", "count", len(list))
}

// leaveOld has connections made anew whose handshake was made with a certificate
// that is not the node's any more: those that shook hands while it changed. And it
// has clients come again that were let in under a root that goes, so that those
// with a new certificate show it.
func (n *node) leaveOld() {
	if n.keys == nil {
		return
	}
	leaf, goes := n.keys.Leaf(), n.leavingRoot()
	n.server.RecycleIf(func(c server.Conn) bool {
		return c.Own != nil && !c.Own.Equal(leaf) || goes != "" && under(c.Peer, goes)
	})
	n.net.RenewIf(func(c peer.Conn) bool { return c.Own != nil && !c.Own.Equal(leaf) })
}

// leavingRoot returns the fingerprint of the root that nobody is to be let in
// under for much longer; "": none goes.
func (n *node) leavingRoot() string {
	switch r := n.cluster.Rotation(); r.Phase {
	case api.RotateSoak, api.RotateDrop:
		return r.Old
	case api.RotateUndo:
		return r.New
	default:
		return ""
	}
}

// under reports whether the other side was let in under a root.
func under(cs *tls.ConnectionState, root string) bool {
	for _, chain := range cs.VerifiedChains {
		if pki.Fingerprint(chain[len(chain)-1]) == root {
			return true
		}
	}
	return false
}

// reloadCerts looks at the files, and has the connections made anew that rest on
// what they held before.
func (n *node) reloadCerts(ctx context.Context) {
	before, problem := n.keys.Leaf(), n.keys.Loads().Problem
	changed, err := n.keys.Reload(time.Now())
	switch {
	case err != nil:
		if problem == nil || problem.Error() != err.Error() {
			n.log.ErrorContext(ctx, "new certificates cannot be used: those from before stay in use",
				"error", err.Error(), "serial", pki.Serial(before), "not_after", before.NotAfter)
		}
	case changed:
		now := n.keys.Leaf()
		n.log.InfoContext(ctx, "certificates taken into use", "serial", pki.Serial(now), "not_after", now.NotAfter,
			"serial_before", pki.Serial(before), "roots", len(n.keys.Roots()))
		if n.o.Faults.CertsCut {
			n.server.CloseIf(cut)
			n.net.CloseIf(cut)
		}
		n.server.Recycle()
		n.net.Renew()
	case problem != nil:
		n.log.InfoContext(ctx, "the files of the certificates are again what is in use", "serial", pki.Serial(before))
	}
}

// cut finds fault with every connection.
func cut(*tls.ConnectionState) error { return errors.New("a certificate changed") }

// certs is what the cluster keeps of certificates, for those who ask a node.
type certs struct {
	*cluster.Cluster

	n *node
}

// Revoke implements server.Certs. What signed this node's own certificate is not
// revoked: every node would refuse every other for ever, and nobody could take it
// back.
func (c certs) Revoke(ctx context.Context, r api.Revocation) error {
	if report := c.n.certsReport(); report != nil && slices.Contains(report.Issuers, r.Serial) {
		return &api.Error{
			Code: api.CodeConflict, Message: r.Serial + " is the authority that signed the certificate of node " + c.n.o.Config.Node.ID + ": the nodes would refuse each other for ever",
			Hint: "put another authority in its place first: tidal certs rotate",
		}
	}
	return c.Cluster.Revoke(ctx, r)
}

// orderCerts has the files looked at because somebody asks.
func (n *node) orderCerts(ctx context.Context) error {
	if n.keys == nil {
		return &api.Error{Code: api.CodeConflict, Message: "this is a plaintext cluster: it has no certificates"}
	}
	n.reloadCerts(ctx)
	return nil
}

// certsReport is what the node says of its certificates; nil in plaintext.
func (n *node) certsReport() *api.Certificates {
	if n.keys == nil {
		return nil
	}
	chain, loads := n.keys.Chain(), n.keys.Loads()
	leaf := chain[0]
	c := &api.Certificates{
		Serial: pki.Serial(leaf), NotBefore: leaf.NotBefore.UTC(), NotAfter: pki.ValidUntil(chain).UTC(),
		Due: pki.Due(leaf, time.Now()), Revoked: n.revoked.Load(), Taken: loads.Taken, Failed: loads.Failed, Since: loads.Since.UTC().Truncate(time.Second),
	}
	for _, u := range leaf.URIs {
		c.Identity = u.String()
	}
	if len(chain) > 1 {
		c.Issuer = pki.Fingerprint(chain[len(chain)-1])
	}
	for _, issuer := range n.keys.Issuers() {
		c.Issuers = append(c.Issuers, pki.Serial(issuer))
	}
	for _, root := range n.keys.Roots() {
		c.Roots = append(c.Roots, api.Root{Fingerprint: pki.Fingerprint(root), Subject: root.Subject.CommonName, NotAfter: root.NotAfter.UTC()})
	}
	if loads.Problem != nil {
		c.Problem = loads.Problem.Error()
	}
	return c
}

// certConns counts the open connections by the certificates at their two ends.
func (n *node) certConns() []api.CertConns {
	if n.keys == nil {
		return nil
	}
	counts := map[api.CertConns]int{}
	count := func(own *x509.Certificate, state *tls.ConnectionState) {
		var c api.CertConns
		if own != nil {
			c.Own = pki.Serial(own)
		}
		if len(state.PeerCertificates) > 0 {
			leaf := state.PeerCertificates[0]
			c.Peer, c.NotAfter = pki.Serial(leaf), pki.ValidUntil(state.PeerCertificates).UTC()
			for _, u := range leaf.URIs {
				c.Identity = u.String()
			}
		}
		counts[c]++
	}
	for _, c := range n.server.Conns() {
		count(c.Own, c.Peer)
	}
	for _, c := range n.net.Conns() {
		count(c.Own, c.Peer)
	}
	out := make([]api.CertConns, 0, len(counts))
	for c, k := range counts {
		c.Count = k
		out = append(out, c)
	}
	api.SortCertConns(out)
	return out
}

// served is a connection that knows which certificate it was served with.
type served struct {
	net.Conn

	leaf  atomic.Pointer[x509.Certificate]
	reads chan struct{} // closed at the first read
	first sync.Once
}

// Read implements net.Conn.
func (s *served) Read(p []byte) (int, error) {
	s.first.Do(func() { close(s.reads) })
	return s.Conn.Read(p)
}

// Show implements pki.Shown.
func (s *served) Show(leaf *x509.Certificate) { s.leaf.Store(leaf) }

// Served returns the certificate; nil before the handshake.
func (s *served) Served() *x509.Certificate { return s.leaf.Load() }

// handshakesCollect is after how many handshakes garbage is collected. Each leaves
// some 35 KB of it, which a heap that has grown by many connections would let lie.
const handshakesCollect = 256

// shaking is a listener whose connections shake hands each on a goroutine of its own.
// That takes a deep stack, which would stay with the goroutine that serves the
// connection, 16 KB of each, for as long as it is open.
type shaking struct {
	net.Listener

	conf  *tls.Config
	shake func(*tls.Conn) // takes the handshake
	count atomic.Uint64   // handshakes that ended
}

// Accept implements net.Listener. Who serves the connection waits for its handshake,
// sets its deadline and hears its error, as if it had begun it.
func (l *shaking) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s := &served{Conn: c, reads: make(chan struct{})}
	conn := tls.Server(s, l.conf)
	go func() { // ends with the handshake, or with the connection
		l.shake(conn)
		if l.count.Add(1)%handshakesCollect == 0 {
			runtime.GC()
		}
	}()
	<-s.reads // the handshake has begun, so nobody else can begin it
	return conn, nil
}

package pki

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// Identity is who a certificate speaks for: a node of a cluster, or a client
// with a role in it.
type Identity struct {
	Cluster string
	Node    string // the node's id, or AnyNode; "" for a client
	Role    string // admin, writer or reader; "" for a node
	Name    string // the client's name; "" for a node
}

// AnyNode is the Node of a certificate that all nodes of a cluster share: it speaks
// for each of them.
const AnyNode = "*"

// The limits of the words in an identity, in bytes.
const (
	maxCluster = 32
	maxNode    = 32
	maxClient  = 64
)

// Roles returns the roles that a client's certificate can carry.
func Roles() []string { return []string{"reader", "writer", "admin"} }

// CheckCluster returns an error unless name can be a cluster's name in
// certificates: [a-z0-9][a-z0-9-]{0,31}, not ending in a hyphen.
func CheckCluster(name string) error {
	if wordOK(name, maxCluster, "-") && !strings.HasSuffix(name, "-") {
		return nil
	}
	return usage("use lower-case letters, digits and hyphens, as in prod-1",
		"cluster name %q is not of the form [a-z0-9][a-z0-9-]{0,%d} without a hyphen at its end", clip(name), maxCluster-1)
}

func checkNode(id string) error {
	if wordOK(id, maxNode, "-") {
		return nil
	}
	return usage("use lower-case letters, digits and hyphens, as in node-1",
		"node id %q is not of the form [a-z0-9][a-z0-9-]{0,%d}", clip(id), maxNode-1)
}

func checkClient(name, role string) error {
	if !wordOK(name, maxClient, "-._") {
		return usage("use lower-case letters, digits, dots, hyphens and underscores, as in billing-api",
			"client name %q is not of the form [a-z0-9][a-z0-9._-]{0,%d}", clip(name), maxClient-1)
	}
	if !slices.Contains(Roles(), role) {
		return usage("the roles are "+strings.Join(Roles(), ", "), "client %s: there is no role %q", name, clip(role))
	}
	return nil
}

func (i Identity) check() error {
	if err := CheckCluster(i.Cluster); err != nil {
		return err
	}
	switch i.Node {
	case "":
	case AnyNode:
		return nil
	default:
		return checkNode(i.Node)
	}
	return checkClient(i.Name, i.Role)
}

// String returns the URI.
func (i Identity) String() string {
	if i.Node != "" {
		return "spiffe://" + i.Cluster + "/node/" + i.Node
	}
	return "spiffe://" + i.Cluster + "/role/" + i.Role + "/" + i.Name
}

func (i Identity) uri() *url.URL {
	path := strings.TrimPrefix(i.String(), "spiffe://"+i.Cluster)
	return &url.URL{Scheme: "spiffe", Host: i.Cluster, Path: path, RawPath: path} // raw: the * of AnyNode stays as it is
}

// speaksFor reports whether it may be shown for a node of its cluster.
func (i Identity) speaksFor(node string) bool {
	return i.Node == node || i.Node == AnyNode && node != ""
}

// ParseIdentity reads the form of Identity.String and no other: no port, query,
// percent-encoding, upper case or trailing slash.
func ParseIdentity(s string) (Identity, error) {
	var id Identity
	rest, ok := strings.CutPrefix(s, "spiffe://")
	parts := strings.Split(rest, "/")
	switch {
	case ok && len(parts) == 3 && parts[1] == "node" && parts[2] != "":
		id = Identity{Cluster: parts[0], Node: parts[2]}
	case ok && len(parts) == 4 && parts[1] == "role":
		id = Identity{Cluster: parts[0], Role: parts[2], Name: parts[3]}
	default:
		return Identity{}, fmt.Errorf("identity %q is not of the form spiffe://CLUSTER/node/ID or spiffe://CLUSTER/role/ROLE/NAME", clip(s))
	}
	if err := id.check(); err != nil {
		return Identity{}, fmt.Errorf("identity %q: %w", clip(s), err)
	}
	return id, nil
}

// identityOf returns the one identity in a certificate. Two would leave open
// which of them counts, so they are refused.
func identityOf(c *x509.Certificate) (Identity, error) {
	var found []string
	for _, u := range c.URIs {
		if strings.EqualFold(u.Scheme, "spiffe") {
			found = append(found, u.String())
		}
	}
	switch len(found) {
	case 0:
		return Identity{}, fmt.Errorf("the certificate of %q names no tidal identity (a URI spiffe://CLUSTER/…)", clip(c.Subject.CommonName))
	case 1:
		return ParseIdentity(found[0])
	}
	return Identity{}, fmt.Errorf("the certificate of %q names %d identities, and may name one: %s",
		clip(c.Subject.CommonName), len(found), clip(strings.Join(found, ", ")))
}

// peer returns the identity of the other side of a connection in this cluster;
// cluster "" takes any. Only a verified chain counts: what the other side merely
// sent proves nothing.
func peer(cs *tls.ConnectionState, cluster string) (Identity, error) {
	if cs == nil || len(cs.VerifiedChains) == 0 || len(cs.VerifiedChains[0]) == 0 {
		return Identity{}, ErrNoCertificate
	}
	id, err := identityOf(cs.VerifiedChains[0][0])
	if err != nil {
		return Identity{}, err
	}
	if cluster != "" && id.Cluster != cluster {
		return Identity{}, fmt.Errorf("the certificate is %s, of cluster %s, and this is cluster %s", id, id.Cluster, cluster)
	}
	return id, nil
}

// PeerNode returns the node that the other side's verified certificate names, or
// AnyNode. It fails with ErrNoCertificate if there is none, and with a text for the log
// if the certificate is a client's, of another cluster, or names no identity.
func PeerNode(cs *tls.ConnectionState, cluster string) (string, error) {
	id, err := peer(cs, cluster)
	if err != nil {
		return "", err
	}
	if id.Node == "" {
		return "", fmt.Errorf("the certificate is %s, a client's, and a node's is needed", id)
	}
	return id.Node, nil
}

// ClientRole returns the name and the role (admin, writer or reader) in the
// other side's verified certificate. It fails with ErrNoCertificate if there is
// none, and with a text for the log if the certificate is a node's, of another
// cluster, or names no identity.
func ClientRole(cs *tls.ConnectionState, cluster string) (name, role string, err error) {
	id, err := peer(cs, cluster)
	if err != nil {
		return "", "", err
	}
	if id.Role == "" {
		return "", "", fmt.Errorf("the certificate is %s, a node's, and a client's is needed", id)
	}
	return id.Name, id.Role, nil
}

// wordOK reports whether s has 1 to limit bytes, begins with a lower-case letter
// or a digit, and holds besides these only bytes of more.
func wordOK(s string, limit int, more string) bool {
	if s == "" || len(s) > limit {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case i > 0 && strings.IndexByte(more, c) >= 0:
		default:
			return false
		}
	}
	return true
}

// clip shortens what came from outside before it is shown.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

package pki

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// The sides of a connection that can be at fault.
const (
	SideThis   = "this side"
	SideServer = "the server"
	SideClocks = "the clocks"
)

// ClockSkew is how far two clocks may be apart before Examine says so.
const ClockSkew = 30 * time.Second

// Check is one thing that Examine looked at.
type Check struct {
	Name   string `json:"name"` // handshake, dates, chain, name, identity, accepted, role or clock
	OK     bool   `json:"ok"`
	Side   string `json:"side,omitempty"` // at fault; "" if OK
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

// Exam is what Examine found.
type Exam struct {
	Host      string    `json:"host"`
	Checks    []Check   `json:"checks"`
	Serial    string    `json:"serial,omitempty"` // of the certificate that is served
	Identity  string    `json:"identity,omitempty"`
	State     State     `json:"state,omitempty"`
	NotBefore time.Time `json:"not_before,omitzero"`
	NotAfter  time.Time `json:"not_after,omitzero"`
}

// Failed returns the first check that is not OK, or nil.
func (x *Exam) Failed() *Check {
	for i := range x.Checks {
		if !x.Checks[i].OK {
			return &x.Checks[i]
		}
	}
	return nil
}

func (x *Exam) pass(name, format string, args ...any) {
	x.Checks = append(x.Checks, Check{Name: name, OK: true, Detail: fmt.Sprintf(format, args...)})
}

func (x *Exam) fail(name, side, hint, format string, args ...any) {
	x.Checks = append(x.Checks, Check{Name: name, Side: side, Hint: hint, Detail: fmt.Sprintf(format, args...)})
}

// Examine shakes hands over a connection with whoever answers at host, and says
// what each side makes of the other: every check is made, also after one that
// failed, as far as the connection goes. The server's judgement of this side is
// read after the handshake: with TLS 1.3 it comes no earlier. node is the node that
// should answer, "" for any. The connection is closed.
func Examine(ctx context.Context, conn net.Conn, host, node string, k *Keypair, now time.Time) Exam {
	x := &Exam{Host: host}
	defer conn.Close() //nolint:errcheck // nothing is written that matters
	m := k.current.Load()
	c := tls.Client(conn, &tls.Config{
		ServerName: strings.TrimSuffix(host, "."), MinVersion: tls.VersionTLS12,
		NextProtos:           []string{"http/1.1"},
		InsecureSkipVerify:   true, //nolint:gosec // what is wrong is looked at and said below; no data is trusted
		GetClientCertificate: k.NodeTLS("").GetClientCertificate,
	})
	if err := c.HandshakeContext(ctx); err != nil {
		x.explainHandshake(err)
		return *x
	}
	cs := c.ConnectionState()
	x.pass("handshake", "%s", tls.VersionName(cs.Version))
	x.judgeServer(cs.PeerCertificates, m.roots, k.cluster, node, now)
	x.askServer(ctx, c, m.cert, now)
	return *x
}

func (x *Exam) explainHandshake(err error) {
	var record tls.RecordHeaderError
	var alert tls.AlertError
	switch {
	case errors.As(err, &record):
		x.fail("handshake", SideServer, "is this the right port? a plaintext cluster has no certificates", "it does not speak TLS: %s", err)
	case errors.As(err, &alert):
		x.fail("handshake", SideServer, "its log says why", "it breaks the handshake off: %s", err)
	case errors.Is(err, io.EOF), errors.Is(err, net.ErrClosed):
		x.fail("handshake", SideServer, "its log says why", "it closes the connection in the handshake")
	default:
		x.fail("handshake", SideServer, "", "%s", err)
	}
}

// judgeServer is what this side makes of the server's certificates.
func (x *Exam) judgeServer(certs []*x509.Certificate, roots *x509.CertPool, cluster, node string, now time.Time) {
	leaf := certs[0]
	x.Serial, x.Identity, x.State = serialHex(leaf), uriOf(leaf), stateOf(leaf, now)
	x.NotBefore, x.NotAfter = leaf.NotBefore.UTC(), leaf.NotAfter.UTC()
	chain := chainOf(leaf, certs)
	switch x.State {
	case StateExpired:
		x.fail("dates", SideServer, "tidal certs renew where it was made, bring the new tls.crt to the node: it takes it without a restart", "%s", dates(now, chain))
	case StateEarly:
		x.fail("dates", SideClocks, "check the clock of this machine, then the one that signed it", "%s", dates(now, chain))
	case StateOK, StateDue, StateBroken:
		x.pass("dates", "valid until %s (%s)", stamp(leaf.NotAfter), x.State)
	}
	x.judgeChain(chain, roots, now)
	if cover, err := Covers(leaf, x.Host); err != nil {
		x.fail("name", SideThis, "dial a name that a certificate can have", "%s", err)
	} else if !cover.Covers {
		x.fail("name", SideServer, "dial it by one of its names, or make it a certificate with this one: tidal certs gen --overwrite", "its certificate is not valid for %s: %s", cover.Name, cover.Why)
	} else {
		x.pass("name", "%s is covered by %s", cover.Name, cover.By)
	}
	id, err := identityOf(leaf)
	switch {
	case err != nil:
		x.fail("identity", SideServer, "tidal certs makes certificates with an identity", "%s", err)
	case id.Node == "":
		x.fail("identity", SideServer, "serve with the certificate of a node", "its certificate is %s, a client's", id)
	case cluster != "" && id.Cluster != cluster:
		x.fail("identity", SideServer, "is this the right address?", "it is %s, of cluster %s, and this side's certificate is of cluster %s", id, id.Cluster, cluster)
	case node != "" && !id.speaksFor(node):
		x.fail("identity", SideServer, "is this the right address?", "it is node %s, and node %s is wanted", id.Node, node)
	default:
		x.pass("identity", "%s", id)
	}
}

func (x *Exam) judgeChain(chain []*x509.Certificate, roots *x509.CertPool, now time.Time) {
	inter := x509.NewCertPool()
	for _, c := range chain[1:] {
		inter.AddCert(c)
	}
	at := now // dates have a check of their own
	if now.Before(chain[0].NotBefore) || now.After(chain[0].NotAfter) {
		at = chain[0].NotAfter
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: roots, Intermediates: inter, CurrentTime: at, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	last := chain[len(chain)-1]
	switch {
	case err == nil:
		x.pass("chain", "%d certificates up to a root that is trusted here", len(chain))
	case errors.As(err, &unknown) && len(chain) == 1 && strings.Contains(last.Issuer.CommonName, " issuing "):
		x.fail("chain", SideServer, "its tls.crt must hold the certificate and then its intermediate", "it does not send the intermediate %q that signed its certificate", clip(last.Issuer.CommonName))
	case errors.As(err, &unknown):
		x.fail("chain", SideThis, "is the trust bundle that of this cluster, and up to date? if so, another cluster answers here", "no root in the trust bundle signed its chain, which ends at the issuer %q", clip(last.Issuer.CommonName))
	case errors.As(err, &invalid) && invalid.Reason == x509.IncompatibleUsage:
		x.fail("chain", SideServer, "a node's certificate needs both server and client authentication", "its certificate is not made for serving")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		x.fail("chain", SideServer, "tidal certs renew ca, then renew the leaves", "%s", dates(now, chain))
	default:
		x.fail("chain", SideServer, "", "%s", reason(err))
	}
}

// askServer asks the server something, which shows what it makes of this side.
func (x *Exam) askServer(ctx context.Context, c *tls.Conn, own *tls.Certificate, now time.Time) {
	br := bufio.NewReader(c)
	live, err := x.get(ctx, c, br, "/health/live")
	if err != nil {
		x.explainRefusal(err, own, now)
		return
	}
	if own == nil {
		x.pass("accepted", "without a certificate of ours")
	} else {
		x.pass("accepted", "it takes our certificate %s", uriOf(own.Leaf))
	}
	x.judgeClock(live.date, now)
	if own == nil {
		return
	}
	if id, idErr := identityOf(own.Leaf); idErr != nil || id.Role == "" {
		return // a node has no role
	}
	status, err := x.get(ctx, c, br, "/cluster/status/local")
	switch {
	case err != nil:
		x.fail("role", SideServer, "its log says why", "it breaks off when asked for its status: %s", err)
	case status.code == http.StatusOK:
		x.pass("role", "it answers to %s", uriOf(own.Leaf))
	case status.code == http.StatusUnauthorized, status.code == http.StatusForbidden:
		x.fail("role", SideServer, "use the certificate of a client of this cluster", "it answers %s to %s", status.text, uriOf(own.Leaf))
	default:
		x.fail("role", SideServer, "", "it answers %s", status.text)
	}
}

// answered is what Examine reads of an answer.
type answered struct {
	code       int
	text, date string
}

func (x *Exam) get(ctx context.Context, c *tls.Conn, br *bufio.Reader, path string) (answered, error) {
	if d, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(d); err != nil {
			return answered{}, err
		}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+net.JoinHostPort(x.Host, "443")+path, nil)
	if err != nil {
		return answered{}, err
	}
	if err = r.Write(c); err != nil {
		return answered{}, err
	}
	resp, err := http.ReadResponse(br, r)
	if err != nil {
		return answered{}, err
	}
	defer resp.Body.Close() //nolint:errcheck // the connection is closed anyhow
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, 1<<20))
	return answered{resp.StatusCode, resp.Status, resp.Header.Get("Date")}, err
}

// explainRefusal says why a server breaks off once it has seen this side's
// certificate, from the word that TLS has for it.
func (x *Exam) explainRefusal(err error, own *tls.Certificate, now time.Time) {
	said := err.Error()
	has := func(word string) bool { return strings.Contains(said, word) }
	switch {
	case own == nil && (has("certificate required") || has("bad certificate") || has("handshake failure")):
		x.fail("accepted", SideThis, "give --cert and --key", "it wants a client certificate, and none was shown")
	case own == nil:
		x.fail("accepted", SideServer, "its log says why", "it breaks off after the handshake: %s", said)
	case has("expired certificate"):
		if stateOf(own.Leaf, now) == StateOK || stateOf(own.Leaf, now) == StateDue {
			x.fail("accepted", SideClocks, "compare the clocks of both machines", "by its clock our certificate is not valid; by ours it is, from %s to %s, and it is %s here", stamp(own.Leaf.NotBefore), stamp(own.Leaf.NotAfter), stamp(now))
			return
		}
		x.fail("accepted", SideThis, dateHint(now, []*x509.Certificate{own.Leaf}), "our certificate: %s", dates(now, []*x509.Certificate{own.Leaf}))
	case has("unknown certificate authority"):
		x.fail("accepted", SideServer, "the server's trust bundle needs our root, or our certificate must come from its authority; is our intermediate in our file?",
			"no root in its trust bundle signed our certificate, issued by %q", clip(own.Leaf.Issuer.CommonName))
	case has("bad certificate"), has("unsupported certificate"), has("certificate unknown"), has("revoked certificate"):
		x.fail("accepted", SideThis, "tidal certs lint says what may be wrong with it; the server's log says what is",
			"it refuses our certificate %s (serial %s): another cluster's, revoked, without an identity, or not made for dialling", uriOf(own.Leaf), serialHex(own.Leaf))
	default:
		x.fail("accepted", SideServer, "its log says why", "it breaks off after the handshake: %s", said)
	}
}

func (x *Exam) judgeClock(date string, now time.Time) {
	theirs, err := http.ParseTime(date)
	if err != nil {
		return
	}
	switch d := theirs.Sub(now).Round(time.Second); {
	case d > ClockSkew:
		x.fail("clock", SideClocks, "set the clocks: certificates made by the one may not be valid yet for the other", "its clock is %s ahead of this machine's", d)
	case d < -ClockSkew:
		x.fail("clock", SideClocks, "set the clocks: certificates made by the one may not be valid yet for the other", "its clock is %s behind this machine's", -d)
	default:
		x.pass("clock", "less than %s apart", ClockSkew)
	}
}

package pki

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// Renewal says what Renew renews.
type Renewal struct {
	What  []string      // node/ID, client/NAME and ca, the intermediate; none: whatever is due
	All   bool          // all nodes and clients, due or not
	Rekey bool          // with new private keys
	Life  time.Duration // of the new certificates; 0: 397 days
}

// renewHint is what helps against a certificate that is past its time.
const renewHint = "renew it where it was made: tidal certs renew, then bring the new tls.crt here"

// Due reports whether a certificate should be renewed: less than a third of its
// life is left.
func Due(c *x509.Certificate, now time.Time) bool {
	return c.NotAfter.Sub(now) < c.NotAfter.Sub(c.NotBefore)/3
}

// Renew signs certificates of a directory anew, also those that have expired:
// with the same names and identity, and the same key unless Rekey is set. A key
// that is not there stays where it is. A run that was killed is completed by the
// same run.
func Renew(ctx context.Context, dir string, w Renewal, now time.Time) (Report, error) {
	return renew(ctx, directory{path: dir}, w, now)
}

func renew(ctx context.Context, d directory, w Renewal, now time.Time) (Report, error) {
	cluster, err := clusterOf(d.path, "")
	if err != nil {
		return Report{}, err
	}
	if w.All && len(w.What) > 0 {
		return Report{}, usage("give one of the two", "all certificates are to be renewed, and some are named")
	}
	life, err := leafLifeOf(w.Life)
	if err != nil {
		return Report{}, err
	}
	r := newRun(ctx, d, Plan{Cluster: cluster}, now)
	return r.work(r.prepareRoot, func() error { return r.renewIntermediate(w) }, r.prepareBundle, func() error { return r.renewLeaves(w, life) })
}

// renewIntermediate renews the intermediate if it is named, or due and nothing is
// named. Its key stays: what it signed before is valid as before.
func (r *run) renewIntermediate(w Renewal) error {
	if err := r.prepareIntermediate(); err != nil {
		return err
	}
	named := slices.Contains(w.What, "ca")
	if !named && (len(w.What) > 0 || w.All || !Due(r.ca.inter, r.now)) {
		return nil
	}
	switch {
	case r.ca.rootKey == nil && !named:
		r.report.Notes = append(r.report.Notes, "the intermediate is due, and "+r.dir.join(rootKeyFile)+", which signs it, is not here")
		return nil
	case r.ca.rootKey == nil:
		return badFile(r.dir.join(rootKeyFile), "put it back for this run", "is missing, and it signs the intermediate")
	case r.ca.interKey == nil:
		return badFile(r.dir.join(interKeyFile), "put it back for this run", "is missing, and the intermediate keeps its key")
	}
	c, err := newIntermediate(r.ctx, r.plan.Cluster, r.ca.interKey, &r.ca, r.now)
	if err != nil {
		return err
	}
	r.ca.inter = c
	r.report.Files = slices.DeleteFunc(r.report.Files, func(f Result) bool { return f.Kind == "intermediate" })
	r.made("intermediate", "", interCert, c)
	r.markRenewed()
	return nil
}

// markRenewed says of what was made last that it was there before.
func (r *run) markRenewed() { r.report.Files[len(r.report.Files)-1].State = "renewed" }

func (r *run) renewLeaves(w Renewal, life time.Duration) error {
	all, err := r.dir.leaves()
	if err != nil {
		return err
	}
	for _, what := range w.What {
		if what != "ca" && !slices.ContainsFunc(all, func(o owned) bool { return o.String() == what }) {
			return usage("tidal certs check lists what is there", "there is no certificate of %q in %s: name node/ID, client/NAME or ca", clip(what), r.dir.path)
		}
	}
	for _, o := range all {
		if err := r.renewLeaf(o, w, life); err != nil {
			return err
		}
	}
	return nil
}

// renewLeaf renews a certificate if it is to be.
func (r *run) renewLeaf(o owned, w Renewal, life time.Duration) error {
	certs, err := readCerts(r.dir.join(o.folder() + "/tls.crt"))
	if err != nil {
		return err
	}
	c, keyName := certs[0], o.folder()+"/tls.key"
	key, err := r.key(keyName)
	if err != nil {
		return err
	}
	half := key != nil && !fits(c, key) // a rekey that was killed
	named := w.All || slices.Contains(w.What, o.String())
	if !named && (len(w.What) > 0 || !Due(c, r.now) && !half) {
		r.add(o.kind, o.name, "kept", o.folder()+"/tls.crt", c)
		return nil
	}
	l, err := leafLike(c, o, r.plan.Cluster, r.dir.join(o.folder()+"/tls.crt"))
	if err != nil {
		return err
	}
	l.life = life
	pub, err := r.renewKey(keyName, c, key, half, w.Rekey)
	if err != nil {
		return err
	}
	if r.ca.interKey == nil {
		return badFile(r.dir.join(interKeyFile), "put it back for this run", "is missing, and it signs the certificate of %s", l)
	}
	next, err := r.ca.issue(r.ctx, l, pub, r.now)
	if err != nil {
		return err
	}
	r.made(o.kind, o.name, o.folder()+"/tls.crt", next, r.ca.inter)
	r.markRenewed()
	return nil
}

// renewKey returns the key that the new certificate is for.
func (r *run) renewKey(name string, c *x509.Certificate, key crypto.Signer, half, rekey bool) (crypto.PublicKey, error) {
	switch {
	case half && rekey:
		return key.Public(), nil
	case half:
		return nil, badFile(r.dir.join(name), "tidal certs renew --rekey signs a certificate for this key", "is not the key of the certificate beside it")
	case !rekey:
		return c.PublicKey, nil
	case key == nil:
		return nil, badFile(r.dir.join(name), "on its machine: tidal certs csr with another --dir; here: tidal certs sign --overwrite", "is not here, so it cannot be replaced here")
	}
	next, err := newKey()
	if err != nil {
		return nil, err
	}
	wr, err := writeKey(name, next)
	r.writes = append(r.writes, wr)
	return next.Public(), err
}

// leafLike returns the leaf that a certificate is of: its identity and exactly its
// names.
func leafLike(c *x509.Certificate, o owned, cluster, path string) (leaf, error) {
	id, err := identityOf(c)
	if err != nil {
		return leaf{}, badFile(path, "tidal certs gen --overwrite makes one with an identity", "%s", err)
	}
	if id.Cluster != cluster || o != ownedBy(id) {
		return leaf{}, badFile(path, "put each certificate back into its own folder", "is the certificate of %s, and this is the folder of %s of cluster %s", id, o, cluster)
	}
	l := leaf{id: id}
	for _, d := range c.DNSNames {
		l.names = append(l.names, Name{DNS: d})
	}
	for _, ip := range c.IPAddresses {
		a, ok := netip.AddrFromSlice(ip)
		if !ok {
			return leaf{}, badFile(path, "", "holds an address that is none")
		}
		l.names = append(l.names, Name{IP: a.Unmap()})
	}
	return l, nil
}

// owned is the node or the client that a folder of the directory is for.
type owned struct{ kind, name string }

func (o owned) String() string { return o.kind + "/" + o.name }
func (o owned) folder() string { return o.kind + "s/" + o.name }

// Shared is what the certificate of AnyNode is called, and its folder: no node can
// have that id.
const Shared = "_shared"

func ownedBy(id Identity) owned {
	switch id.Node {
	case "":
		return owned{"client", id.Name}
	case AnyNode:
		return owned{"node", Shared}
	}
	return owned{"node", id.Node}
}

// leaves returns the nodes and clients that have a certificate in the directory.
func (d directory) leaves() ([]owned, error) {
	var all []owned
	for _, kind := range []string{"node", "client"} {
		entries, err := os.ReadDir(d.join(kind + "s"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fileError(d.join(kind+"s"), err)
		}
		for _, e := range entries {
			o := owned{kind, e.Name()}
			there, err := d.exists(o.folder() + "/tls.crt")
			if err != nil {
				return nil, err
			}
			if there && !strings.HasPrefix(e.Name(), ".") {
				all = append(all, o)
			}
		}
	}
	return all, nil
}

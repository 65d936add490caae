package pki

import (
	"bufio"
	"bytes"
	"context"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"slices"
	"time"
)

// The authorities of a directory while one takes the place of another.
const (
	caDir   = "ca"
	nextDir = "ca-next" // that is to sign
	oldDir  = "ca-old"  // that signed, until nobody trusts it any more
)

// Rotation is one authority on the way to take another's place.
type Rotation struct {
	Old, New  string // fingerprints of the roots
	OldIssuer string // fingerprints of what signs, or signed, under each
	NewIssuer string
	oldKey    []byte // key ids of the two
	newKey    []byte
}

// rotating is a run whose directory holds, or gets, two authorities.
type rotating struct {
	*run
	old, next authority
	switched  bool // the new one is in its place, the old one beside it
}

// StartRotation makes a new authority beside the one that signs, for the same
// names, and adds its root to the trust bundle. What is there already stays.
func StartRotation(ctx context.Context, dir string, now time.Time) (Rotation, error) {
	return rotate(ctx, directory{path: dir}, now, (*rotating).start)
}

func (r *rotating) start() error {
	if r.switched {
		return nil // and beyond
	}
	if err := r.prepareNext(); err != nil {
		return err
	}
	return r.trust(r.old.root, r.next.root)
}

// SwitchAuthority puts the new authority into the place of the old one, which is
// kept, and signs anew every certificate that the new one has not signed. Keys
// stay as they are.
func SwitchAuthority(ctx context.Context, dir string, now time.Time) (Rotation, error) {
	return rotate(ctx, directory{path: dir}, now, (*rotating).takeOver)
}

func (r *rotating) takeOver() error {
	if r.next.root == nil {
		return noRotation(r.dir.path)
	}
	if !r.switched {
		if err := r.swap(oldDir, nextDir); err != nil {
			return err
		}
	}
	return r.sign(r.next)
}

// EndTrust takes the old root out of the trust bundle.
func EndTrust(ctx context.Context, dir string, now time.Time) (Rotation, error) {
	return rotate(ctx, directory{path: dir}, now, (*rotating).end)
}

func (r *rotating) end() error {
	if !r.switched {
		return noRotation(r.dir.path)
	}
	return r.trust(r.next.root)
}

// UndoRotation puts the old authority back into its place and signs anew what the
// new one has signed. The trust bundle keeps both roots.
func UndoRotation(ctx context.Context, dir string, now time.Time) (Rotation, error) {
	return rotate(ctx, directory{path: dir}, now, func(r *rotating) error {
		if r.next.root == nil {
			return noRotation(dir)
		}
		if r.switched {
			if err := r.swap(nextDir, oldDir); err != nil {
				return err
			}
		}
		return r.sign(r.old)
	})
}

// EndUndo takes the new root out of the trust bundle.
func EndUndo(ctx context.Context, dir string, now time.Time) (Rotation, error) {
	return rotate(ctx, directory{path: dir}, now, func(r *rotating) error {
		if r.next.root == nil || r.switched {
			return noRotation(dir)
		}
		return r.trust(r.old.root)
	})
}

// RotationIn returns what StartRotation made of a directory; not found is an error
// that wraps fs.ErrNotExist.
func RotationIn(ctx context.Context, dir string, now time.Time) (Rotation, error) {
	return rotate(ctx, directory{path: dir}, now, func(r *rotating) error {
		if r.next.root == nil {
			return noRotation(dir)
		}
		return nil
	})
}

// RetireAuthority gives the authority that lost its place a name of its own, once
// nobody trusts it: ca-retired-FINGERPRINT. It changes nothing if there is none.
func RetireAuthority(dir string) (string, error) {
	d := directory{path: dir}
	held, err := lock(dir)
	if err != nil {
		return "", err
	}
	defer held.Close() //nolint:errcheck // only locked
	for _, from := range []string{oldDir, nextDir} {
		there, err := d.exists(from + "/root.crt")
		if err != nil || !there {
			if err != nil {
				return "", err
			}
			continue
		}
		certs, err := readCerts(d.join(from + "/root.crt"))
		if err != nil {
			return "", err
		}
		to := "ca-retired-" + Fingerprint(certs[0])[:16]
		return d.join(to), d.rename(from, to)
	}
	return "", nil
}

func noRotation(dir string) error {
	return &Error{Kind: KindFiles, Err: fs.ErrNotExist, Message: dir + ": no rotation of the authority is under way here", Hint: "tidal certs rotate begins one; is this the directory in which it began?"}
}

// rotate reads both authorities of a directory, completes a switch that was
// killed, and takes a step.
func rotate(ctx context.Context, d directory, now time.Time, step func(*rotating) error) (Rotation, error) {
	if err := d.completeSwap(); err != nil {
		return Rotation{}, err
	}
	cluster, err := clusterOf(d.path, "")
	if err != nil {
		return Rotation{}, err
	}
	r := &rotating{run: newRun(ctx, d, Plan{Cluster: cluster}, now)}
	_, err = r.work(r.prepareRoot, r.prepareIntermediate, r.readBoth, func() error { return step(r) })
	if err != nil {
		return Rotation{}, err
	}
	return Rotation{
		Old: Fingerprint(r.old.root), New: Fingerprint(r.next.root),
		OldIssuer: Fingerprint(r.old.inter), NewIssuer: Fingerprint(r.next.inter),
		oldKey: r.old.inter.SubjectKeyId, newKey: r.next.inter.SubjectKeyId,
	}, nil
}

// completeSwap completes a swap that ended between its two renames.
func (d directory) completeSwap() error {
	there, err := d.exists(caDir)
	if err != nil || there {
		return err
	}
	old, err1 := d.exists(oldDir)
	next, err2 := d.exists(nextDir)
	if err = errors.Join(err1, err2); err != nil || !old || !next {
		return err
	}
	// Either way is right: what was to be done is decided by who asks.
	return d.rename(nextDir, caDir)
}

func (d directory) rename(from, to string) error {
	if err := os.Rename(d.join(from), d.join(to)); err != nil {
		return fileError(d.join(from), err)
	}
	if err := syncDir(d.path); err != nil {
		return fileError(d.path, err)
	}
	if d.wrote != nil {
		return d.wrote(to)
	}
	return nil
}

// swap puts an authority that stands aside into its place, and the other aside.
func (r *rotating) swap(aside, in string) error {
	if err := r.dir.rename(caDir, aside); err != nil {
		return err
	}
	r.switched = !r.switched
	return r.dir.rename(in, caDir)
}

// readBoth finds out which authority is which.
func (r *rotating) readBoth() error {
	old, err := r.beside(oldDir)
	if err != nil {
		return err
	}
	if old.root != nil {
		r.old, r.next, r.switched = old, r.ca, true
		return nil
	}
	r.old = r.ca
	r.next, err = r.beside(nextDir)
	return err
}

// beside reads an authority that is not in its place; none is no error.
func (r *rotating) beside(folder string) (authority, error) {
	var a authority
	var err error
	if a.root, a.rootKey, err = r.caCert(folder+"/root.crt", folder+"/root.key"); err != nil {
		return a, err
	}
	a.inter, a.interKey, err = r.caCert(folder+"/intermediate.crt", folder+"/intermediate.key")
	return a, err
}

// prepareNext makes what is missing of the authority that is to sign.
func (r *rotating) prepareNext() error {
	var err error
	if r.next.root == nil {
		if r.next.rootKey, err = r.keyOrNew(nextDir + "/root.key"); err != nil {
			return err
		}
		if r.next.root, err = newRoot(r.ctx, r.plan.Cluster, r.next.rootKey, scope{like: r.old.root}, r.now); err != nil {
			return err
		}
		r.made("root", "", nextDir+"/root.crt", r.next.root)
	}
	if r.next.inter != nil {
		return nil
	}
	if r.next.rootKey == nil {
		return badFile(r.dir.join(nextDir+"/root.key"), "delete "+r.dir.join(nextDir)+" and begin again", "is missing, and it signs the intermediate")
	}
	if r.next.interKey, err = r.keyOrNew(nextDir + "/intermediate.key"); err != nil {
		return err
	}
	if r.next.inter, err = newIntermediate(r.ctx, r.plan.Cluster, r.next.interKey, &r.next, r.now); err != nil {
		return err
	}
	r.made("intermediate", "", nextDir+"/intermediate.crt", r.next.inter)
	return nil
}

// trust makes the trust bundle hold, of the two roots, exactly these. Others in it
// stay.
func (r *rotating) trust(roots ...*x509.Certificate) error {
	certs, err := readCerts(r.dir.join(bundleFile))
	if err != nil {
		return err
	}
	want := slices.DeleteFunc(slices.Clone(certs), func(c *x509.Certificate) bool {
		ours := c.Equal(r.old.root) || c.Equal(r.next.root)
		return ours && !slices.ContainsFunc(roots, c.Equal)
	})
	for _, c := range roots {
		if !slices.ContainsFunc(want, c.Equal) {
			want = append(want, c)
		}
	}
	if !slices.EqualFunc(certs, want, (*x509.Certificate).Equal) {
		r.writes = append(r.writes, writeCerts(bundleFile, want...))
	}
	return nil
}

// sign signs every certificate anew that another authority has signed.
func (r *rotating) sign(by authority) error {
	all, err := r.dir.leaves()
	if err != nil {
		return err
	}
	r.ca = by
	for _, o := range all {
		path := r.dir.join(o.folder() + "/tls.crt")
		certs, err := readCerts(path)
		if err != nil {
			return err
		}
		c := certs[0]
		if bytes.Equal(c.AuthorityKeyId, by.inter.SubjectKeyId) {
			continue
		}
		if by.interKey == nil {
			return badFile(r.dir.join(interKeyFile), "put it back for this run", "is missing, and it signs the certificate of %s", o)
		}
		l, err := leafLike(c, o, r.plan.Cluster, path)
		if err != nil {
			return err
		}
		// As long as it would have lived: the other authority must not shorten it.
		l.life = min(max(c.NotAfter.Sub(c.NotBefore)-leafBefore, minLife), interLife)
		next, err := by.issue(r.ctx, l, c.PublicKey, r.now)
		if err != nil {
			return err
		}
		r.made(o.kind, o.name, o.folder()+"/tls.crt", next, by.inter)
		r.markRenewed()
	}
	return nil
}

// OldSerials returns the serial numbers that were signed by the authority that goes:
// the old one, or with undo the new one. It knows all that were ever signed in the
// directory.
func (t Rotation) OldSerials(dir string, undo bool) (map[string]bool, error) { //nolint:revive // which of two, not how
	key := t.oldKey
	if undo {
		key = t.newKey
	}
	path := directory{path: dir}.join(serialsFile)
	f, err := os.Open(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	defer f.Close() //nolint:errcheck // only read
	out := map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var s serialRecord
		// A line that a killed run left unended names nothing that was written.
		if json.Unmarshal(lines.Bytes(), &s) == nil && s.Issuer == hex.EncodeToString(key) {
			out[s.Serial] = true
		}
	}
	return out, lines.Err()
}

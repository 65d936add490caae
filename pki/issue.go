package pki

import (
	"context"
	"net/netip"
	"strings"
	"time"
)

// Scope is what a new authority may sign for, besides identities of its cluster,
// localhost, and loopback and private addresses.
type Scope struct {
	Allow   []string // domains, addresses, and networks as 203.0.113.0/24
	AnyName bool     // every host name and address; Allow is empty then
}

// InitCA makes an authority and its trust bundle, and nothing that it signs. An
// authority of the same cluster that is there stays as it is.
func InitCA(ctx context.Context, dir, cluster string, s Scope, now time.Time) (Report, error) {
	if err := CheckCluster(cluster); err != nil {
		return Report{}, err
	}
	sc, err := s.parse()
	if err != nil {
		return Report{}, err
	}
	if err = makeDir(dir); err != nil {
		return Report{}, err
	}
	r := newRun(ctx, directory{path: dir}, Plan{Cluster: cluster}, now)
	r.scope = sc
	return r.work(r.prepareRoot, r.prepareIntermediate, r.prepareBundle)
}

func (s Scope) parse() (scope, error) {
	if s.AnyName {
		if len(s.Allow) > 0 {
			return scope{}, usage("give one of the two", "an authority for every name and one for some names are asked for")
		}
		return scope{anyName: true}, nil
	}
	var out scope
	for _, a := range s.Allow {
		if p, err := netip.ParsePrefix(a); err == nil {
			out.nets = append(out.nets, p.Masked())
			continue
		}
		n, err := ParseName(a)
		if err != nil {
			return scope{}, err
		}
		l := leaf{}
		if n.DNS == "" {
			l.names = []Name{n}
		} else {
			l.within = []string{strings.TrimPrefix(n.DNS, "*.")}
		}
		out.leaves = append(out.leaves, l)
	}
	return out, nil
}

// Issue makes what is missing of the keys and certificates of the plan's nodes
// and clients, like Gen, but neither an authority nor an admin. The plan's
// cluster may be "": it is the authority's then.
func Issue(ctx context.Context, dir string, p Plan, now time.Time) (Report, error) {
	var err error
	if p.Cluster, err = clusterOf(dir, p.Cluster); err != nil {
		return Report{}, err
	}
	if n := len(p.Nodes) + len(p.Clients); n == 0 || n > maxNodes {
		return Report{}, usage("", "%d certificates are asked for, and 1 to %d can be made at once", n, maxNodes)
	}
	leaves, err := p.leaves()
	if err != nil {
		return Report{}, err
	}
	r := newRun(ctx, directory{path: dir}, p, now)
	r.leaves = leaves
	return r.work(r.prepareRoot, r.prepareIntermediate, r.prepareBundle, r.prepareLeaves)
}

// clusterOf returns the cluster whose authority a directory holds; another than
// the one asked for, unless that is "", is refused.
func clusterOf(dir, asked string) (string, error) {
	d := directory{path: dir}
	there, err := d.exists(rootCert)
	if err != nil {
		return "", err
	}
	if !there {
		return "", badFile(d.join(rootCert), "tidal certs ca init makes an authority, and tidal certs gen one with all that nodes need", "there is no authority")
	}
	certs, err := readCerts(d.join(rootCert))
	if err != nil {
		return "", err
	}
	cluster := strings.Join(certs[0].PermittedURIDomains, ", ")
	if asked != "" && asked != cluster {
		return "", &Error{
			Kind: KindRefused, Hint: "give that cluster's name, or another --dir",
			Message: d.join(rootCert) + " is the authority of cluster " + cluster + ", and certificates of cluster " + asked + " are asked for",
		}
	}
	return cluster, nil
}

package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"tidal/node/api"
)

// KeyError is one thing that is wrong with a configuration.
type KeyError struct {
	Key  string // its name, or the place in the file
	Text string
	Hint string
}

// Error returns "KEY: TEXT (HINT)".
func (p *KeyError) Error() string {
	s := p.Key + ": " + p.Text
	if p.Hint != "" {
		s += " (" + p.Hint + ")"
	}
	return s
}

// Validate returns nil for a configuration that a node can start with, else
// every *KeyError, joined.
func (c Config) Validate() error {
	v := &validator{c: c}
	v.node()
	v.disk()
	v.members()
	v.joins()
	v.addresses()
	v.tls()
	return errors.Join(v.problems...)
}

type validator struct {
	c        Config
	problems []error
}

func (v *validator) add(key, hint, format string, args ...any) {
	v.problems = append(v.problems, &KeyError{Key: key, Text: fmt.Sprintf(format, args...), Hint: hint})
}

// word checks a value that has the form of a node id.
func (v *validator) word(key, value, hint string) {
	if value == "" {
		v.add(key, hint, "it is missing")
	} else if api.CheckNode(value) != nil {
		v.add(key, hint, "%q is not of the form [a-z0-9][a-z0-9-]{0,%d}", value, api.MaxNode-1)
	}
}

func (v *validator) node() {
	n := v.c.Node
	v.word("node.id", n.ID, "a short name that this node keeps, as a or db-1")
	v.word("cluster.name", v.c.Cluster.Name, "the name given to `tidal certs gen --cluster`")
	if strings.HasSuffix(v.c.Cluster.Name, "-") {
		v.add("cluster.name", "as prod-1", "%q ends in a hyphen, which certificates cannot carry", v.c.Cluster.Name)
	}
	if n.Data == "" {
		v.add("node.data", "a directory of its own, as /var/lib/tidal", "it is missing")
	}
	if n.Zone != "" {
		v.word("node.zone", n.Zone, "as z1")
	}
	if err := checkListen(n.Listen); err != nil {
		v.add("node.listen", fmt.Sprintf("as 0.0.0.0:%d or [::]:%d", DefaultPort, DefaultPort), "%q %v", n.Listen, err)
	}
}

func (v *validator) disk() {
	d := v.c.Disk
	for _, x := range []struct{ key, value string }{{"disk.ballast", d.Ballast}, {"disk.reserve", d.Reserve}} {
		if _, err := sizeOf(x.value, 0); err != nil {
			v.add(x.key, "as auto, 512MiB or 2GiB", "%v", err)
		}
	}
}

func (v *validator) members() {
	const key = "cluster.members"
	members := v.c.Cluster.Members
	switch n := len(members); {
	case n < MinMembers && len(v.c.Cluster.Join) > 0:
		return
	case n < MinMembers:
		v.add(key, "list the founding nodes, or use --single for a cluster of this node alone, or cluster.join for one that runs", "it is missing")
		return
	case n > MaxMembers:
		v.add(key, "found the cluster with 3 or 5 and add the others later", "%d nodes are listed: at most %d found a cluster", n, MaxMembers)
	}
	if _, ok := members[v.c.Node.ID]; !ok && v.c.Node.ID != "" && len(v.c.Cluster.Join) == 0 {
		v.add(key, "every founding node lists them all, itself included", "this node, %q, is not listed", v.c.Node.ID)
	}
	by := map[string]string{}
	for _, id := range slices.Sorted(maps.Keys(members)) {
		if api.CheckNode(id) != nil {
			v.add(key, "as a or db-1", "node id %q is not of the form [a-z0-9][a-z0-9-]{0,%d}", id, api.MaxNode-1)
		}
		address := HostPort(members[id])
		if other, twice := by[address]; twice {
			v.add(key, "each node has an address of its own", "%s and %s have the same address %s", other, id, members[id])
		}
		by[address] = id
	}
}

// joins checks where a node that joins a cluster asks.
func (v *validator) joins() {
	urls := v.c.Cluster.Join
	for i, address := range urls {
		v.url("cluster.join", "", address)
		if slices.Contains(urls[:i], address) {
			v.add("cluster.join", "one address for each of some members", "%s is named twice", address)
		}
		if own := v.c.Node.Advertise; own != "" && HostPort(address) == HostPort(own) {
			v.add("cluster.join", "name other nodes, which are members already", "%s is this node's own address", address)
		}
	}
	if len(urls) > 0 && v.c.Node.Advertise == "" {
		v.add("node.advertise", "the URL under which the members reach this node", "it is missing, and cluster.join is set")
	}
}

// addresses checks the URLs under which nodes are reached.
func (v *validator) addresses() {
	for _, id := range slices.Sorted(maps.Keys(v.c.Cluster.Members)) {
		v.url("cluster.members", id+" = ", v.c.Cluster.Members[id])
	}
	own := v.c.Node.Advertise
	if own == "" || own == v.c.Cluster.Members[v.c.Node.ID] {
		return
	}
	v.url("node.advertise", "", own)
	for _, id := range slices.Sorted(maps.Keys(v.c.Cluster.Members)) {
		if id != v.c.Node.ID && HostPort(own) == HostPort(v.c.Cluster.Members[id]) {
			v.add("node.advertise", "give the address of this node", "%s is the address of member %s", own, id)
		}
	}
}

func (v *validator) url(key, label, value string) {
	if err := v.c.checkURL(value); err != nil {
		v.add(key, fmt.Sprintf("as %s://node-a:%d", v.c.Scheme(), DefaultPort), "%s%q %v", label, value, err)
	}
}

func (v *validator) tls() {
	t := v.c.TLS
	if !v.c.Plaintext() {
		for _, f := range []struct{ key, value string }{{"tls.ca", t.CA}, {"tls.cert", t.Cert}, {"tls.key", t.Key}} {
			if f.value == "" {
				v.add(f.key, "[tls] needs ca, cert and key, as `tidal certs gen` makes them", "it is missing")
			}
		}
		return
	}
	if reason := v.whyTLS(); reason != "" {
		v.add("tls", "make certificates with `tidal certs gen` and name them in [tls]; plaintext is for trying out on http://127.0.0.1",
			"it is missing, and %s", reason)
	}
}

// whyTLS returns what keeps a node without [tls] from starting in plaintext.
func (v *validator) whyTLS() string {
	if listen := v.c.Node.Listen; checkListen(listen) == nil && !loopback(listen) {
		return fmt.Sprintf("node.listen = %q is open to other machines", listen)
	}
	urls := maps.Clone(v.c.Cluster.Members)
	if urls == nil {
		urls = map[string]string{}
	}
	for i, address := range v.c.Cluster.Join {
		urls[fmt.Sprintf("cluster.join[%d]", i)] = address
	}
	if v.c.Node.Advertise != "" {
		urls["node.advertise"] = v.c.Node.Advertise
	}
	for _, of := range slices.Sorted(maps.Keys(urls)) {
		switch address := urls[of]; {
		case strings.HasPrefix(address, "https://"):
			return fmt.Sprintf("%s = %q is https", of, address)
		case v.c.checkURL(address) == nil && !loopback(address):
			return fmt.Sprintf("%s = %q is not on loopback", of, address)
		}
	}
	return ""
}

// checkListen says what is wrong with an address to listen on.
func checkListen(address string) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return errors.New("is not of the form HOST:PORT")
	}
	if err := checkPort(port); err != nil {
		return err
	}
	if host == "" {
		return nil
	}
	return checkHost(host)
}

// checkURL says what is wrong with an address under which others reach a node.
func (c Config) checkURL(value string) error {
	u, err := url.Parse(value)
	switch {
	case err != nil:
		return errors.New("is not a URL")
	case u.Scheme == "" || u.Host == "":
		return fmt.Errorf("is not of the form %s://HOST:PORT", c.Scheme())
	case u.Scheme != "https" && (u.Scheme != "http" || !c.Plaintext()):
		return errors.New("is not https")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Path != "":
		return errors.New("has more than scheme, host and port")
	case u.Port() == "":
		return errors.New("has no port")
	}
	if err := checkPort(u.Port()); err != nil {
		return err
	}
	if strings.Contains(u.Host, "%") || strings.Contains(u.Hostname(), "%") {
		return errors.New("has an IPv6 zone, which means nothing on another machine")
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && ip.Unmap().IsUnspecified() {
		return errors.New("is no address that others could dial")
	}
	return checkHost(u.Hostname())
}

func checkPort(port string) error {
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("has port %q: want 1 to 65535", port)
	}
	return nil
}

// checkHost accepts IP addresses and DNS names.
func checkHost(host string) error {
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	if len(host) > 253 {
		return errors.New("has a host name of more than 253 bytes")
	}
	numeric := true
	for label := range strings.SplitSeq(strings.TrimSuffix(host, "."), ".") {
		if label == "" || len(label) > 63 || strings.Trim(label, hostBytes) != "" || label[0] == '-' || label[len(label)-1] == '-' {
			return fmt.Errorf("has host %q, which is neither a DNS name nor an IP address", host)
		}
		numeric = numeric && strings.Trim(label, "0123456789") == ""
	}
	if numeric {
		// 10.0.0.256 would be looked up in the DNS and never found.
		return fmt.Errorf("has host %q, which is no IP address", host)
	}
	return nil
}

const hostBytes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"

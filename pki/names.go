package pki

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
)

// Name is one host name or address in a certificate.
type Name struct {
	DNS  string     // lower case, without a trailing dot; "" for an address
	IP   netip.Addr // never an IPv4 address in IPv6 form; invalid for a DNS name
	Note string     // what was changed, or may not work everywhere; "" if nothing
}

// String returns the name as certificates show it.
func (n Name) String() string {
	if n.DNS != "" {
		return n.DNS
	}
	return n.IP.String()
}

func (n Name) same(o Name) bool { return o.DNS == n.DNS && o.IP == n.IP }

// ParseName reads a host name, a wildcard name or an IP address. What a peer
// could never match (a port, a zone, a network, a wildcard that is not the whole
// first label) is an error of KindUsage with a hint; a prefix DNS: or IP: and the
// brackets of an IPv6 address may stand around it.
func ParseName(s string) (Name, error) {
	bare := s
	if kind, rest, ok := strings.Cut(s, ":"); ok {
		switch strings.ToLower(kind) {
		case "dns", "ip":
			bare = rest
		case "uri", "email", "http", "https":
			return Name{}, usage("give the host alone, as in node-a.example.com", "name %q is a %s, not a host name or an IP address", clip(s), strings.ToUpper(kind))
		}
	}
	if err := checkShape(s, bare); err != nil {
		return Name{}, err
	}
	if in, ok := strings.CutPrefix(bare, "["); ok {
		if in, ok = strings.CutSuffix(in, "]"); ok && strings.Contains(in, ":") {
			bare = in
		}
	}
	if ip, err := netip.ParseAddr(bare); err == nil {
		return addressName(s, ip)
	}
	if err := checkNotAddress(s, bare); err != nil {
		return Name{}, err
	}
	return hostName(s, bare)
}

// checkShape refuses what is neither a host name nor an address at first sight.
func checkShape(s, bare string) error {
	switch {
	case bare == "":
		return usage("name a host, as in node-a.example.com or 10.0.0.1", "name %q is empty", clip(s))
	case strings.ContainsFunc(bare, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return usage("remove the blank", "name %q holds a blank or a control character", clip(s))
	case strings.ContainsFunc(bare, func(r rune) bool { return r > 0x7f }):
		return usage("give its ASCII form, which begins with xn--", "name %q is not ASCII", clip(s))
	case strings.Contains(bare, "%"):
		return usage("give the address that other machines use", "name %q has a zone, which means something on one machine only", clip(s))
	}
	return nil
}

func addressName(s string, ip netip.Addr) (Name, error) {
	n := Name{IP: ip.Unmap()}
	if ip.Is4In6() {
		n.Note = fmt.Sprintf("%s is written as %s", s, n.IP)
	}
	switch {
	case n.IP.IsUnspecified():
		return Name{}, usage("give the address that other machines dial", "name %q is every address of a machine, and no certificate matches that", clip(s))
	case n.IP.IsMulticast():
		return Name{}, usage("give the address of one machine", "name %q is a multicast address", clip(s))
	case n.IP.Is6() && n.IP.IsLinkLocalUnicast():
		return Name{}, usage("give an address that needs no zone", "name %q is a link-local address, which is only reached with a zone, and no certificate matches that", clip(s))
	}
	return n, nil
}

// checkNotAddress refuses what was meant as an address or a network and is not
// one, and an address or name with a port.
func checkNotAddress(s, bare string) error {
	if _, err := netip.ParsePrefix(bare); err == nil {
		return usage("name each address", "name %q is a network, and certificates name single addresses", clip(s))
	}
	if host, port, err := net.SplitHostPort(bare); err == nil && host != "" {
		return usage(fmt.Sprintf("give %s alone", clip(host)), "name %q has a port (%s), and certificates are for all ports of a name", clip(s), clip(port))
	}
	if strings.ContainsAny(bare, ":[]") {
		return usage("an IPv6 address looks like 2001:db8::1", "name %q is neither a host name nor an IP address", clip(s))
	}
	labels := strings.Split(strings.TrimSuffix(bare, "."), ".")
	last := labels[len(labels)-1]
	if strings.Trim(last, "0123456789") == "" && last != "" {
		return usage("an IPv4 address has four numbers without leading zeros, as in 10.0.0.1",
			"name %q looks like an IPv4 address and is none", clip(s))
	}
	return nil
}

func hostName(s, bare string) (Name, error) {
	n := Name{DNS: strings.ToLower(strings.TrimSuffix(bare, "."))}
	switch {
	case strings.HasSuffix(bare, "."):
		n.Note = s + " is written without the dot at its end"
	case strings.Contains(bare, "_"):
		n.Note = s + " has an underscore, which some clients refuse in host names"
	}
	if len(n.DNS) > 253 {
		return Name{}, usage("", "name %q has %d bytes, and a host name has at most 253", clip(s), len(n.DNS))
	}
	labels := strings.Split(n.DNS, ".")
	if labels[0] == "*" {
		if len(labels) < 3 || slices.Contains(labels[1:], "*") {
			return Name{}, usage("a wildcard stands once, in front of at least two labels, as in *.tidal.example.com",
				"name %q has a wildcard that not every client matches", clip(s))
		}
		labels = labels[1:]
	}
	for _, l := range labels {
		if err := checkLabel(s, l); err != nil {
			return Name{}, err
		}
	}
	return n, nil
}

func checkLabel(s, l string) error {
	switch {
	case l == "":
		return usage("remove the dot", "name %q has an empty label", clip(s))
	case strings.Contains(l, "*"):
		return usage("a wildcard is the whole first label, as in *.tidal.example.com", "name %q has a wildcard inside or behind a label", clip(s))
	case len(l) > 63:
		return usage("", "name %q has a label of %d bytes, and the limit is 63", clip(s), len(l))
	case l[0] == '-' || l[len(l)-1] == '-':
		return usage("", "name %q has a label that begins or ends with a hyphen", clip(s))
	}
	for i := range len(l) {
		if !wordOK("0"+l[i:i+1], 2, "-_") {
			return usage("host names have letters, digits, hyphens and dots", "name %q holds the character %q", clip(s), l[i])
		}
	}
	return nil
}

// parseNames reads names and drops those that repeat an earlier one.
func parseNames(in []string) ([]Name, error) {
	var out []Name
	for _, s := range in {
		n, err := ParseName(s)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(out, n.same) {
			out = append(out, n)
		}
	}
	return out, nil
}

// StatefulSet describes the pods of one in Kubernetes.
type StatefulSet struct {
	Name      string // of the set; its pods are NAME-0, NAME-1, …
	Service   string // the headless service that gives the pods their names
	Namespace string
	Domain    string // the cluster's domain; "" is cluster.local
	Nodes     int    // how many pods get a certificate
}

// Expand returns a node per pod. Its host names are wildcards for every pod in
// the three forms that pods dial, and the service's own names, so that a pod
// added later is named already; its identity is that pod's alone.
func (s StatefulSet) Expand() ([]Node, error) {
	domain := s.Domain
	if domain == "" {
		domain = "cluster.local"
	}
	for _, l := range [][2]string{{"statefulset", s.Name}, {"service", s.Service}, {"namespace", s.Namespace}} {
		if !wordOK(l[1], 63, "-") || strings.HasSuffix(l[1], "-") {
			return nil, usage("use the name that Kubernetes has for it", "%s %q is not a name of Kubernetes: lower-case letters, digits and hyphens", l[0], clip(l[1]))
		}
	}
	if d, err := ParseName(domain); err != nil || d.DNS == "" || strings.Contains(d.DNS, "*") {
		return nil, usage("it is cluster.local unless the cluster was set up with another", "cluster domain %q is not a domain", clip(domain))
	}
	if s.Nodes < 1 || s.Nodes > maxNodes {
		return nil, usage("give the number of pods with --nodes", "the number of nodes is %d, and 1 to %d can be made at once", s.Nodes, maxNodes)
	}
	short := s.Service + "." + s.Namespace
	var names []string
	for _, form := range []string{short + ".svc." + domain, short + ".svc", short} {
		names = append(names, "*."+form, form)
	}
	names = append(names, s.Service)
	within := []string{s.Namespace + ".svc." + domain, s.Namespace + ".svc", short, s.Service}
	var nodes []Node
	for i := range s.Nodes {
		nodes = append(nodes, Node{ID: fmt.Sprintf("%s-%d", s.Name, i), Names: names, Within: within})
	}
	return nodes, nil
}

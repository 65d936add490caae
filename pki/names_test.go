package pki_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"tidal/pki"
)

func TestParseName(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, tt := range []struct {
		in   string
		want string // the name, or "" for an error
		say  string // part of the note or of the error
	}{
		{"node-a", "node-a", ""},
		{"node-a.example.com", "node-a.example.com", ""},
		{"TIDAL-0.Example.Com", "tidal-0.example.com", ""},
		{"a.example.com.", "a.example.com", "without the dot"},
		{"under_score.x", "under_score.x", "underscore"},
		{"xn--mnchen-3ya.example", "xn--mnchen-3ya.example", ""},
		{"*.peers.ns", "*.peers.ns", ""},
		{"*.peers.ns.svc.cluster.local", "*.peers.ns.svc.cluster.local", ""},
		{"dns:a.b", "a.b", ""},
		{"DNS:A.b", "a.b", ""},
		{"IP:1.2.3.4", "1.2.3.4", ""},
		{"10.0.0.1", "10.0.0.1", ""},
		{"::1", "::1", ""},
		{"[::1]", "::1", ""},
		{"0:0:0:0:0:0:0:1", "::1", ""},
		{"2001:DB8::1", "2001:db8::1", ""},
		{"::ffff:127.0.0.1", "127.0.0.1", "written as 127.0.0.1"},
		{"1and1.example", "1and1.example", ""},

		{"localhost:8080", "", "has a port"},
		{"10.0.0.1:5000", "", "has a port"},
		{"[::1]:8433", "", "has a port"},
		{"https://node-a:8433", "", "not a host name"},
		{"spiffe:x", "", "has a port"},
		{"uri:spiffe://a/b", "", "not a host name"},
		{"a/b", "", "character"},
		{"fe80::1%eth0", "", "zone"},
		{"fe80::1", "", "link-local"},
		{"0.0.0.0", "", "every address"},
		{"::", "", "every address"},
		{"224.0.0.1", "", "multicast"},
		{"10.0.0", "", "looks like an IPv4 address"},
		{"010.0.0.1", "", "looks like an IPv4 address"},
		{"1.2.3.256", "", "looks like an IPv4 address"},
		{"10.0.0.0/8", "", "is a network"},
		{"fd00::/8", "", "is a network"},
		{":::1", "", "neither"},
		{"[a]", "", "neither"},
		{"*.*.x", "", "wildcard"},
		{"a*.x.y", "", "wildcard"},
		{"a.*.x", "", "wildcard"},
		{"*", "", "wildcard"},
		{"*.", "", "wildcard"},
		{"*.com", "", "wildcard"},
		{"*.a.*.b", "", "wildcard"},
		{"münchen.example", "", "not ASCII"},
		{"", "", "empty"},
		{"dns:", "", "empty"},
		{".", "", "empty label"},
		{" a.b ", "", "blank"},
		{"a\nb", "", "blank"},
		{"a..b", "", "empty label"},
		{"-a.b", "", "hyphen"},
		{"a-.b", "", "hyphen"},
		{"a,b", "", "character"},
		{"a@b", "", "character"},
		{"a\x00b", "", "control"},
		{long + ".x", "", "63"},
		{strings.Repeat("a.", 127) + "b", "", "253"},
	} {
		n, err := pki.ParseName(tt.in)
		if tt.want != "" {
			if err != nil || n.String() != tt.want || !strings.Contains(n.Note, tt.say) || (tt.say == "") != (n.Note == "") {
				t.Errorf("ParseName(%q) = %q, note %q, %v; want %q, note with %q", tt.in, n, n.Note, err, tt.want, tt.say)
			}
			continue
		}
		var e *pki.Error
		if !errors.As(err, &e) || e.Kind != pki.KindUsage || !strings.Contains(e.Message, tt.say) {
			t.Errorf("ParseName(%q) = %q, %v; want a usage error with %q", tt.in, n, err, tt.say)
		}
	}
}

func TestExpand(t *testing.T) {
	nodes, err := pki.StatefulSet{Name: "tidal", Service: "tidal-peers", Namespace: "tidal-cluster", Nodes: 2}.Expand()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"*.tidal-peers.tidal-cluster.svc.cluster.local", "tidal-peers.tidal-cluster.svc.cluster.local",
		"*.tidal-peers.tidal-cluster.svc", "tidal-peers.tidal-cluster.svc",
		"*.tidal-peers.tidal-cluster", "tidal-peers.tidal-cluster", "tidal-peers",
	}
	if len(nodes) != 2 || nodes[1].ID != "tidal-1" || !slices.Equal(nodes[1].Names, want) {
		t.Errorf("Expand gives %+v, want names %v", nodes, want)
	}
	for _, bad := range []pki.StatefulSet{
		{Name: "tidal", Service: "s", Namespace: "n"},
		{Name: "tidal", Service: "s", Namespace: "n", Nodes: 100000},
		{Name: "Tidal", Service: "s", Namespace: "n", Nodes: 1},
		{Name: "tidal", Service: "", Namespace: "n", Nodes: 1},
		{Name: "tidal", Service: "s", Namespace: "n.m", Nodes: 1},
		{Name: "tidal", Service: "s", Namespace: "n", Nodes: 1, Domain: "*.x.y"},
		{Name: "tidal", Service: "s", Namespace: "n", Nodes: 1, Domain: "10.0.0.1"},
	} {
		if _, err := bad.Expand(); err == nil {
			t.Errorf("Expand of %+v gives no error", bad)
		}
	}
}

func TestParseIdentity(t *testing.T) {
	for _, s := range []string{"spiffe://prod/node/a", "spiffe://prod/node/*", "spiffe://prod-1/role/admin/ops.team", "spiffe://p/role/reader/x"} {
		id, err := pki.ParseIdentity(s)
		if err != nil || id.String() != s {
			t.Errorf("ParseIdentity(%q) = %q, %v", s, id, err)
		}
	}
	for _, s := range []string{
		"", "spiffe://prod", "spiffe://prod/node", "spiffe://prod/node/", "spiffe://prod/node/a/", "spiffe://prod/node/a/b",
		"spiffe://prod/node/A", "spiffe://prod/node/%61", "spiffe://prod/node/**", "spiffe://prod/node/a*", "spiffe://*/node/*", "spiffe://prod/role/*/x", "spiffe:///node/a", "spiffe://prod:1/node/a",
		"spiffe://u@prod/node/a", "spiffe://prod/node/a?x", "spiffe://prod/node/a#x", "SPIFFE://prod/node/a", "https://prod/node/a",
		"spiffe://prod/role/root/x", "spiffe://prod/role/admin", "spiffe://prod/role/admin/", "spiffe://prod/role//x",
		"spiffe://prod/node/" + strings.Repeat("a", 33), "spiffe://prod/node/..", "spiffe://Prod/node/a", "spiffe://prod-/node/a",
		"spiffe://prod/role/Admin/x", "spiffe://prod/client/admin/x",
	} {
		if id, err := pki.ParseIdentity(s); err == nil {
			t.Errorf("ParseIdentity(%q) = %+v, want an error", s, id)
		}
	}
}

// A name that is accepted is printed in a form that is accepted as the same.
func FuzzParseName(f *testing.F) {
	for _, s := range []string{"a.b", "*.a.b", "[::1]", "::ffff:1.2.3.4", "dns:x", "10.0.0.0/8", "a:1", "xn--a", "fe80::1%e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := pki.ParseName(s)
		if err != nil {
			return
		}
		again, err := pki.ParseName(n.String())
		if err != nil || again.DNS != n.DNS || again.IP != n.IP {
			t.Errorf("ParseName(%q) = %q, and that = %q, %v", s, n, again, err)
		}
		if n.IP.IsValid() == (n.DNS != "") {
			t.Errorf("ParseName(%q) is both or neither: %+v", s, n)
		}
	})
}

func FuzzParseIdentity(f *testing.F) {
	f.Add("spiffe://prod/node/a")
	f.Add("spiffe://prod/role/admin/x")
	f.Fuzz(func(t *testing.T, s string) {
		if id, err := pki.ParseIdentity(s); err == nil && id.String() != s {
			t.Errorf("ParseIdentity(%q) prints as %q", s, id)
		}
	})
}

package config_test

import (
	"errors"
	"strings"
	"testing"

	"tidal/node/config"
)

// valid returns a configuration without a problem.
func valid() config.Config {
	return config.Config{
		Node: config.Node{ID: "a", Data: "/data", Listen: "0.0.0.0:8433", Advertise: "https://10.0.0.1:8433"},
		Cluster: config.Cluster{Name: "prod", Members: map[string]string{
			"a": "https://node-a:8433", "b": "https://node-b:8433", "c": "https://node-c:8433",
		}},
		TLS: config.TLS{CA: "/ca", Cert: "/cert", Key: "/key"},
	}
}

// plain returns a plaintext configuration without a problem.
func plain() config.Config {
	return config.Config{
		Node:    config.Node{ID: "a", Data: "/data", Listen: "127.0.0.1:8433", Advertise: "http://[::1]:8433"},
		Cluster: config.Cluster{Name: "try", Members: map[string]string{"a": "http://localhost:8433", "b": "http://127.0.0.2:8433"}},
	}
}

func TestValidate(t *testing.T) {
	t.Parallel()
	member := func(url string) func(*config.Config) {
		return func(c *config.Config) { c.Cluster.Members["b"] = url }
	}
	listen := func(address string) func(*config.Config) {
		return func(c *config.Config) { c.Node.Listen = address }
	}
	join := func(urls ...string) func(*config.Config) {
		return func(c *config.Config) { c.Cluster.Join = urls }
	}
	tests := []struct {
		name string
		from func() config.Config
		with func(*config.Config)
		want string // "" for no problem
	}{
		{"valid", valid, func(*config.Config) {}, ""},
		{"plain", plain, func(*config.Config) {}, ""},
		{"no id", valid, func(c *config.Config) { c.Node.ID = "" }, "node.id: it is missing"},
		{"bad id", valid, func(c *config.Config) { c.Node.ID = "A" }, `node.id: "A" is not of the form`},
		{"long id", valid, func(c *config.Config) { c.Node.ID = strings.Repeat("a", 33) }, "is not of the form"},
		{"no data", valid, func(c *config.Config) { c.Node.Data = "" }, "node.data: it is missing"},
		{"bad zone", valid, func(c *config.Config) { c.Node.Zone = "z_1" }, "node.zone: "},
		{"disk in words", valid, func(c *config.Config) { c.Disk.Reserve = "some" }, `disk.reserve: "some" is not a size (as auto, 512MiB or 2GiB)`},
		{"disk", valid, func(c *config.Config) { c.Disk = config.Disk{Ballast: "0", Reserve: "1GiB"} }, ""},
		{"no name", valid, func(c *config.Config) { c.Cluster.Name = "" }, "cluster.name: it is missing"},
		{"name with hyphen", valid, func(c *config.Config) { c.Cluster.Name = "prod-" }, "ends in a hyphen"},

		{"listen on all", valid, listen(":8433"), ""},
		{"listen on v6", valid, listen("[::]:8433"), ""},
		{"listen on a zone", valid, listen("[fe80::1%eth0]:8433"), ""},
		{"listen without port", valid, listen("0.0.0.0"), "node.listen: \"0.0.0.0\" is not of the form HOST:PORT"},
		{"listen on a bare v6", valid, listen("::1:8433"), "is not of the form HOST:PORT"},
		{"listen on port 0", valid, listen("0.0.0.0:0"), `has port "0"`},
		{"listen on port 65536", valid, listen("0.0.0.0:65536"), `has port "65536"`},
		{"listen on a URL", valid, listen("https://0.0.0.0:8433"), "node.listen"},

		{"no members", valid, func(c *config.Config) { c.Cluster.Members = nil }, "cluster.members: it is missing (list the founding nodes, or use --single"},
		{"six members", valid, func(c *config.Config) {
			for _, id := range []string{"d", "e", "f"} {
				c.Cluster.Members[id] = "https://" + id + ":8433"
			}
		}, "6 nodes are listed: at most 5"},
		{"not among them", valid, func(c *config.Config) { c.Node.ID = "z" }, `this node, "z", is not listed`},
		{"member id", valid, func(c *config.Config) { c.Cluster.Members["B"] = "https://x:8433" }, `node id "B" is not`},
		{"same address", valid, member("https://node-a:8433"), "a and b have the same address"},
		{"advertises another", valid, func(c *config.Config) { c.Node.Advertise = "https://node-b:8433" }, "node.advertise: https://node-b:8433 is the address of member b"},

		{"joins", valid, join("https://10.0.0.7:8433"), ""},
		{"joins, no member", valid, func(c *config.Config) {
			c.Node.ID, c.Cluster.Members, c.Cluster.Join = "z", nil, []string{"https://node-a:8433"}
		}, ""},
		{"joins, not among the members", valid, func(c *config.Config) { c.Node.ID, c.Cluster.Join = "z", []string{"https://node-a:8433"} }, ""},
		{"joins without an address", valid, func(c *config.Config) {
			c.Cluster.Members, c.Cluster.Join, c.Node.Advertise = nil, []string{"https://node-a:8433"}, ""
		}, "node.advertise: it is missing, and cluster.join is set"},
		{"joins nothing", valid, join(""), "cluster.join: "},
		{"joins itself", valid, join("https://10.0.0.1:8433"), "cluster.join: https://10.0.0.1:8433 is this node's own address"},
		{"joins twice", valid, join("https://node-b:8433", "https://node-b:8433"), "cluster.join: https://node-b:8433 is named twice"},
		{"plain and joins away", plain, join("http://10.0.0.2:8433"), `tls: it is missing, and cluster.join[0] = "http://10.0.0.2:8433" is not on loopback`},

		{"v6 member", valid, member("https://[2001:db8::2]:8433"), ""},
		{"trailing dot", valid, member("https://node-b.:8433"), ""},
		{"bare v6 member", valid, member("https://2001:db8::2:8433"), "is not a URL"},
		{"member without scheme", valid, member("node-b:8433"), "cluster.members: b = \"node-b:8433\" is not of the form https://HOST:PORT"},
		{"member without port", valid, member("https://node-b"), "has no port"},
		{"member with empty port", valid, member("https://node-b:"), "has no port"},
		{"member with path", valid, member("https://node-b:8433/"), "has more than scheme, host and port"},
		{"member with user", valid, member("https://me@node-b:8433"), "has more than"},
		{"member with query", valid, member("https://node-b:8433?"), "has more than"},
		{"member over ftp", valid, member("ftp://node-b:8433"), "is not https"},
		{"plain member with tls", valid, member("http://node-b:8433"), "is not https"},
		{"member with zone", valid, member("https://[fe80::1%25eth0]:8433"), "has an IPv6 zone"},
		{"member everywhere", valid, member("https://0.0.0.0:8433"), "is no address that others could dial"},
		{"member everywhere v6", valid, member("https://[::]:8433"), "is no address that others could dial"},
		{"member mapped", valid, member("https://[::ffff:0.0.0.0]:8433"), "is no address that others could dial"},
		{"member no address", valid, member("https://10.0.0.256:8433"), "is no IP address"},
		{"member with space", valid, member("https://node b:8433"), "is not a URL"},
		{"member with bang", valid, member("https://node!b:8433"), "neither a DNS name nor an IP address"},
		{"member with hyphen", valid, member("https://-b:8433"), "neither a DNS name nor an IP address"},
		{"advertise everywhere", valid, func(c *config.Config) { c.Node.Advertise = "https://0.0.0.0:8433" }, "node.advertise: "},

		{"half of tls", valid, func(c *config.Config) { c.TLS.Key = "" }, "tls.key: it is missing"},
		{"plain and open", plain, listen("0.0.0.0:8433"), `tls: it is missing, and node.listen = "0.0.0.0:8433" is open`},
		{"plain and all", plain, listen(":8433"), "tls: it is missing"},
		{"plain member away", plain, member("http://10.0.0.2:8433"), `tls: it is missing, and b = "http://10.0.0.2:8433" is not on loopback`},
		{"plain member by name", plain, member("http://localhost.evil.example:8433"), "is not on loopback"},
		{"plain advertise away", plain, func(c *config.Config) { c.Node.Advertise = "http://10.0.0.1:8433" }, "node.advertise = "},
		{"https without tls", plain, member("https://127.0.0.2:8433"), "is https"},
		{"mapped loopback", plain, listen("[::ffff:127.0.0.1]:8433"), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := tt.from()
			tt.with(&c)
			err := c.Validate()
			if tt.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got  %v\nwant …%s…", err, tt.want)
			}
			if p, ok := errors.AsType[*config.KeyError](err); !ok || p.Hint == "" {
				t.Errorf("no problem with a hint in %v", err)
			}
		})
	}
}

func TestValidateReportsAll(t *testing.T) {
	t.Parallel()
	err := config.Config{}.Validate()
	for _, key := range []string{"node.id", "node.data", "node.listen", "cluster.name", "cluster.members"} {
		if err == nil || !strings.Contains(err.Error(), key+": ") {
			t.Errorf("%s is not among the problems: %v", key, err)
		}
	}
}

func TestHostPort(t *testing.T) {
	t.Parallel()
	if got := config.HostPort("https://[2001:db8::2]:8433"); got != "[2001:db8::2]:8433" {
		t.Errorf("got %q", got)
	}
}

func TestNearest(t *testing.T) {
	t.Parallel()
	known := []string{"serve", "status", "tables", "rows", "version"}
	for name, want := range map[string]string{
		"sevre": "serve", "stauts": "status", "table": "tables", "row": "rows",
		"versin": "version", "kubernetes": "", "x": "", "": "",
	} {
		if got := config.Nearest(name, known); got != want {
			t.Errorf("nearest to %q is %q, want %q", name, got, want)
		}
	}
}

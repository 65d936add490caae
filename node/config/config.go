package config

import (
	"net"
	"net/netip"
	"net/url"
	"strings"
)

// Config is a node's configuration. One that Load returned has its paths made
// absolute and Node.Advertise filled in.
type Config struct {
	Node    Node    `toml:"node"`
	Disk    Disk    `toml:"disk"`
	Cluster Cluster `toml:"cluster"`
	TLS     TLS     `toml:"tls"`
}

// Node says which node this is and where it lives.
type Node struct {
	ID        string `toml:"id"`        // of the form that api.CheckNode wants
	Data      string `toml:"data"`      // directory
	Listen    string `toml:"listen"`    // HOST:PORT
	Advertise string `toml:"advertise"` // URL under which peers and clients reach this node
	Zone      string `toml:"zone"`      // failure domain, may be empty
}

// Disk says how much of the file system of the data directory the node leaves
// free: sizes as ParseSize reads them, or Auto.
type Disk struct {
	Ballast string `toml:"ballast"` // held by a file that goes when nothing else is left
	Reserve string `toml:"reserve"` // below it the node takes no more rows
}

// Cluster says what the node belongs to.
type Cluster struct {
	Name    string            `toml:"name"`    // as certificates carry it
	Join    []string          `toml:"join"`    // members of a running cluster, to be admitted to it: URLs
	Members map[string]string `toml:"members"` // the founding nodes: id to URL
}

// TLS names the files of the node's identity; all empty for plaintext.
type TLS struct {
	CA   string `toml:"ca"`   // bundle of certificates to trust
	Cert string `toml:"cert"` // chain of the node's certificate
	Key  string `toml:"key"`  // its private key
}

// Limits of the founding list: all founders are voters of the meta group.
const (
	MinMembers = 1
	MaxMembers = 5
)

// DefaultPort is the port of everything: clients, peers, health and metrics.
const DefaultPort = 8433

// Default returns the configuration before anything is said.
func Default() Config {
	return Config{Node: Node{Listen: "127.0.0.1:8433"}, Disk: Disk{Ballast: Auto, Reserve: Auto}}
}

// Plaintext reports whether the node speaks without TLS, which Validate allows
// on loopback only.
func (c Config) Plaintext() bool { return c.TLS == TLS{} }

// Scheme returns the scheme of the cluster's URLs: http without TLS, else https.
func (c Config) Scheme() string {
	if c.Plaintext() {
		return "http"
	}
	return "https"
}

// HostPort returns the address to dial for a URL that Validate accepts.
func HostPort(address string) string {
	_, hostPort, _ := strings.Cut(address, "://")
	return hostPort
}

// loopback reports whether the address HOST:PORT, or a URL with it, can be met on
// this machine only.
func loopback(address string) bool {
	if u, err := url.Parse(address); err == nil && u.Host != "" {
		address = u.Host
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

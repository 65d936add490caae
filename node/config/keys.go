package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Key is one thing that can be configured.
type Key struct {
	Name string // as in the file: "node.id"
	Form string // of the value, for help: "ID", "DIR"
	Doc  string // one line

	text func(*Config) *string           // the field, unless it is
	list func(*Config) map[string]string // a list of ID=URL
	urls func(*Config) *[]string         // a list of URLs
	path bool                            // relative to what names it
}

// Env returns the key's environment variable: "TIDAL_NODE_ID".
func (k Key) Env() string {
	return "TIDAL_" + strings.ToUpper(strings.ReplaceAll(k.Name, ".", "_"))
}

// Flag returns the key's flag without dashes: "node-id".
func (k Key) Flag() string { return strings.ReplaceAll(k.Name, ".", "-") }

// Keys returns every key in the order of the file.
func Keys() []Key {
	return []Key{
		{
			Name: "node.id", Form: "ID", Doc: "name of this node in the cluster, for ever: [a-z0-9][a-z0-9-]{0,31}",
			text: func(c *Config) *string { return &c.Node.ID },
		},
		{
			Name: "node.data", Form: "DIR", Doc: "directory of this node's data; one node a directory", path: true,
			text: func(c *Config) *string { return &c.Node.Data },
		},
		{
			Name: "node.listen", Form: "HOST:PORT", Doc: "address to listen on for clients and peers",
			text: func(c *Config) *string { return &c.Node.Listen },
		},
		{
			Name: "node.advertise", Form: "URL", Doc: "address under which others reach this node; its entry in the member list by default",
			text: func(c *Config) *string { return &c.Node.Advertise },
		},
		{
			Name: "node.zone", Form: "ZONE", Doc: "failure domain of this node, of the same form as an id",
			text: func(c *Config) *string { return &c.Node.Zone },
		},
		{
			Name: "disk.ballast", Form: "SIZE", Doc: "space that a file holds for when no other is left, or auto: 1 %, at most 1GiB",
			text: func(c *Config) *string { return &c.Disk.Ballast },
		},
		{
			Name: "disk.reserve", Form: "SIZE", Doc: "free space below which the node takes no more rows, or auto: 5 %, at most 2GiB",
			text: func(c *Config) *string { return &c.Disk.Reserve },
		},
		{
			Name: "cluster.name", Form: "NAME", Doc: "name of the cluster, as its certificates carry it",
			text: func(c *Config) *string { return &c.Cluster.Name },
		},
		{
			Name: "cluster.join", Form: "URL,…", Doc: "members of a running cluster that is to admit this node, whose disk is empty",
			urls: func(c *Config) *[]string { return &c.Cluster.Join },
		},
		{
			Name: "cluster.members", Form: "ID=URL,…", Doc: "the nodes that found the cluster, this one among them; the same on all",
			list: func(c *Config) map[string]string { return c.Cluster.Members },
		},
		{
			Name: "tls.ca", Form: "FILE", Doc: "certificates to trust", path: true,
			text: func(c *Config) *string { return &c.TLS.CA },
		},
		{
			Name: "tls.cert", Form: "FILE", Doc: "this node's certificate and its chain", path: true,
			text: func(c *Config) *string { return &c.TLS.Cert },
		},
		{
			Name: "tls.key", Form: "FILE", Doc: "private key of the certificate", path: true,
			text: func(c *Config) *string { return &c.TLS.Key },
		},
	}
}

// Value returns the key's value in c as the environment would have it.
func (k Key) Value(c Config) string {
	if k.text != nil {
		return *k.text(&c)
	}
	if k.urls != nil {
		return strings.Join(*k.urls(&c), ",")
	}
	list := k.list(&c)
	parts := make([]string, 0, len(list))
	for _, id := range slices.Sorted(maps.Keys(list)) {
		parts = append(parts, id+"="+list[id])
	}
	return strings.Join(parts, ",")
}

// set gives the key the value text, which a flag or the environment holds.
func (k Key) set(c *Config, text string) error {
	if k.text != nil {
		*k.text(c) = text
		return nil
	}
	if k.urls != nil {
		var urls []string
		for url := range strings.SplitSeq(text, ",") {
			urls = append(urls, strings.TrimSpace(url))
		}
		*k.urls(c) = urls
		return nil
	}
	list := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		id, url, ok := strings.Cut(part, "=")
		id = strings.TrimSpace(id)
		if !ok || id == "" {
			return &KeyError{Key: k.Name, Text: fmt.Sprintf("%q is not of the form ID=URL", part), Hint: "as in a=https://node-a:8433,b=https://node-b:8433"}
		}
		if _, twice := list[id]; twice {
			return &KeyError{Key: k.Name, Text: fmt.Sprintf("node %q is listed twice", id)}
		}
		list[id] = strings.TrimSpace(url)
	}
	c.Cluster.Members = list
	return nil
}

package pki

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Secret says which certificates ExportSecret writes, and under which name.
type Secret struct {
	Name      string // of the secret
	Namespace string // "": the one that kubectl is set to
	Node      string // one node's, or
	Client    string // one client's; none of the two: all nodes'
}

// ExportSecret returns a Kubernetes secret in YAML. Of one node or client it is of
// the type kubernetes.io/tls, with ca.crt; of all nodes it is Opaque, with
// bundle.crt and ID.crt and ID.key for each. It holds private keys.
func ExportSecret(dir string, s Secret) ([]byte, error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	d := directory{path: dir}
	all, err := d.leaves()
	if err != nil {
		return nil, err
	}
	var kind string
	var data [][2]string // field and file
	if s.Node != "" || s.Client != "" {
		kind = "kubernetes.io/tls"
		data, err = s.one(d, all)
	} else {
		kind = "Opaque"
		data, err = s.nodes(d, all)
	}
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Secret\nmetadata:\n  name: %s\n", s.Name)
	if s.Namespace != "" {
		fmt.Fprintf(&b, "  namespace: %s\n", s.Namespace)
	}
	fmt.Fprintf(&b, "type: %s\ndata:\n", kind)
	for _, f := range data {
		text, err := d.exportable(f[1])
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "  %s: %s\n", f[0], base64.StdEncoding.EncodeToString(text))
	}
	return []byte(b.String()), nil
}

func (s Secret) check() error {
	if s.Node != "" && s.Client != "" {
		return usage("give one of the two", "a secret of a node and one of a client are asked for")
	}
	for _, w := range [][2]string{{"secret", s.Name}, {"namespace", s.Namespace}} {
		if w[1] == "" && w[0] == "namespace" {
			continue
		}
		if !wordOK(w[1], 253, "-.") || strings.HasSuffix(w[1], "-") {
			return usage("use lower-case letters, digits and hyphens", "%s %q is not a name of Kubernetes", w[0], clip(w[1]))
		}
	}
	return nil
}

// one returns the fields of a secret of one node or client.
func (s Secret) one(d directory, all []owned) ([][2]string, error) {
	o := owned{"node", s.Node}
	if s.Node == "" {
		o = owned{"client", s.Client}
	}
	if !slices.Contains(all, o) {
		return nil, usage("tidal certs check lists what is there; name one node or one client", "there is no certificate of %s in %s", o, d.path)
	}
	return [][2]string{{"tls.crt", o.folder() + "/tls.crt"}, {"tls.key", o.folder() + "/tls.key"}, {"ca.crt", bundleFile}}, nil
}

// nodes returns the fields of a secret of all nodes.
func (s Secret) nodes(d directory, all []owned) ([][2]string, error) {
	data := [][2]string{{"bundle.crt", bundleFile}}
	for _, o := range all {
		if o.kind == "node" {
			data = append(data, [2]string{o.name + ".crt", o.folder() + "/tls.crt"}, [2]string{o.name + ".key", o.folder() + "/tls.key"})
		}
	}
	if len(data) == 1 {
		return nil, badFile(d.path, "tidal certs gen makes them", "holds no node's certificate")
	}
	return data, nil
}

// exportable returns a file once it is known to be what it should.
func (d directory) exportable(name string) ([]byte, error) {
	path := d.join(name)
	there, err := d.exists(name)
	if err == nil && !there {
		err = badFile(path, "export it on the machine that has its key, with --node or --client", "is not here")
	}
	if err != nil {
		return nil, err
	}
	if strings.HasSuffix(name, ".key") {
		_, err = readKey(path)
	} else {
		_, err = readPEM(path, func(string, fs.FileInfo) error { return nil })
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fileError(path, err)
	}
	return text, nil
}

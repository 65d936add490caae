package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/urfave/cli/v2"

	"tidal/node/client"
	"tidal/node/config"
	"tidal/pki"
	"tidal/roll"
	"tidal/roll/generic"
)

// contexts is the operator's file: the clusters that this user works with.
type contexts struct {
	Version  int                       `toml:"version"`
	Current  string                    `toml:"current"`
	Clusters map[string]clusterContext `toml:"clusters"`
}

// clusterContext is how to reach one cluster, and as whom. Paths are relative to
// the file.
type clusterContext struct {
	Endpoints []string `toml:"endpoints"`
	CA        string   `toml:"ca"`
	Cert      string   `toml:"cert"`
	Key       string   `toml:"key"`

	Roll rollDefaults `toml:"roll"`

	generic.Settings // of a cluster that is not tidal
}

// certsLook is how often a command that runs for long looks for new certificates.
const certsLook = 5 * time.Second

// exampleContexts is where to see what the operator's file looks like.
const exampleContexts = "docs/configuration.md has an example"

// contextsVersion is the format of the file that this program reads and writes.
const contextsVersion = 1

// target is the cluster that a command talks to.
type target struct {
	name string // of the context, "" when flags say it all
	clusterContext
}

// String names the target as commands that change something announce it.
func (t target) String() string {
	at := strings.Join(t.Endpoints, ", ")
	if t.Kind == roll.KindGeneric {
		return fmt.Sprintf("%s (%s: %s)", t.name, t.Kind, strings.Join(slices.Sorted(maps.Keys(t.Nodes)), ", "))
	}
	if t.name == "" {
		return at
	}
	return fmt.Sprintf("%s (%s)", t.name, at)
}

// connectFlags are the flags of every command that talks to a cluster.
func connectFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "cluster", Usage: "context of the cluster to talk to", DefaultText: "TIDAL_CLUSTER, or the file's current one"},
		&cli.StringSliceFlag{Name: "endpoint", Usage: "URL of a node, instead of a context (may be repeated)"},
		&cli.StringFlag{Name: "ca", Usage: "file of certificates to trust, with --endpoint"},
		&cli.StringFlag{Name: "cert", Usage: "file of the client certificate, with --endpoint"},
		&cli.StringFlag{Name: "key", Usage: "file of the client certificate's key, with --endpoint"},
	}
}

// target returns the cluster that the command line, the environment and the
// operator's file name, in this order.
func (a *app) target(c *cli.Context) (target, error) {
	direct := clusterContext{Endpoints: c.StringSlice("endpoint"), CA: c.String("ca"), Cert: c.String("cert"), Key: c.String("key")}
	if len(direct.Endpoints) > 0 {
		if c.IsSet("cluster") {
			return target{}, usagef("--cluster and --endpoint name two places to talk to")
		}
		return target{clusterContext: direct}, nil
	}
	if c.IsSet("ca") || c.IsSet("cert") || c.IsSet("key") {
		return target{}, withHint(usagef("--ca, --cert and --key go with --endpoint"), "name a node with --endpoint https://HOST:8433")
	}
	path, err := a.contextsPath()
	if err != nil {
		return target{}, err
	}
	file, err := readContexts(path)
	if err != nil {
		return target{}, err
	}
	name := c.String("cluster")
	if name == "" {
		name, _ = a.env("TIDAL_CLUSTER")
	}
	if name == "" {
		name = file.Current
	}
	if name == "" {
		return target{}, withHint(usagef("no cluster to talk to"),
			fmt.Sprintf("use --endpoint URL, or --cluster with a name from %s; `tidal dev` makes one", path))
	}
	known, ok := file.Clusters[name]
	if !ok {
		return target{}, withHint(usagef("%s has no cluster %q", path, name), knownClusters(name, file))
	}
	return target{name: name, clusterContext: known}, known.checkKind(name, path)
}

func knownClusters(name string, file contexts) string {
	known := slices.Sorted(maps.Keys(file.Clusters))
	if near := config.Nearest(name, known); near != "" {
		return "did you mean " + near + "?"
	}
	if len(known) == 0 {
		return "no cluster is named there yet: `tidal dev` makes one, and --endpoint URL needs none"
	}
	return "it has " + strings.Join(known, ", ")
}

// contextsPath returns where the operator's file is, or would be.
func (a *app) contextsPath() (string, error) {
	if path, ok := a.env("TIDAL_CONFIG"); ok && path != "" {
		return path, nil
	}
	home, ok := a.env("HOME")
	if !ok || home == "" {
		return "", withHint(withCode(exitConfig, errors.New("there is no home directory to look for contexts in")),
			"set TIDAL_CONFIG to a file, or use --endpoint")
	}
	return filepath.Join(home, ".config", "tidal", "config.toml"), nil
}

// readContexts reads the operator's file; one that is not there is empty.
func readContexts(path string) (contexts, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return contexts{Version: contextsVersion}, nil
	}
	if err != nil {
		return contexts{}, withHint(withCode(exitConfig, fmt.Errorf("read the contexts: %w", err)), "TIDAL_CONFIG names another file")
	}
	file, err := parseContexts(text)
	if err != nil {
		return contexts{}, withHint(withCode(exitConfig, fmt.Errorf("%s:%w", path, err)), "this is the operator's file: "+exampleContexts)
	}
	for name, c := range file.Clusters {
		for _, p := range []*string{&c.CA, &c.Cert, &c.Key} {
			if *p != "" && !filepath.IsAbs(*p) {
				*p = filepath.Join(filepath.Dir(path), *p)
			}
		}
		file.Clusters[name] = c
	}
	return file, nil
}

// parseContexts decodes the operator's file. Its errors begin with line and
// column.
func parseContexts(text []byte) (contexts, error) {
	var file contexts
	text = bytes.TrimPrefix(text, []byte(byteOrderMark))
	if !utf8.Valid(text) {
		return file, errors.New("1:1: the file is not UTF-8")
	}
	err := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields().Decode(&file)
	if err != nil {
		return file, contextsError(err)
	}
	if file.Version != contextsVersion {
		return file, fmt.Errorf("1:1: version is %d: this program knows %d", file.Version, contextsVersion)
	}
	return file, nil
}

// files returns where the target's certificates are.
func (t target) files() pki.Files {
	return pki.Files{CA: t.CA, Cert: t.Cert, Key: t.Key}
}

// connect returns a client for the cluster that the command is to talk to. It
// does not dial yet. The caller closes it.
func (a *app) connect(c *cli.Context) (*client.Client, error) {
	t, err := a.target(c)
	if err != nil {
		return nil, err
	}
	return t.connect()
}

// connectToChange is connect for a command that changes something: it says first
// which cluster that is.
func (a *app) connectToChange(c *cli.Context) (*client.Client, error) {
	t, err := a.target(c)
	if err != nil {
		return nil, err
	}
	cl, err := t.connect()
	if err == nil {
		a.say("cluster %s", t)
	}
	return cl, err
}

func (t target) connect() (*client.Client, error) { return t.connectWith(client.Options{}) }

// connectWith is connect with options that are not about the target.
func (t target) connectWith(o client.Options) (*client.Client, error) {
	if t.Kind == roll.KindGeneric {
		return nil, withHint(usagef("cluster %s is not of tidal: its kind is %s", t.name, t.Kind), "tidal roll can restart its nodes: docs/rolling.md")
	}
	o.Endpoints = t.Endpoints
	if t.files() != (pki.Files{}) {
		pair, err := pki.LoadClient(t.files(), time.Now())
		if err != nil {
			return nil, err
		}
		o.TLS, o.Renewed = pair.ClientTLS(certsLook), func() uint64 { return pair.Renewed(certsLook) }
	}
	cl, err := client.New(o)
	if err != nil && t.name != "" {
		return nil, withHint(withCode(exitConfig, fmt.Errorf("cluster %s: %w", t.name, err)), "its endpoints are in the operator's file: "+exampleContexts)
	}
	return cl, withCode(exitUsage, err)
}

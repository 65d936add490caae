package main

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/pki"
)

func (a *app) certsGenCommand() *cli.Command {
	return &cli.Command{
		Name:  "gen",
		Usage: "make what is missing: an authority, one certificate for each node, and an admin's",
		UsageText: "tidal certs gen --dir DIR --cluster NAME --node ID[=NAME-OR-IP,…] [--node …]\n" +
			"tidal certs gen --dir DIR --cluster NAME --statefulset S --service SVC --namespace NS --nodes N",
		Description: "What is there stays as it is: running it again changes nothing, and with more nodes adds theirs.\n" +
			"A node's certificate is also valid for localhost, 127.0.0.1 and ::1.",
		Flags:  certsGenFlags(),
		Action: a.certsGen,
	}
}

func certsGenFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "dir", Usage: "`DIR` for the certificates; made if missing"},
		&cli.StringFlag{Name: "cluster", Usage: "`NAME` of the cluster, as in the nodes' configuration"},
		&cli.StringSliceFlag{Name: "node", Usage: "a node's id and the names and addresses by which it is dialled, `ID[=NAME-OR-IP,…]`; repeat it"},
		&cli.StringSliceFlag{Name: "name", Usage: "a `NAME-OR-IP` for which every node's certificate is valid, such as a load balancer's; repeat it"},
		&cli.StringSliceFlag{Name: "client", Usage: "another client's certificate, `NAME=ROLE`, with role reader, writer or admin; repeat it"},
		&cli.StringFlag{Name: "statefulset", Usage: "make certificates for the pods of this StatefulSet `S` instead of --node"},
		&cli.StringFlag{Name: "service", Usage: "its headless service `SVC`"},
		&cli.StringFlag{Name: "namespace", Usage: "its namespace `NS`"},
		&cli.StringFlag{Name: "cluster-domain", Usage: "the Kubernetes cluster's `DOMAIN`", Value: "cluster.local"},
		&cli.IntFlag{Name: "nodes", Usage: "how many of its pods get a certificate, `N`"},
		&cli.BoolFlag{Name: "shared-leaf", Usage: "make one certificate for all nodes, instead of one for each: whoever has its key can be each of them"},
		&cli.BoolFlag{Name: "overwrite", Usage: "make new keys and certificates for the nodes and clients named; the authority stays"},
		lifeFlag(),
		outputFlag(),
	}
}

func (a *app) certsGen(c *cli.Context) error {
	if _, err := argsOf(c); err != nil {
		return err
	}
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	for _, name := range []string{"dir", "cluster"} {
		if c.String(name) == "" {
			return withHint(usagef("certs gen: --%s is missing", name), "tidal certs gen --dir certs --cluster prod --node a=node-a.example.com --node b=… --node c=…")
		}
	}
	plan, err := certsPlan(c)
	if err != nil {
		return err
	}
	report, err := pki.Gen(c.Context, c.String("dir"), plan, time.Now())
	if err != nil {
		return err
	}
	if err := a.printCerts(report, format); err != nil || format == formatJSON {
		return err
	}
	a.say("next: %s", certsNext(c, report))
	return nil
}

func certsPlan(c *cli.Context) (pki.Plan, error) {
	life, err := lifeOf(c)
	if err != nil {
		return pki.Plan{}, err
	}
	plan := pki.Plan{Cluster: c.String("cluster"), Overwrite: c.Bool("overwrite"), Life: life, SharedLeaf: c.Bool("shared-leaf")}
	switch set := c.String("statefulset"); {
	case set != "" && len(c.StringSlice("node")) > 0:
		return plan, usagef("certs gen: --node and --statefulset exclude each other")
	case set != "":
		plan.Nodes, err = pki.StatefulSet{
			Name: set, Service: c.String("service"), Namespace: c.String("namespace"),
			Domain: c.String("cluster-domain"), Nodes: c.Int("nodes"),
		}.Expand()
	default:
		for _, name := range []string{"service", "namespace", "cluster-domain", "nodes"} {
			if c.IsSet(name) {
				return plan, withHint(usagef("certs gen: --%s is for pods, and no --statefulset is given", name), "name nodes with --node, or the StatefulSet with --statefulset")
			}
		}
		plan.Nodes, err = certsNodes(c.StringSlice("node"))
	}
	if err != nil {
		return plan, err
	}
	for i := range plan.Nodes {
		plan.Nodes[i].Names = append(slices.Clone(plan.Nodes[i].Names), c.StringSlice("name")...)
	}
	plan.Clients, err = certsClients(c.StringSlice("client"))
	return plan, err
}

// certsClients reads clients of the form NAME=ROLE.
func certsClients(words []string) ([]pki.Client, error) {
	var clients []pki.Client
	for _, s := range words {
		name, role, ok := strings.Cut(s, "=")
		if !ok {
			return nil, withHint(usagef("client %s has no role", s), "write it as "+s+"=writer; the roles are "+strings.Join(pki.Roles(), ", "))
		}
		clients = append(clients, pki.Client{Name: name, Role: role})
	}
	return clients, nil
}

// certsNodes reads nodes of the form ID[=NAME-OR-IP,…].
func certsNodes(flags []string) ([]pki.Node, error) {
	var nodes []pki.Node
	for _, s := range flags {
		id, names, ok := strings.Cut(s, "=")
		n := pki.Node{ID: id}
		if ok {
			if names == "" {
				return nil, withHint(usagef("node %s names nothing behind the =", s), "write "+id+"=NAME-OR-IP, or "+id+" for this machine alone")
			}
			n.Names = strings.Split(names, ",")
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

// certsNext is what to do with the certificates.
func certsNext(c *cli.Context, r pki.Report) string {
	if c.String("statefulset") != "" {
		args := []string{"kubectl", "-n", c.String("namespace"), "create", "secret", "generic", c.String("statefulset") + "-tls", "--from-file=" + filepath.Join(r.Dir, "bundle.crt")}
		for _, f := range r.Files {
			if f.Kind == "node" {
				dir, name := filepath.Dir(f.Path), f.Name
				if name == pki.Shared {
					name = "tls"
				}
				args = append(args, fmt.Sprintf("--from-file=%s.crt=%s", name, f.Path), fmt.Sprintf("--from-file=%s.key=%s", name, filepath.Join(dir, "tls.key")))
			}
		}
		return strings.Join(args, " ")
	}
	for _, f := range r.Files {
		files := pki.NodeFiles(r.Dir, f.Name)
		switch {
		case f.Kind == "node" && f.Name == pki.Shared:
			return fmt.Sprintf("take bundle.crt and nodes/%s/tls.* to each node, then: tidal serve --config tidal.toml --tls-ca %s --tls-cert %s --tls-key %s", f.Name, files.CA, files.Cert, files.Key)
		case f.Kind == "node":
			return fmt.Sprintf("take bundle.crt and nodes/ID/tls.* to each node, then for node %s: tidal serve --config tidal.toml --tls-ca %s --tls-cert %s --tls-key %s", f.Name, files.CA, files.Cert, files.Key)
		}
	}
	return "tidal serve --config tidal.toml"
}

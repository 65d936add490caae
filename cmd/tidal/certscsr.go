package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"tidal/pki"
)

func (a *app) certsCSRCommand() *cli.Command {
	return &cli.Command{
		Name:      "csr",
		Usage:     "make a private key here and a request to certify it, for tidal certs sign elsewhere",
		UsageText: "tidal certs csr --dir DIR --cluster NAME (--node ID[=NAME-OR-IP,…] | --client NAME=ROLE)",
		Description: "The key stays on this machine. Take the request to where the authority is, and bring the certificate and\n" +
			"the trust bundle back. A key that is there is kept.",
		Flags: append(requestFlags(),
			&cli.StringFlag{Name: "cluster", Usage: "`NAME` of the cluster, as in the nodes' configuration"},
			&cli.BoolFlag{Name: "overwrite", Usage: "make a new request in place of the one that is there; the key stays"},
			outputFlag(),
		),
		Action: a.certsCSR,
	}
}

// requestFlags name the one node or client that a request is for.
func requestFlags() []cli.Flag {
	return []cli.Flag{
		dirFlag(),
		&cli.StringSliceFlag{Name: "node", Usage: "the node's id, and the names and addresses by which it is dialled, `ID[=NAME-OR-IP,…]`"},
		&cli.StringSliceFlag{Name: "client", Usage: "the client's name and role, `NAME=ROLE`"},
	}
}

// requestPlan reads the flags of requestFlags.
func requestPlan(c *cli.Context) (plan pki.Plan, err error) {
	plan.Cluster, plan.Overwrite = c.String("cluster"), c.Bool("overwrite")
	if plan.Nodes, err = certsNodes(c.StringSlice("node")); err != nil {
		return plan, err
	}
	plan.Clients, err = certsClients(c.StringSlice("client"))
	return plan, err
}

func (a *app) certsCSR(c *cli.Context) error {
	if _, err := argsOf(c); err != nil {
		return err
	}
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	dir, err := dirOf(c)
	if err != nil {
		return err
	}
	plan, err := requestPlan(c)
	if err != nil {
		return err
	}
	if plan.Cluster == "" {
		return withHint(usagef("certs csr: --cluster is missing"), "tidal certs csr --dir certs --cluster prod --node a=node-a.example.com")
	}
	r, err := pki.MakeRequest(c.Context, dir, plan, time.Now())
	if err != nil {
		return err
	}
	if err = a.printCerts(r, format); err == nil && format != formatJSON {
		a.say("next: where the authority is, tidal certs sign %s --dir certs with the same --node or --client", r.Files[0].Path)
	}
	return err
}

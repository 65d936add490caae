package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"tidal/pki"
)

func (a *app) certsIssueCommand() *cli.Command {
	flags := func() []cli.Flag {
		return []cli.Flag{
			dirFlag(),
			&cli.BoolFlag{Name: "overwrite", Usage: "make new keys and certificates for those named"},
			lifeFlag(), outputFlag(),
		}
	}
	name := &cli.StringSliceFlag{Name: "name", Usage: "a `NAME-OR-IP` for which every one of them is valid, such as a load balancer's; repeat it"}
	return &cli.Command{
		Name:  "issue",
		Usage: "make keys and certificates under an authority that is there",
		Subcommands: []*cli.Command{
			{
				Name:      "node",
				Usage:     "for nodes: an id, and the names and addresses by which it is dialled",
				UsageText: "tidal certs issue node ID[=NAME-OR-IP,…] … --dir DIR",
				Flags:     append(flags(), name),
				Action:    a.certsIssueNode,
			},
			{
				Name:      "client",
				Usage:     "for clients: a name and its role, reader, writer or admin",
				UsageText: "tidal certs issue client NAME=ROLE … --dir DIR",
				Flags:     flags(),
				Action:    a.certsIssueClient,
			},
		},
	}
}

func (a *app) certsIssueNode(c *cli.Context) error {
	nodes, err := certsNodes(c.Args().Slice())
	if err != nil {
		return err
	}
	for i := range nodes {
		nodes[i].Names = append(nodes[i].Names, c.StringSlice("name")...)
	}
	return a.certsIssue(c, pki.Plan{Nodes: nodes})
}

func (a *app) certsIssueClient(c *cli.Context) error {
	clients, err := certsClients(c.Args().Slice())
	if err != nil {
		return err
	}
	return a.certsIssue(c, pki.Plan{Clients: clients})
}

func (a *app) certsIssue(c *cli.Context, plan pki.Plan) error {
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	dir, err := dirOf(c)
	if err != nil {
		return err
	}
	if len(plan.Nodes)+len(plan.Clients) == 0 {
		return withHint(usagef("%s: nobody is named", c.Command.HelpName), "usage: "+c.Command.UsageText)
	}
	if plan.Life, err = lifeOf(c); err != nil {
		return err
	}
	plan.Overwrite = c.Bool("overwrite")
	r, err := pki.Issue(c.Context, dir, plan, time.Now())
	if err != nil {
		return err
	}
	return a.printCerts(r, format)
}

package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"tidal/pki"
)

func (a *app) certsCACommand() *cli.Command {
	return &cli.Command{
		Name:  "ca",
		Usage: "make an authority alone",
		Subcommands: []*cli.Command{{
			Name:      "init",
			Usage:     "make an authority and its trust bundle, and no certificates under it",
			UsageText: "tidal certs ca init --dir DIR --cluster NAME [--allow DOMAIN-OR-NETWORK …]",
			Description: "The authority may sign for identities of the cluster, localhost, loopback and private addresses, and for\n" +
				"what --allow names. An authority that is there stays as it is.",
			Flags: []cli.Flag{
				dirFlag(),
				&cli.StringFlag{Name: "cluster", Usage: "`NAME` of the cluster, as in the nodes' configuration"},
				&cli.StringSliceFlag{Name: "allow", Usage: "a domain with all names below it, an address or a network, `DOMAIN-OR-NETWORK`, that it may sign for; repeat it"},
				&cli.BoolFlag{Name: "any-name", Usage: "it may sign for every host name and address"},
				outputFlag(),
			},
			Action: a.certsCAInit,
		}},
	}
}

func (a *app) certsCAInit(c *cli.Context) error {
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
	if c.String("cluster") == "" {
		return withHint(usagef("certs ca init: --cluster is missing"), "tidal certs ca init --dir certs --cluster prod --allow example.com")
	}
	r, err := pki.InitCA(c.Context, dir, c.String("cluster"), pki.Scope{Allow: c.StringSlice("allow"), AnyName: c.Bool("any-name")}, time.Now())
	if err != nil {
		return err
	}
	if err = a.printCerts(r, format); err == nil && format != formatJSON {
		a.say("next: tidal certs issue node a=node-a.example.com --dir %s", dir)
	}
	return err
}

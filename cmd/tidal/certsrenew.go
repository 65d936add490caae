package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"tidal/pki"
)

func (a *app) certsRenewCommand() *cli.Command {
	return &cli.Command{
		Name:      "renew",
		Usage:     "sign certificates anew that are due or named, with the same names",
		UsageText: "tidal certs renew [node/ID | client/NAME | ca …] --dir DIR [--all] [--rekey]",
		Description: "Due is what has less than a third of its life left, or has expired. The private key stays unless --rekey is\n" +
			"given; it need not be here. Running nodes take the new files without a restart. ca is the intermediate.",
		Flags: []cli.Flag{
			dirFlag(),
			&cli.BoolFlag{Name: "all", Usage: "renew the certificates of all nodes and clients, due or not"},
			&cli.BoolFlag{Name: "rekey", Usage: "make new private keys too"},
			lifeFlag(), outputFlag(),
		},
		Action: a.certsRenew,
	}
}

func (a *app) certsRenew(c *cli.Context) error {
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	dir, err := dirOf(c)
	if err != nil {
		return err
	}
	life, err := lifeOf(c)
	if err != nil {
		return err
	}
	r, err := pki.Renew(c.Context, dir, pki.Renewal{What: c.Args().Slice(), All: c.Bool("all"), Rekey: c.Bool("rekey"), Life: life}, time.Now())
	if err != nil {
		return err
	}
	return a.printCerts(r, format)
}

package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"tidal/pki"
)

func (a *app) certsSignCommand() *cli.Command {
	return &cli.Command{
		Name:      "sign",
		Usage:     "sign a request that was made where the key is",
		UsageText: "tidal certs sign FILE.csr --dir DIR (--node ID[=NAME-OR-IP,…] | --client NAME=ROLE)",
		Description: "Who it is signed for is said here, not by the request. Its names are checked; if --node lists some, it gets no\n" +
			"others. Whatever else it asks for it does not get.",
		Flags: append(requestFlags(),
			&cli.BoolFlag{Name: "overwrite", Usage: "put the new certificate in place of the one that is there"},
			lifeFlag(), outputFlag(),
		),
		Action: a.certsSign,
	}
}

func (a *app) certsSign(c *cli.Context) error {
	args, err := argsOf(c, "FILE.csr")
	if err != nil {
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
	if plan.Life, err = lifeOf(c); err != nil {
		return err
	}
	r, err := pki.SignRequest(c.Context, dir, args[0], plan, time.Now())
	if err != nil {
		return err
	}
	if err = a.printCerts(r, format); err == nil && format != formatJSON {
		last := r.Files[len(r.Files)-1]
		a.say("next: take %s and bundle.crt to its machine, beside the key", last.Path)
	}
	return err
}

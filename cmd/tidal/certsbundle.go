package main

import (
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/pki"
)

func (a *app) certsBundleCommand() *cli.Command {
	flags := []cli.Flag{dirFlag(), outputFlag()}
	return &cli.Command{
		Name:  "bundle",
		Usage: "the authorities that nodes and clients trust",
		Subcommands: []*cli.Command{
			{
				Name: "show", Usage: "list the authorities in the trust bundle, and whose certificates need them",
				UsageText: "tidal certs bundle show --dir DIR", Flags: flags, Action: a.certsBundleShow,
			},
			{
				Name: "add", Usage: "trust the authorities in a file as well",
				UsageText: "tidal certs bundle add FILE --dir DIR", Flags: flags, Action: a.certsBundleAdd,
			},
			{
				Name: "rm", Usage: "trust an authority no longer, unless certificates here need it",
				UsageText: "tidal certs bundle rm FINGERPRINT --dir DIR", Flags: flags, Action: a.certsBundleRemove,
			},
		},
	}
}

func (a *app) certsBundleShow(c *cli.Context) error {
	if _, err := argsOf(c); err != nil {
		return err
	}
	return a.certsBundle(c, func(dir string) ([]pki.Root, error) { return pki.Bundle(dir, time.Now()) })
}

func (a *app) certsBundleAdd(c *cli.Context) error {
	args, err := argsOf(c, "FILE")
	if err != nil {
		return err
	}
	return a.certsBundle(c, func(dir string) ([]pki.Root, error) {
		return pki.AddRoots(c.Context, dir, args[0], time.Now())
	})
}

func (a *app) certsBundleRemove(c *cli.Context) error {
	args, err := argsOf(c, "FINGERPRINT")
	if err != nil {
		return err
	}
	return a.certsBundle(c, func(dir string) ([]pki.Root, error) {
		return pki.RemoveRoot(c.Context, dir, args[0], time.Now())
	})
}

func (a *app) certsBundle(c *cli.Context, do func(dir string) ([]pki.Root, error)) error {
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	dir, err := dirOf(c)
	if err != nil {
		return err
	}
	roots, err := do(dir)
	if err != nil {
		return err
	}
	if format == formatJSON {
		return a.writeJSON(struct {
			Roots []pki.Root `json:"roots"`
		}{roots})
	}
	rows := make([][]string, 0, len(roots))
	for _, r := range roots {
		rows = append(rows, []string{r.Subject, r.State, r.NotAfter.Format(time.DateOnly), r.Fingerprint[:16], orDash(strings.Join(r.Use, ","))})
	}
	return a.writeTable([]string{"AUTHORITY", "STATE", "EXPIRES", "FINGERPRINT", "NEEDED BY"}, rows)
}

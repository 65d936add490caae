package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"tidal/pki"
)

func (a *app) certsCoversCommand() *cli.Command {
	return &cli.Command{
		Name:        "covers",
		Usage:       "say whether a certificate is valid for a name that somebody dials",
		UsageText:   "tidal certs covers CERT NAME-OR-IP",
		Description: "It ends with 0 if it is, and with 1, and why, if it is not.",
		Flags:       []cli.Flag{outputFlag()},
		Action:      a.certsCovers,
	}
}

func (a *app) certsCovers(c *cli.Context) error {
	args, err := argsOf(c, "CERT", "NAME-OR-IP")
	if err != nil {
		return err
	}
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	cert, err := pki.ReadCert(args[0])
	if err != nil {
		return err
	}
	cover, err := pki.Covers(cert, args[1])
	if err != nil {
		return err
	}
	switch {
	case format == formatJSON:
		err = a.writeJSON(cover)
	case cover.Covers:
		_, err = fmt.Fprintf(a.stdout, "%s is covered by %s\n", cover.Name, cover.By)
	}
	if err != nil || cover.Covers {
		return err
	}
	hint := "give it the name: tidal certs gen or issue with --overwrite and all its names"
	if strings.Contains(cert.Subject.CommonName, cover.Name) && len(cover.Names) == 0 {
		hint = "a certificate needs subject alternative names: tidal certs gen makes them"
	}
	return withHint(withCode(exitFailed, fmt.Errorf("%s is not valid for %s: %s", args[0], cover.Name, cover.Why)), hint)
}

package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/pki"
)

func (a *app) certsLintCommand() *cli.Command {
	return &cli.Command{
		Name:      "lint",
		Usage:     "say what is wrong with certificates, or would be with a name in one",
		UsageText: "tidal certs lint FILE … [--name NAME-OR-IP …]",
		Description: "It judges certificates of any origin: names that no client matches, missing uses, chains out of order, keys\n" +
			"that not everybody takes. It ends with 1 if something is wrong, and with 0 if there are warnings at most.",
		Flags: []cli.Flag{
			&cli.StringSliceFlag{Name: "name", Usage: "a `NAME-OR-IP` to judge; repeat it"},
			outputFlag(),
		},
		Action: a.certsLint,
	}
}

func (a *app) certsLint(c *cli.Context) error {
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	files, names := c.Args().Slice(), c.StringSlice("name")
	if len(files)+len(names) == 0 {
		return withHint(usagef("certs lint: nothing to look at"), "usage: "+c.Command.UsageText)
	}
	if err = noEmpty(c, "FILE"); err != nil {
		return err
	}
	found := pki.LintNames(names)
	for _, f := range files {
		more, lintErr := pki.Lint(f, time.Now())
		if lintErr != nil {
			return lintErr
		}
		found = append(found, more...)
	}
	wrong := 0
	rows := make([][]string, 0, len(found))
	for _, f := range found {
		if f.Severity == "error" {
			wrong++
		}
		text := f.What
		if f.Fix != "" {
			text += "; " + f.Fix
		}
		rows = append(rows, []string{f.Severity, f.Where, text})
	}
	if format == formatJSON {
		err = a.writeJSON(struct {
			Findings []pki.Finding `json:"findings"`
		}{append([]pki.Finding{}, found...)})
	} else if len(rows) > 0 {
		err = a.writeTable([]string{"SEVERITY", "WHERE", "WHAT"}, rows)
	}
	if err != nil {
		return err
	}
	if wrong > 0 {
		return withCode(exitFailed, fmt.Errorf("errors: %d, warnings: %d", wrong, len(found)-wrong))
	}
	a.say("no errors, warnings: %d", len(found))
	return nil
}

package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
)

func (a *app) tablesHandoverCommand() *cli.Command {
	return &cli.Command{
		Name:      "handover",
		Usage:     "have another node own a table",
		UsageText: "tidal tables handover NAME [--to NODE] [--for 10m]",
		Description: "The table's requests wait while it goes, for milliseconds. It stays where it went although its place may be\n" +
			"elsewhere, until --for is over, or its new owner drains or ends.",
		Flags: append(connectFlags(), outputFlag(),
			&cli.StringFlag{Name: "to", Usage: "`NODE` that is to own it", DefaultText: "any other that can"},
			&cli.StringFlag{Name: "for", Usage: "how long it stays there, a `DURATION`", Value: api.DefaultStay.String()}),
		Action: a.tablesHandover,
	}
}

func (a *app) tablesHandover(c *cli.Context) error {
	args, err := argsOf(c, "NAME")
	if err != nil {
		return err
	}
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	name, o := args[0], api.HandOver{To: c.String("to"), TTL: c.String("for"), By: claimant()}
	if err = api.CheckTable(name); err != nil {
		return withCode(exitUsage, err)
	}
	if o.To != "" && api.CheckNode(o.To) != nil {
		return usagef("tables handover: --to is %q: want a node id", o.To)
	}
	stay, err := o.Duration()
	if err != nil {
		return usagef("tables handover: --for is %q: want 1s to %s, as in 10m", o.TTL, api.MaxClaim)
	}
	cl, err := a.connectToChange(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	table, err := cl.HandTable(c.Context, name, o)
	if err != nil {
		return fmt.Errorf("hand table %s over: %w", name, err)
	}
	a.say("table %s is owned by %s, and stays there for %s", name, table.Owner, stay)
	return a.printTable(format, table)
}

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
)

func (a *app) tablesCommand() *cli.Command {
	return &cli.Command{
		Name:  "tables",
		Usage: "list, create, describe, move, hand over, check and drop tables",
		Subcommands: []*cli.Command{
			{
				Name:   "list",
				Usage:  "list the tables with their owners",
				Flags:  append(connectFlags(), outputFlag()),
				Action: a.tablesList,
			},
			{
				Name:        "create",
				Usage:       "create a table",
				UsageText:   "tidal tables create NAME [--replicas N]",
				Description: "It returns once every live node can route to the table. A table that is there with the same settings is fine.",
				Flags: append(connectFlags(), outputFlag(),
					&cli.IntFlag{Name: "replicas", Usage: "copies of the table, `N`", DefaultText: "3, or as many as there are nodes"}),
				Action: a.tablesCreate,
			},
			{
				Name:      "describe",
				Usage:     "say who owns a table and where its replicas are",
				UsageText: "tidal tables describe NAME",
				Flags:     append(connectFlags(), outputFlag()),
				Action:    a.tablesDescribe,
			},
			a.tablesMoveCommand(),
			a.tablesHandoverCommand(),
			a.tablesCheckCommand(),
			{
				Name:      "drop",
				Usage:     "drop a table with all of its rows",
				UsageText: "tidal tables drop NAME [--yes]",
				Flags:     append(connectFlags(), &cli.BoolFlag{Name: "yes", Usage: "do not ask"}),
				Action:    a.tablesDrop,
			},
		},
	}
}

func (a *app) tablesList(c *cli.Context) error {
	o, err := a.open(c)
	if err != nil {
		return err
	}
	defer o.cl.Close()
	tables, err := o.cl.Tables(c.Context)
	if err != nil {
		return fmt.Errorf("list the tables: %w", err)
	}
	if o.format == formatJSON {
		return a.writeJSON(api.TableList{Tables: tables})
	}
	return a.writeTable(tableHeadings(), tableRows(tables))
}

func (a *app) tablesCreate(c *cli.Context) error {
	args, err := argsOf(c, "NAME")
	if err != nil {
		return err
	}
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	replicas := c.Int("replicas")
	if c.IsSet("replicas") && (replicas < 1 || replicas > api.MaxReplicas) {
		return usagef("tables create: --replicas is %d: want 1 to %d", replicas, api.MaxReplicas)
	}
	if err = api.CheckTable(args[0]); err != nil {
		return withCode(exitUsage, err)
	}
	cl, err := a.connectToChange(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	table, created, err := cl.PutTable(c.Context, args[0], api.TableSettings{Replicas: replicas})
	if err != nil {
		return fmt.Errorf("create table %s: %w", args[0], err)
	}
	if created {
		a.say("table %s is created", table.Name)
	} else {
		a.say("table %s was there already, with these settings", table.Name)
	}
	return a.printTable(format, table)
}

func (a *app) tablesDescribe(c *cli.Context) error {
	o, err := a.open(c, "NAME")
	if err != nil {
		return err
	}
	defer o.cl.Close()
	if err = api.CheckTable(o.args[0]); err != nil {
		return withCode(exitUsage, err)
	}
	table, err := o.cl.Table(c.Context, o.args[0])
	if err != nil {
		return fmt.Errorf("describe table %s: %w", o.args[0], err)
	}
	if o.format == formatJSON {
		return a.writeJSON(table)
	}
	if err := a.writeTable(tableHeadings(), tableRows([]api.Table{table})); err != nil {
		return err
	}
	if _, err := io.WriteString(a.stdout, "\n"); err != nil {
		return err
	}
	var rows [][]string
	for _, r := range table.Replicas {
		lag := "-"
		if r.Lag != nil {
			lag = strconv.FormatInt(*r.Lag, 10)
		}
		rows = append(rows, []string{r.ID, r.Node, strconv.FormatBool(r.Voter), strconv.FormatBool(r.Live), lag})
	}
	return a.writeTable([]string{"REPLICA", "NODE", "VOTER", "LIVE", "LAG"}, rows)
}

func (a *app) tablesDrop(c *cli.Context) error {
	args, err := argsOf(c, "NAME")
	if err != nil {
		return err
	}
	name := args[0]
	if err = api.CheckTable(name); err != nil {
		return withCode(exitUsage, err)
	}
	cl, err := a.connectToChange(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := a.confirm(c, "This drops table "+name+" with all of its rows.", name); err != nil {
		return err
	}
	if err := cl.DropTable(c.Context, name); err != nil {
		return fmt.Errorf("drop table %s: %w", name, err)
	}
	a.say("table %s is dropped", name)
	return nil
}

// confirm asks the user to type word, unless --yes is given. Anything else is a
// refusal, and so is a signal: nothing was done yet that would have to end in order.
func (a *app) confirm(c *cli.Context, what, word string) error {
	if c.Bool("yes") {
		return nil
	}
	a.say("%s Type %s to go on:", what, word)
	line, err := a.typed(c.Context)
	if err != nil {
		return err
	}
	if strings.TrimSpace(line) != word {
		return withHint(withCode(exitRefused, errors.New("not confirmed: nothing was done")), "--yes does not ask")
	}
	return nil
}

// typed returns the line that the user types, or the part before the end of the input. A
// read hears no signal, so another goroutine reads: it ends with the process.
func (a *app) typed(ctx context.Context) (string, error) {
	var line string
	done := make(chan error, 1)
	go func() {
		var err error
		line, err = bufio.NewReader(io.LimitReader(a.stdin, 1<<10)).ReadString('\n')
		done <- err
	}()
	select {
	case err := <-done:
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read the confirmation: %w", err)
		}
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // whatever was typed too
		return "", withHint(withCode(exitInterrupted, errors.New("interrupted before it was confirmed: nothing was done")), "--yes does not ask")
	}
	return line, nil
}

// printTable prints what a command has made of a table.
func (a *app) printTable(format string, t api.Table) error {
	if format == formatJSON {
		return a.writeJSON(t)
	}
	return a.writeTable(tableHeadings(), tableRows([]api.Table{t}))
}

func tableHeadings() []string { return []string{"TABLE", "OWNER", "PLACE", "TERM", "REPLICAS"} }

func tableRows(tables []api.Table) [][]string {
	rows := make([][]string, 0, len(tables))
	for _, t := range tables {
		nodes := make([]string, 0, len(t.Replicas))
		for _, r := range t.Replicas {
			nodes = append(nodes, r.Node)
		}
		rows = append(rows, []string{
			t.Name, orDash(t.Owner), orDash(t.Place), strconv.FormatUint(t.Term, 10), orDash(strings.Join(nodes, ",")),
		})
	}
	return rows
}

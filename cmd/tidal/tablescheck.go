package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
)

func (a *app) tablesCheckCommand() *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "compare the replicas of a table",
		UsageText: "tidal tables check NAME",
		Description: "All rows, and all else that replicas keep of a table, must be the same on each of them at one place in the " +
			"table's order. Each node reads its replica as a whole, at 64 MiB a second at most; requests go on meanwhile. The " +
			"exit code is 1 if replicas differ, and 10 if one could not be compared.",
		Flags:  append(connectFlags(), outputFlag()),
		Action: a.tablesCheck,
	}
}

func (a *app) tablesCheck(c *cli.Context) error {
	o, err := a.open(c, "NAME")
	if err != nil {
		return err
	}
	defer o.cl.Close()
	if err = api.CheckTable(o.args[0]); err != nil {
		return withCode(exitUsage, err)
	}
	check, err := o.cl.CheckTable(c.Context, o.args[0])
	if err != nil {
		return fmt.Errorf("check table %s: %w", o.args[0], err)
	}
	if o.format == formatJSON {
		err = a.writeJSON(check)
	} else {
		err = a.writeTable([]string{"NODE", "REPLICA", "STATE", "HASH", "WHY"}, checkRows(check.Replicas))
	}
	if err != nil {
		return err
	}
	return checkError(&check)
}

// checkRows shows the replicas with the beginning of their hashes.
func checkRows(replicas []api.CheckedReplica) [][]string {
	rows := make([][]string, len(replicas))
	for i, r := range replicas {
		rows[i] = []string{r.Node, r.ID, string(r.State), orDash(r.Hash[:min(len(r.Hash), 16)]), orDash(r.Why)}
	}
	return rows
}

// checkError is what a check ends with if not all is well.
func checkError(check *api.TableCheck) error {
	if n := check.Count(api.ReplicaDiffers); n > 0 {
		return withHint(fmt.Errorf("%d of the %d replicas of table %s differ at %s", n, len(check.Replicas), check.Table, check.Position),
			"a replica that differs from the others is rebuilt by moving it: tidal tables move "+check.Table+" --from NODE --to ANOTHER")
	}
	if n := check.Count(api.ReplicaUnchecked); n > 0 {
		return withCode(exitDegraded, fmt.Errorf("%d of the %d replicas of table %s could not be compared", n, len(check.Replicas), check.Table))
	}
	return nil
}

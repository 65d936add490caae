package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
)

// moveLook is how often a command that waits for a move looks how far it is.
const moveLook = 300 * time.Millisecond

// movePatient is how long a move is waited for by default: it copies a table.
const movePatient = 10 * time.Minute

func (a *app) tablesMoveCommand() *cli.Command {
	return &cli.Command{
		Name:      "move",
		Usage:     "move a replica of a table from one node to another",
		UsageText: "tidal tables move NAME --from NODE --to NODE [--no-wait] [--timeout 10m]",
		Description: "The new replica catches up before it takes the place of the old one; the table is served all the while. " +
			"Naming the nodes the other way round takes a move back that has not got that far.",
		Flags: append(connectFlags(), outputFlag(),
			&cli.StringFlag{Name: "from", Usage: "`NODE` that holds the replica"},
			&cli.StringFlag{Name: "to", Usage: "`NODE` that is to hold it"},
			&cli.BoolFlag{Name: "no-wait", Usage: "return once the move is decided"},
			&cli.StringFlag{Name: "timeout", Usage: "how long to wait for its end, a `DURATION`", Value: movePatient.String()}),
		Action: a.tablesMove,
	}
}

func (a *app) tablesMove(c *cli.Context) error {
	args, err := argsOf(c, "NAME")
	if err != nil {
		return err
	}
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	patience, err := timeoutOf(c)
	if err != nil {
		return err
	}
	name, from, to := args[0], c.String("from"), c.String("to")
	if err = api.CheckTable(name); err != nil {
		return withCode(exitUsage, err)
	}
	for flag, node := range map[string]string{"--from": from, "--to": to} {
		if api.CheckNode(node) != nil {
			return usagef("tables move: %s is %q: want a node id", flag, node)
		}
	}
	if from == to {
		return usagef("tables move: --from and --to name the same node, %s", from)
	}
	cl, err := a.connectToChange(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	table, err := cl.MoveReplica(c.Context, name, from, to)
	if err != nil {
		return fmt.Errorf("move a replica of table %s: %w", name, err)
	}
	if !c.Bool("no-wait") {
		if table, err = a.awaitMove(c.Context, cl, table, moveOf{from, to, patience}); err != nil {
			return err
		}
		a.say("table %s: the replica is on %s", name, to)
	}
	return a.printTable(format, table)
}

type moveOf struct {
	from, to string
	wait     time.Duration
}

// awaitMove looks until the move is done, and says what changes on the way.
func (a *app) awaitMove(ctx context.Context, cl *client.Client, table api.Table, m moveOf) (api.Table, error) {
	ctx, cancel := context.WithTimeout(ctx, m.wait)
	defer cancel()
	name, said := table.Name, ""
	t := time.NewTicker(moveLook)
	defer t.Stop()
	for !moved(table, m) {
		if now := progressOf(table, m.to); now != said {
			a.say("table %s: %s", name, now)
			said = now
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return table, ctx.Err()
			}
			return table, withHint(withCode(exitNotReady, fmt.Errorf("the replica of table %s is not on %s within %s: %s", name, m.to, m.wait, said)),
				"it goes on: tidal tables describe "+name)
		}
		now, err := cl.Table(ctx, name)
		if err != nil && ctx.Err() == nil {
			return table, fmt.Errorf("look how far the move of table %s is: %w", name, err)
		}
		if err == nil {
			table = now
		}
	}
	return table, nil
}

func moved(t api.Table, m moveOf) bool {
	there := false
	for _, r := range t.Replicas {
		if r.Node == m.from {
			return false
		}
		there = there || r.Node == m.to && r.Voter && !r.Leaving
	}
	return there
}

// progressOf says how far the replica that comes to a node is.
func progressOf(t api.Table, to string) string {
	for _, r := range t.Replicas {
		switch {
		case r.Node != to:
		case r.Voter:
			return "the replica on " + to + " counts"
		case r.Lag != nil:
			return fmt.Sprintf("the replica on %s lacks %d entries", to, *r.Lag)
		default:
			return "the replica on " + to + " catches up"
		}
	}
	return "the move is decided"
}

func (a *app) nodeReplaceCommand() *cli.Command {
	return &cli.Command{
		Name:      "replace",
		Usage:     "let a node come back whose disk is gone for good",
		UsageText: "tidal node replace NODE [--yes]",
		Description: "The node's old disk is dead for ever, and is not let in again. Start the node with an empty disk: " +
			"it is admitted under its id and gets its replicas anew. A node that is alive, and one whose disk is needed for a quorum, is refused.",
		Flags:  append(connectFlags(), &cli.BoolFlag{Name: "yes", Usage: "do not ask"}),
		Action: a.nodeReplace,
	}
}

func (a *app) nodeReplace(c *cli.Context) error {
	args, err := argsOf(c, "NODE")
	if err != nil {
		return err
	}
	node := args[0]
	if api.CheckNode(node) != nil {
		return usagef("node replace: %q is no node id", node)
	}
	cl, err := a.connectToChange(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	if err := a.confirm(c, "What is on the disk of node "+node+" is given up for ever.", node); err != nil {
		return err
	}
	if err := cl.ReplaceNode(c.Context, node); err != nil {
		return fmt.Errorf("replace the disk of node %s: %w", node, err)
	}
	a.say("node %s is let in with an empty disk: start it, and see with `tidal status` when it is live", node)
	return nil
}

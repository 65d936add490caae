package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"tidal/node"
	"tidal/node/api"
)

func (a *app) debugCommand() *cli.Command {
	flags := func(more ...cli.Flag) []cli.Flag {
		return append([]cli.Flag{&cli.StringFlag{Name: "data", Usage: "data `DIRECTORY` of a node that does not run"}, outputFlag()}, more...)
	}
	return &cli.Command{
		Name:  "debug",
		Usage: "look into the data directory of a node that does not run",
		Description: "Nothing in the directory is changed. One that a node has in use is refused (exit 9); so is one whose data\n" +
			"cannot be read (exit 3).",
		Subcommands: []*cli.Command{
			{
				Name: "identity", Usage: "say whose disk it is: node, disk, cluster, how often it was started, its last synced pass",
				UsageText: "tidal debug identity --data DIRECTORY",
				Flags:     flags(), Action: a.debugIdentity,
			},
			{
				Name: "state", Usage: "list the replicas on it: applied position, terms, logs, rows, configuration",
				UsageText: "tidal debug state --data DIRECTORY",
				Flags:     flags(), Action: a.debugState,
			},
			{
				Name: "log", Usage: "list the entries of a group's log", UsageText: "tidal debug log --data DIRECTORY [--group TABLE] [--from INDEX] [--limit N]",
				Flags: flags(
					&cli.StringFlag{Name: "group", Usage: "`TABLE`, its id, or meta", Value: "meta"},
					&cli.Uint64Flag{Name: "from", Usage: "`INDEX` of the first entry"},
					&cli.IntFlag{Name: "limit", Usage: "at most so many `ENTRIES`", Value: 100},
				),
				Action: a.debugLog,
			},
		},
	}
}

// inspect opens the directory that --data names, for f.
func (a *app) inspect(c *cli.Context, f func(s *node.Stopped, format string) error) error {
	if _, err := argsOf(c); err != nil {
		return err
	}
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	dir := c.String("data")
	if dir == "" {
		return withHint(usagef("%s: --data is missing", c.Command.HelpName), "it is node.data of the node's configuration")
	}
	s, err := node.OpenStopped(dir)
	switch {
	case errors.Is(err, node.ErrLocked):
		return withHint(withCode(exitLocked, err), "stop the node first; of one that runs, `tidal status` and /cluster/status/local tell")
	case err != nil:
		return withHint(withCode(exitConfig, err), "--data is what node.data of the node's configuration says")
	}
	return errors.Join(withCode(exitConfig, f(s, format)), s.Close())
}

func (a *app) debugIdentity(c *cli.Context) error {
	return a.inspect(c, func(s *node.Stopped, format string) error {
		id, err := s.Identity()
		if err != nil {
			return err
		}
		if format == formatJSON {
			return a.writeJSON(id)
		}
		belongs := "-"
		if id.ClusterID != nil {
			belongs = id.ClusterID.String()
		}
		rows := [][]string{
			{"node", id.Node},
			{"disk", id.Disk.String()},
			{"cluster", orDash(id.Cluster)},
			{"cluster id", belongs},
			{"started", strconv.FormatUint(id.Start, 10) + " times"},
			{"last synced pass", number(id.Pass)},
			{"format", fmt.Sprintf("%d (this binary reads up to %d)", id.Format, id.ReadsUpTo)},
			{"admitted as replica", orDash(id.Admitted)},
		}
		for _, m := range id.Founders {
			rows = append(rows, []string{"founder " + m.Node, m.Disk.String() + " " + m.Address})
		}
		return a.writeTable([]string{"WHAT", "VALUE"}, rows)
	})
}

func (a *app) debugState(c *cli.Context) error {
	return a.inspect(c, func(s *node.Stopped, format string) error {
		all, err := s.State()
		if err != nil {
			return err
		}
		if format == formatJSON {
			return a.writeJSON(all)
		}
		var rows [][]string
		for _, r := range all {
			rows = append(rows, stateRow(r))
		}
		return a.writeTable([]string{"GROUP", "NAME", "REPLICA", "TERM", "VOTE", "COMMIT", "APPLIED", "LOG", "ROWS", "VOTERS", "LEARNERS"}, rows)
	})
}

func stateRow(r api.DiskReplica) []string {
	rows := "-"
	if r.Rows >= 0 {
		rows = strconv.Itoa(r.Rows)
	}
	voters := strings.Join(r.Voters, ",")
	if len(r.Outgoing) > 0 {
		voters += " (from " + strings.Join(r.Outgoing, ",") + ")"
	}
	log := "empty after " + number(r.Last)
	if r.First <= r.Last {
		log = number(r.First) + "-" + number(r.Last)
	}
	return []string{
		r.Group.String(), orDash(r.Name), r.Replica, number(r.Term), r.Vote, number(r.Commit),
		fmt.Sprintf("%d in term %d", r.Applied, r.AppliedTerm), log, rows, orDash(voters), orDash(strings.Join(r.Learners, ",")),
	}
}

func (a *app) debugLog(c *cli.Context) error {
	limit := c.Int("limit")
	if limit < 1 {
		return usagef("debug log: --limit is %d: want 1 or more", limit)
	}
	return a.inspect(c, func(s *node.Stopped, format string) error {
		entries, err := s.Log(c.String("group"), c.Uint64("from"), limit)
		if err != nil {
			return err
		}
		if format == formatJSON {
			return a.writeJSON(entries)
		}
		var rows [][]string
		for _, e := range entries {
			rows = append(rows, []string{number(e.Index), number(e.Term), e.Kind, strconv.Itoa(e.Size)})
		}
		return a.writeTable([]string{"INDEX", "TERM", "KIND", "BYTES"}, rows)
	})
}

func number(n uint64) string { return strconv.FormatUint(n, 10) }

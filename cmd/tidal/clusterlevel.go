package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
)

func (a *app) clusterLevelCommand() *cli.Command {
	return &cli.Command{
		Name:   "level",
		Usage:  "say which feature level the cluster has, and which ones its members speak",
		Flags:  append(connectFlags(), outputFlag()),
		Action: a.clusterLevel,
	}
}

func (a *app) clusterFinalizeCommand() *cli.Command {
	return &cli.Command{
		Name:      "finalize",
		Usage:     "end an upgrade: have the cluster use what the new release brings",
		UsageText: "tidal cluster finalize [--yes]",
		Description: "It raises the feature level to the highest that every member speaks, alive or not; what stands in the way is\n" +
			"named. Before, every node may go back to the release that it ran before. After it none can: that release\n" +
			"cannot read what the cluster writes then.",
		Flags:  append(connectFlags(), outputFlag(), &cli.BoolFlag{Name: "yes", Usage: "do not ask"}),
		Action: a.clusterFinalize,
	}
}

func (a *app) clusterLevel(c *cli.Context) error {
	o, err := a.open(c)
	if err != nil {
		return err
	}
	defer o.cl.Close()
	l, err := o.cl.Level(c.Context)
	if err != nil {
		return fmt.Errorf("ask for the feature level: %w", err)
	}
	return a.printLevel(o.format, l)
}

func (a *app) clusterFinalize(c *cli.Context) error {
	if _, err := argsOf(c); err != nil {
		return err
	}
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	cl, err := a.connectToChange(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	s, err := cl.Status(c.Context)
	if err != nil {
		return fmt.Errorf("ask for the status: %w", err)
	}
	l, err := cl.Level(c.Context)
	if err != nil {
		return fmt.Errorf("ask for the feature level: %w", err)
	}
	if l.Possible <= l.Level {
		return a.nothingToRaise(format, l)
	}
	what := fmt.Sprintf("Cluster %s goes from feature level %d to %d, and its nodes cannot go back to a release before.", s.Cluster, l.Level, l.Possible)
	if err = a.confirm(c, what, s.Cluster); err != nil {
		return err
	}
	if l, err = cl.RaiseLevel(c.Context, l.Possible); err != nil {
		return fmt.Errorf("raise the feature level: %w", err)
	}
	a.say("cluster %s has feature level %d", s.Cluster, l.Level)
	return a.printLevel(format, l)
}

// nothingToRaise says why a level stays as it is: it is the newest that any member
// speaks, which is well, or some members do not speak the next, which is refused.
func (a *app) nothingToRaise(format string, l api.ClusterLevel) error {
	var behind []string
	newest := l.Level
	for _, m := range l.Members {
		if m.Levels != nil {
			newest = max(newest, m.Levels.Max)
		}
	}
	for _, m := range l.Members {
		switch {
		case m.Levels == nil:
			behind = append(behind, "node "+m.Node+" never had a lease")
		case m.Levels.Max < newest:
			behind = append(behind, fmt.Sprintf("node %s speaks %s", m.Node, m.Levels))
		}
	}
	if newest > l.Level {
		return withHint(withCode(exitRefused, fmt.Errorf("the feature level stays %d: not every member speaks level %d: %s", l.Level, newest, firstFew(behind))),
			"upgrade them first: tidal roll --binary FILE")
	}
	a.say("the feature level is %d, the newest that the nodes' releases speak: there is nothing to do", l.Level)
	return a.printLevel(format, l)
}

func (a *app) printLevel(format string, l api.ClusterLevel) error {
	if format == formatJSON {
		return a.writeJSON(l)
	}
	if _, err := fmt.Fprintf(a.stdout, "feature level %d; every member speaks level %d\n\n", l.Level, l.Possible); err != nil {
		return err
	}
	rows := make([][]string, 0, len(l.Members))
	for _, m := range l.Members {
		levels := "-"
		if m.Levels != nil {
			levels = m.Levels.String()
		}
		rows = append(rows, []string{m.Node, levels, orDash(m.Version)})
	}
	return a.writeTable([]string{"NODE", "SPEAKS", "VERSION"}, rows)
}

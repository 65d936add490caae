package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
)

func (a *app) clusterCommand() *cli.Command {
	return &cli.Command{
		Name:  "cluster",
		Usage: "form a cluster without some of its members; say and raise its feature level",
		Subcommands: []*cli.Command{
			a.clusterInitCommand(),
			a.clusterLevelCommand(),
			a.clusterFinalizeCommand(),
		},
	}
}

func (a *app) clusterInitCommand() *cli.Command {
	return &cli.Command{
		Name:      "init",
		Usage:     "have a cluster form that waits for members, without them",
		UsageText: "tidal cluster init --members NODE,NODE[,…] [--yes] [--timeout 30s]",
		Description: "A cluster forms by itself once all listed members are there. This is for when some of them cannot come: it names\n" +
			"those that can, more than half of the list, and all of them must run and agree. The others are voters all the same,\n" +
			"and get in when they come, by themselves.",
		Flags: append(connectFlags(),
			&cli.StringFlag{Name: "members", Usage: "the listed members that are there, `NODE,NODE,…`"},
			&cli.BoolFlag{Name: "yes", Usage: "do not ask"},
			timeoutFlag("how long to wait until they are ready"), outputFlag()),
		Action: a.clusterInit,
	}
}

func (a *app) clusterInit(c *cli.Context) error {
	if _, err := argsOf(c); err != nil {
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
	ask := api.Founding{}
	if c.String("members") != "" {
		ask.Members = strings.Split(c.String("members"), ",")
	}
	if err = ask.Check(); err != nil {
		return withHint(usagef("cluster init: --members: %w", err), "tidal cluster init --members a,b")
	}
	cl, err := a.connectToChange(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	s, err := cl.Status(c.Context)
	switch {
	case err != nil:
		return fmt.Errorf("ask what the cluster waits for: %w", err)
	case !s.ClusterID.IsZero():
		return withCode(exitRefused, fmt.Errorf("node %s belongs to cluster %s (id %s) already", s.Node, s.Cluster, s.ClusterID))
	}
	a.say("node %s waits: %s", s.Node, orDash(s.Waiting))
	if err = a.confirm(c, "Cluster "+s.Cluster+" forms now, for good, with "+strings.Join(ask.Members, ", ")+" alone.", s.Cluster); err != nil {
		return err
	}
	out, err := cl.Found(c.Context, ask.Members)
	if err != nil {
		return fmt.Errorf("form cluster %s with %s: %w", s.Cluster, strings.Join(ask.Members, ", "), err)
	}
	a.say("cluster %s forms, with id %s, proposed by node %s", out.Cluster, out.ClusterID, out.Proposer)
	w := waiting{cl: cl, what: "ready", is: isReady, nodes: out.Members}
	if err = waitFor(c.Context, patience, nodeLook, w.formed); err != nil {
		return withHint(err, "it goes on: tidal status says what it waits for")
	}
	if len(out.Without) > 0 {
		a.say("start %s with an empty data directory when you can: it gets in by itself", strings.Join(out.Without, ", "))
	}
	if format == formatJSON {
		return a.writeJSON(out)
	}
	_, err = fmt.Fprintf(a.stdout, "cluster %s is formed with %s\n", out.Cluster, strings.Join(out.Members, ", "))
	return err
}

// formed is look, with what a founder waits for before there are members.
func (w *waiting) formed(ctx context.Context) error {
	if s, err := w.cl.Status(ctx); err == nil && s.MetaLeader == "" && s.Waiting != "" {
		return errors.New("node " + s.Node + " waits: " + s.Waiting)
	}
	return w.look(ctx)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
)

func (a *app) waitCommand() *cli.Command {
	flags := func() []cli.Flag {
		return append(connectFlags(),
			&cli.StringSliceFlag{Name: "node", Usage: "`NODE` to wait for (may be repeated)", DefaultText: "every node of the cluster"},
			timeoutFlag("how long to wait"))
	}
	return &cli.Command{
		Name:  "wait",
		Usage: "wait until nodes are ready, or level",
		Description: "Each node is asked at its own address. It ends with 6, and says what is missing, if that is not so in time.\n" +
			"It waits for a cluster that cannot be reached, too.",
		Subcommands: []*cli.Command{
			{
				Name:   "ready",
				Usage:  "wait until nodes may be sent traffic: /health answers 200",
				Flags:  flags(),
				Action: func(c *cli.Context) error { return a.wait(c, "ready", isReady) },
			},
			{
				Name:   "level",
				Usage:  "wait until nodes have caught up with all that they hold, draining or not",
				Flags:  flags(),
				Action: func(c *cli.Context) error { return a.wait(c, "level", isLevel) },
			},
		},
	}
}

func (a *app) wait(c *cli.Context, what string, is func(context.Context, *client.Client, api.Member) error) error {
	if _, err := argsOf(c); err != nil {
		return err
	}
	patience, err := timeoutOf(c)
	if err != nil {
		return err
	}
	wanted := c.StringSlice("node")
	for _, n := range wanted {
		if err = api.CheckNode(n); err != nil {
			return withCode(exitUsage, err)
		}
	}
	cl, err := a.connect(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	w := waiting{cl: cl, what: what, is: is, nodes: wanted}
	return waitFor(c.Context, patience, nodeLook, w.look)
}

// waiting is what `tidal wait` waits for.
type waiting struct {
	cl    *client.Client
	what  string
	is    func(context.Context, *client.Client, api.Member) error
	nodes []string // none: every node
}

// look returns what is missing now.
func (w *waiting) look(ctx context.Context) error {
	s, err := w.cl.Status(ctx)
	switch code := api.CodeOf(err); {
	case errors.Is(err, client.ErrTLS) || code == api.CodeForbidden || code == api.CodeUnauthorized:
		return &finalError{err} // that will not pass
	case err != nil:
		return err
	}
	var missing []string
	for _, n := range w.nodes {
		if !slices.ContainsFunc(s.Members, func(m api.Member) bool { return m.Node == n }) {
			missing = append(missing, "node "+n+" is no member")
		}
	}
	for _, m := range s.Members {
		if len(w.nodes) > 0 && !slices.Contains(w.nodes, m.Node) {
			continue
		}
		if err := w.is(ctx, w.cl, m); err != nil {
			missing = append(missing, err.Error())
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("not %s: %s", w.what, strings.Join(missing, "; "))
	}
	return nil
}

// isReady returns what keeps a node from being ready.
func isReady(ctx context.Context, cl *client.Client, m api.Member) error {
	return healthOf(ctx, cl, m, func(api.Reason) bool { return true })
}

// isLevel returns what a node has not caught up with.
func isLevel(ctx context.Context, cl *client.Client, m api.Member) error {
	return healthOf(ctx, cl, m, func(r api.Reason) bool { return r.Code != "draining" && r.Code != "isolated" })
}

// healthOf returns the reasons that count against a node.
func healthOf(ctx context.Context, cl *client.Client, m api.Member, counts func(api.Reason) bool) error {
	if m.Lease == nil {
		return errors.New("node " + m.Node + " has no lease")
	}
	h, err := cl.Health(ctx, m.Lease.Address)
	if err != nil {
		return fmt.Errorf("node %s: %w", m.Node, err)
	}
	var why []string
	for _, r := range h.Reasons {
		if counts(r) {
			text := r.Detail
			if r.Table != "" {
				text = "table " + r.Table + " " + text
			}
			why = append(why, text)
		}
	}
	if len(why) > 0 {
		return fmt.Errorf("node %s: %s", m.Node, strings.Join(why, ", "))
	}
	return nil
}

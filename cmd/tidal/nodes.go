package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
)

const (
	nodeLook    = 100 * time.Millisecond // between two looks at a node that is waited for
	nodePatient = time.Minute            // how long --wait waits by default
)

func (a *app) nodeCommand() *cli.Command {
	wait := &cli.BoolFlag{Name: "wait", Usage: "return when it is done"}
	timeout := timeoutFlag("how long --wait waits")
	return &cli.Command{
		Name:  "node",
		Usage: "list, drain, restart and replace nodes",
		Subcommands: []*cli.Command{
			{
				Name:   "list",
				Usage:  "list the nodes, with their leases and who claims their drain",
				Flags:  append(connectFlags(), outputFlag()),
				Action: a.nodeList,
			},
			{
				Name:      "drain",
				Usage:     "have a node hand over what it owns, and own nothing for some time",
				UsageText: "tidal node drain NODE [--ttl 10m] [--wait] [--hold]",
				Description: "The drain is a claim that ends by itself after --ttl: then the node takes tables again. With --hold it\n" +
					"is renewed until the command is interrupted, and given up then; should the command die, it ends after --ttl.",
				Flags: append(connectFlags(), outputFlag(), wait, timeout,
					&cli.StringFlag{Name: "ttl", Usage: "`DURATION` of the claim", DefaultText: "10m, or 30s with --hold"},
					&cli.BoolFlag{Name: "hold", Usage: "keep the claim until interrupted"}),
				Action: a.nodeDrain,
			},
			{
				Name:      "undrain",
				Usage:     "end the claim on a node's drain, whoever's it is",
				UsageText: "tidal node undrain NODE",
				Flags:     append(connectFlags(), outputFlag()),
				Action:    a.nodeUndrain,
			},
			{
				Name:      "restart",
				Usage:     "restart a node in place: it becomes what its binary and its configuration are now",
				UsageText: "tidal node restart NODE [--wait]",
				Description: "Nothing happens if the new binary's `tidal serve --check` fails. Its port stays open throughout, so no\n" +
					"client is refused. With --wait it returns when the node's next run is ready.",
				Flags:  append(connectFlags(), outputFlag(), wait, timeout),
				Action: a.nodeRestart,
			},
			a.nodeReplaceCommand(),
		},
	}
}

func timeoutFlag(usage string) cli.Flag {
	return &cli.StringFlag{Name: "timeout", Usage: usage + ", a `DURATION`", Value: nodePatient.String()}
}

// timeoutOf reads the flag that timeoutFlag makes.
func timeoutOf(c *cli.Context) (time.Duration, error) {
	d, err := time.ParseDuration(c.String("timeout"))
	if err != nil || d <= 0 {
		return 0, withHint(usagef("%s: --timeout is %q", c.Command.HelpName, c.String("timeout")), "it is a duration, as 30s or 10m")
	}
	return d, nil
}

func (a *app) nodeList(c *cli.Context) error {
	o, err := a.open(c)
	if err != nil {
		return err
	}
	defer o.cl.Close()
	nodes, err := o.cl.Nodes(c.Context)
	if err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	if o.format == formatJSON {
		return a.writeJSON(api.NodeList{Nodes: nodes})
	}
	rows := make([][]string, 0, len(nodes))
	for _, n := range nodes {
		rows = append(rows, nodeRow(n))
	}
	return a.writeTable([]string{"NODE", "STATE", "PHASE", "TABLES", "META", "CLAIM", "ADDRESS", "VERSION", "INCARNATION"}, rows)
}

func nodeRow(n api.Node) []string {
	row := memberRow(n.Member, n.Owned) // node, state, tables, meta, address, zone, version, incarnation
	if n.Silent != "" {
		row[1] += ", silent"
	}
	if n.Leads {
		row[3] = "leader"
	}
	return []string{row[0], row[1], orDash(n.Phase), row[2], row[3], claimText(n.Claim), row[4], row[6], row[7]}
}

func claimText(c *api.Claim) string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%s, epoch %d, %s left", c.By, c.Epoch, c.EndsIn)
}

// orderCommand is what the commands that give a node an order begin with.
func (a *app) orderCommand(c *cli.Context) (node, format string, cl *client.Client, err error) { //nolint:revive // all four are wanted everywhere
	args, err := argsOf(c, "NODE")
	if err != nil {
		return "", "", nil, err
	}
	if err = api.CheckNode(args[0]); err != nil {
		return "", "", nil, withCode(exitUsage, err)
	}
	if format, err = formatOf(c); err != nil {
		return "", "", nil, err
	}
	cl, err = a.connectToChange(c)
	return args[0], format, cl, err
}

func (a *app) nodeDrain(c *cli.Context) error {
	o := api.NodeOrder{TTL: c.String("ttl"), By: claimant()}
	if o.TTL == "" {
		o.TTL = "10m"
		if c.Bool("hold") {
			o.TTL = api.DefaultClaim.String()
		}
	}
	ttl, err := o.Duration()
	if err != nil {
		return usagef("node drain: --ttl is %q: want 1s to %s, as in 10m", o.TTL, api.MaxClaim)
	}
	patience, err := timeoutOf(c)
	if err != nil {
		return err
	}
	node, format, cl, err := a.orderCommand(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	d := &drain{app: a, cl: cl, node: node, order: o}
	if err = d.renew(c.Context); err != nil {
		return fmt.Errorf("drain node %s: %w", node, claimError(err))
	}
	a.say("node %s hands over its %d tables; %s", node, d.report.Owned, claimText(d.report.Claim))
	if c.Bool("wait") || c.Bool("hold") {
		if err = d.awaitEmpty(c.Context, patience, ttl); err != nil {
			return err
		}
		a.say("node %s owns nothing", node)
	}
	if c.Bool("hold") {
		return d.hold(c.Context, ttl)
	}
	return a.printReport(format, d.report)
}

// claimError gives a claim that somebody else has its exit code.
func claimError(err error) error {
	switch api.CodeOf(err) {
	case api.CodeClaimed:
		return withCode(exitLocked, err)
	case api.CodeCheckFailed:
		return withCode(exitRefused, err)
	default:
		return err
	}
}

// claimant names this command among those who may claim.
func claimant() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	return fmt.Sprintf("%s[%d]", host, os.Getpid())
}

// drain is a claim that this command holds.
type drain struct {
	app    *app
	cl     *client.Client
	node   string
	order  api.NodeOrder
	report api.NodeReport
}

// renew claims, the first time without an epoch, later with the one it got.
func (d *drain) renew(ctx context.Context) error {
	r, err := d.cl.DrainNode(ctx, d.node, d.order)
	if err != nil {
		return err
	}
	d.report = r
	if r.Claim != nil {
		d.order.Epoch = r.Claim.Epoch
	}
	return nil
}

// awaitEmpty waits until the node owns nothing, and renews the claim meanwhile.
func (d *drain) awaitEmpty(ctx context.Context, patience, ttl time.Duration) error {
	return waitFor(ctx, patience, min(ttl/3, nodeLook), func(ctx context.Context) error {
		if err := d.renew(ctx); err != nil {
			if api.CodeOf(err) == api.CodeClaimed {
				return &finalError{claimError(err)}
			}
			return err
		}
		if d.report.Owned > 0 {
			return fmt.Errorf("node %s still owns %d tables: no other node can take them now", d.node, d.report.Owned)
		}
		return nil
	})
}

// hold renews the claim until the command is interrupted, and gives it up.
func (d *drain) hold(ctx context.Context, ttl time.Duration) error {
	d.app.say("holding the claim; interrupt this command to give it up")
	tick := time.NewTicker(ttl / 3)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			switch err := d.renew(ctx); {
			case err == nil || ctx.Err() != nil:
			case api.CodeOf(err) == api.CodeClaimed:
				return fmt.Errorf("hold the claim on node %s: %w", d.node, claimError(err))
			default:
				d.app.say("tidal: the claim on node %s could not be renewed: %v", d.node, err)
			}
		case <-ctx.Done():
			end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
			defer cancel()
			if _, err := d.cl.UndrainNode(end, d.node, d.order); err != nil {
				return fmt.Errorf("give up the claim on node %s: %w", d.node, err)
			}
			d.app.say("the claim on node %s is given up", d.node)
			return nil
		}
	}
}

func (a *app) nodeUndrain(c *cli.Context) error {
	node, format, cl, err := a.orderCommand(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	r, err := cl.UndrainNode(c.Context, node, api.NodeOrder{By: claimant()})
	if err != nil {
		return fmt.Errorf("undrain node %s: %w", node, claimError(err))
	}
	a.say("node %s takes tables again", node)
	return a.printReport(format, r)
}

func (a *app) nodeRestart(c *cli.Context) error {
	patience, err := timeoutOf(c)
	if err != nil {
		return err
	}
	node, format, cl, err := a.orderCommand(c)
	if err != nil {
		return err
	}
	defer cl.Close()
	r, err := cl.RestartNode(c.Context, node, api.NodeOrder{By: claimant()})
	if err != nil {
		return fmt.Errorf("restart node %s: %w", node, claimError(err))
	}
	a.say("node %s restarts in place; it is %s", node, r.Incarnation)
	if !c.Bool("wait") {
		return a.printReport(format, r)
	}
	if err = awaitNext(c.Context, cl, r, patience); err != nil {
		return err
	}
	if r, err = nodeReport(c.Context, cl, node); err != nil {
		return fmt.Errorf("node %s has restarted: %w", node, err)
	}
	a.say("node %s is ready as %s", node, r.Incarnation)
	return a.printReport(format, r)
}

// nodeReport is what a node says of itself now; its phase is empty while it says nothing.
func nodeReport(ctx context.Context, cl *client.Client, node string) (r api.NodeReport, err error) {
	all, err := cl.Nodes(ctx)
	if err != nil {
		return r, err
	}
	for _, n := range all {
		if n.Node == node && n.Lease != nil {
			r = api.NodeReport{
				Node: node, Incarnation: n.Lease.Incarnation, Phase: n.Phase, Draining: n.Lease.Draining, Owned: n.Owned,
				Claim: n.Claim, Certificates: n.Certificates,
			}
		}
	}
	if r.Node == "" {
		return r, withCode(exitNotReady, errors.New("it has no lease any more"))
	}
	return r, nil
}

// awaitNext waits until the other nodes have met another incarnation than the one
// that was told to restart, and it is ready.
func awaitNext(ctx context.Context, cl *client.Client, was api.NodeReport, patience time.Duration) error {
	return waitFor(ctx, patience, nodeLook, func(ctx context.Context) error {
		now, unknown := memberNamed(ctx, cl, was.Node)
		switch {
		case unknown != nil:
			return unknown
		case now.Lease == nil || now.Lease.Incarnation == was.Incarnation:
			return fmt.Errorf("the other nodes have not met another incarnation of %s yet", was.Node)
		}
		return isReady(ctx, cl, now)
	})
}

func (a *app) printReport(format string, r api.NodeReport) error {
	if format == formatJSON {
		return a.writeJSON(r)
	}
	draining := strconv.FormatBool(r.Draining)
	return a.writeTable([]string{"NODE", "PHASE", "DRAINING", "TABLES", "CLAIM", "INCARNATION"}, [][]string{
		{r.Node, r.Phase, draining, strconv.Itoa(r.Owned), claimText(r.Claim), r.Incarnation.String()},
	})
}

// finalError is an error after which waiting on makes no sense.
type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }

// waitFor asks f every so often until it has no error. When the patience is over
// the error is f's last, with the code of what is not ready in time.
func waitFor(ctx context.Context, patience, every time.Duration, f func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last error
	for {
		err := f(limited)
		if err == nil {
			return nil
		}
		if final, ok := errors.AsType[*finalError](err); ok {
			return final.err
		}
		if limited.Err() == nil || last == nil {
			last = err
		}
		select {
		case <-tick.C:
		case <-limited.Done():
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return withCode(exitNotReady, fmt.Errorf("not within %s: %w", patience, last))
		}
	}
}

// memberNamed returns what the cluster knows of a node.
func memberNamed(ctx context.Context, cl *client.Client, node string) (api.Member, error) {
	s, err := cl.Status(ctx)
	if err != nil {
		return api.Member{}, err
	}
	var names []string
	for _, m := range s.Members {
		if m.Node == node {
			return m, nil
		}
		names = append(names, m.Node)
	}
	return api.Member{}, &finalError{withHint(
		&api.Error{Code: api.CodeNodeNotFound, Message: "there is no node " + node + " in cluster " + s.Cluster},
		"its nodes are "+strings.Join(names, ", "),
	)}
}

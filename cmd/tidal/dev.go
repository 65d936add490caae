package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
	"tidal/node/config"
)

const (
	devContext = "dev"    // name of the context, and of the cluster
	devTable   = "sample" // made with some rows in it

	devReady = 60 * time.Second // how long nodes may take to become ready
	devStop  = 60 * time.Second // how long they may take to stop
)

func (a *app) devCommand() *cli.Command {
	dir := &cli.StringFlag{Name: "dir", Usage: "`DIR` of everything: certificates, data, logs; made if missing"}
	return &cli.Command{
		Name:      "dev",
		Usage:     "run a cluster on this machine to try things out",
		UsageText: "tidal dev --dir DIR [--nodes 3] [--detach]\ntidal dev stop --dir DIR",
		Description: "Makes certificates, starts the nodes as processes of their own, makes the table sample and a\n" +
			"context named dev. Run again on the same DIR, it takes up where it stopped. Without --detach it\n" +
			"stays until Ctrl-C, and stops the nodes then.",
		Flags: []cli.Flag{
			dir,
			&cli.IntFlag{Name: "nodes", Usage: "how many nodes, 1 to 5", Value: 3},
			&cli.BoolFlag{Name: "detach", Usage: "return when the cluster is ready, and leave it running"},
		},
		Action: a.dev,
		Subcommands: []*cli.Command{{
			Name:      "stop",
			Usage:     "stop the cluster gracefully and keep its data",
			UsageText: "tidal dev stop --dir DIR",
			Flags:     []cli.Flag{dir},
			Action:    a.devStop,
		}},
	}
}

// devDir returns the absolute form of --dir.
func devDir(c *cli.Context) (string, error) {
	if _, err := argsOf(c); err != nil {
		return "", err
	}
	if c.String("dir") == "" {
		return "", withHint(usagef("%s: --dir is missing", c.Command.HelpName), "name a folder for its data, as in --dir ./dev")
	}
	return filepath.Abs(c.String("dir"))
}

func (a *app) dev(c *cli.Context) (err error) {
	dir, err := devDir(c)
	if err != nil {
		return err
	}
	want := 0
	if c.IsSet("nodes") {
		want = c.Int("nodes")
		if want < config.MinMembers || want > config.MaxMembers {
			return usagef("dev: --nodes %d: want %d to %d", want, config.MinMembers, config.MaxMembers)
		}
	}
	f, err := openFleet(dir, want, c.Int("nodes"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.close()) }()
	return a.devRun(c.Context, f, c.Bool("detach"))
}

// devRun runs the cluster until Ctrl-C, or, detached, until it is ready.
func (a *app) devRun(ctx context.Context, f *fleet, detach bool) error { //nolint:revive // the flag of the command line
	if err := f.awaitStops(ctx); err != nil {
		return err
	}
	if f.allRun() {
		a.say("the cluster in %s already runs; `tidal dev stop --dir %s` stops it", f.dir, f.dir)
		return a.printFleet(f)
	}
	err := a.devStart(ctx, f)
	if err != nil || detach {
		return err
	}
	a.say("\nCtrl-C stops the nodes; their data stays in %s", f.dir)
	return a.devAttend(ctx, f)
}

// devStart brings the cluster up. If that fails, the nodes that it started are
// stopped again.
func (a *app) devStart(ctx context.Context, f *fleet) error {
	if err := f.prepare(ctx); err != nil {
		return err
	}
	a.say("starting %d nodes in %s", len(f.state.Nodes), f.dir)
	err := f.start(ctx)
	if err == nil {
		err = a.devServe(ctx, f)
	}
	if err != nil {
		// Interrupted or not, what was started here does not stay behind.
		return errors.Join(err, f.stop(context.WithoutCancel(ctx)))
	}
	return nil
}

// devServe waits for the nodes and tells the user what there is.
func (a *app) devServe(ctx context.Context, f *fleet) error {
	to := target{clusterContext: f.context()}
	cl, err := to.connect()
	if err != nil {
		return err
	}
	defer cl.Close()
	if err = f.waitReady(ctx, cl); err != nil {
		return err
	}
	if err = fillSample(ctx, cl); err != nil {
		return fmt.Errorf("make table %s: %w", devTable, err)
	}
	path, err := a.contextsPath()
	if err != nil {
		return err
	}
	current, err := writeContext(path, devContext, f.context())
	if err != nil {
		return err
	}
	if err := a.printFleet(f); err != nil {
		return err
	}
	pick := ""
	if !current {
		pick = " --cluster " + devContext
	}
	a.say("table %s is there, and context %s in %s. Try:", devTable, devContext, path)
	a.say("  tidal tables list%s\n  tidal rows get %s hello%s\n  tidal status%s", pick, devTable, pick, pick)
	return nil
}

// fillSample makes the sample table. One that is there stays as it is: its rows
// are the user's by now.
func fillSample(ctx context.Context, cl *client.Client) error {
	_, created, err := cl.PutTable(ctx, devTable, api.TableSettings{})
	if err != nil || !created {
		return err
	}
	for _, row := range []struct{ key, value string }{
		{"hello", "world"},
		{"planet/earth", "third from the sun"},
		{"planet/mars", "fourth from the sun"},
	} {
		if _, err := cl.Put(ctx, devTable, row.key, []byte(row.value), client.WriteOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// devAttend stays with the nodes until the user or the last of them leaves.
func (a *app) devAttend(ctx context.Context, f *fleet) error {
	for len(f.running) > 0 {
		select {
		case end := <-f.ended:
			delete(f.running, end.node.ID)
			a.say("%s", end.text())
		case <-ctx.Done():
			a.say("stopping the nodes")
			return f.stop(context.WithoutCancel(ctx))
		}
	}
	return nil
}

func (a *app) devStop(c *cli.Context) error {
	dir, err := devDir(c)
	if err != nil {
		return err
	}
	f, err := readFleet(dir)
	if err != nil {
		return err
	}
	n := len(f.runningPIDs())
	if n == 0 {
		a.say("nothing runs in %s", dir)
		return nil
	}
	if err := f.stop(c.Context); err != nil {
		return err
	}
	a.say("stopped %d nodes in %s; `tidal dev --dir %s` takes up where they stopped", n, dir, dir)
	return nil
}

// printFleet writes the nodes to stdout.
func (a *app) printFleet(f *fleet) error {
	rows := make([][]string, 0, len(f.state.Nodes))
	for _, n := range f.state.Nodes {
		rows = append(rows, []string{n.ID, n.url(), strconv.Itoa(n.PID), f.logPath(n)})
	}
	return a.writeTable([]string{"NODE", "URL", "PID", "LOG"}, rows)
}

package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node/api"
	"tidal/node/client"
	"tidal/node/config"
)

const (
	benchSay  = 5 * time.Second  // between two words on how it goes
	benchDrop = 30 * time.Second // for dropping the tables at the end
	mostRate  = 1e9              // requests a second
)

func (a *app) benchCommand() *cli.Command {
	return &cli.Command{
		Name:      "bench",
		Usage:     "load a cluster and measure it: rate, times, what was refused",
		UsageText: "tidal bench [--clients N] [--reads PERCENT] [--rate N] [--for DURATION]",
		Description: "It makes tables of its own, and drops them at the end. Clients ask every node of the context in turn, each for one thing\n" +
			"at a time and never twice: what is not done at once is counted, by the reason. As many clients as there are ask as fast as\n" +
			"answers come; with --rate requests are due at fixed times, and what one waits for a free client counts as its time.\n" +
			"With Ctrl-C it prints what it has.",
		Flags: append(connectFlags(), outputFlag(),
			&cli.IntFlag{Name: "clients", Usage: "clients that write and read, `N`", DefaultText: "64"},
			&cli.Float64Flag{Name: "reads", Usage: "`PERCENT` of the clients' requests that are reads", DefaultText: "0"},
			&cli.IntFlag{Name: "writers", Usage: "clients that only write, `N`, instead of --clients"},
			&cli.IntFlag{Name: "readers", Usage: "clients that only read, `N`, instead of --clients"},
			&cli.IntFlag{Name: "tables", Usage: "tables to make, `N`", Value: 6},
			&cli.IntFlag{Name: "replicas", Usage: "copies of each table, `N`", DefaultText: "3, or as many as there are nodes"},
			&cli.IntFlag{Name: "keys", Usage: "rows in all, `N`; each request is for a random one", Value: 10_000},
			&cli.StringFlag{Name: "size", Usage: "`BYTES` of a value, as 128 or 4KiB", Value: "128"},
			&cli.Float64Flag{Name: "rate", Usage: "requests a second in all, `N`", DefaultText: "as fast as answers come"},
			&cli.StringFlag{Name: "for", Usage: "how long to measure, a `DURATION`", Value: "10s"},
			&cli.StringFlag{Name: "warmup", Usage: "how long to load it before that, a `DURATION`", Value: "2s"},
			&cli.BoolFlag{Name: "native", Usage: "over streams of frames, one to a node, straight to the owners; else over HTTP, a connection to each client and node"},
			consistencyFlag(),
		),
		Action: a.bench,
	}
}

// benchPlan is what the flags ask for.
type benchPlan struct {
	Writers  int     `json:"writers"`
	Readers  int     `json:"readers"`
	Mixed    int     `json:"clients"` // that write and read
	Reads    float64 `json:"reads_percent"`
	Tables   int     `json:"tables"`
	Replicas int     `json:"replicas,omitempty"` // 0: the default
	Keys     int     `json:"keys"`
	Size     int     `json:"size"`
	Rate     float64 `json:"rate,omitempty"` // 0: a closed loop
	Local    bool    `json:"local_reads"`
	Native   bool    `json:"native"` // over streams

	length, warmup time.Duration
}

// workers is how many clients there are in all.
func (p *benchPlan) workers() int { return p.Writers + p.Readers + p.Mixed }

// reads reports whether any request is a read.
func (p *benchPlan) reads() bool { return p.Readers > 0 || p.Mixed > 0 && p.Reads > 0 }

// benchPlanOf reads the flags.
func benchPlanOf(c *cli.Context) (benchPlan, error) {
	p := benchPlan{
		Writers: c.Int("writers"), Readers: c.Int("readers"), Mixed: c.Int("clients"), Reads: c.Float64("reads"),
		Tables: c.Int("tables"), Replicas: c.Int("replicas"), Keys: c.Int("keys"), Rate: c.Float64("rate"), Native: c.Bool("native"),
	}
	roles := c.IsSet("writers") || c.IsSet("readers")
	if roles && (c.IsSet("clients") || c.IsSet("reads")) {
		return p, withHint(usagef("bench: --writers and --readers do not go with --clients and --reads"),
			"the one pair has clients that do one thing, the other clients that do both")
	}
	if !roles && !c.IsSet("clients") {
		p.Mixed = 64
	}
	for _, f := range []struct {
		name        string
		n           int
		least, most int
	}{
		{"clients", p.Mixed, 0, 10_000},
		{"writers", p.Writers, 0, 10_000},
		{"readers", p.Readers, 0, 10_000},
		{"tables", p.Tables, 1, 10_000},
		{"replicas", p.Replicas, 0, api.MaxReplicas},
		{"keys", p.Keys, 1, 1_000_000_000},
	} {
		if f.n < f.least || f.n > f.most {
			return p, usagef("bench: --%s is %d: want %d to %d", f.name, f.n, f.least, f.most)
		}
	}
	switch {
	case p.workers() == 0:
		return p, usagef("bench: no clients: there is nothing to do")
	case !within(p.Reads, 0, 100):
		return p, usagef("bench: --reads is %g: want a percentage", p.Reads)
	case !within(p.Rate, 0, mostRate) || c.IsSet("rate") && p.Rate == 0:
		return p, usagef("bench: --rate is %g: want requests a second, up to %g", p.Rate, mostRate)
	}
	return p, p.words(c)
}

// within reports whether x is a number from least to most, which NaN is not.
func within(x, least, most float64) bool { return x >= least && x <= most }

// words reads the flags that are words.
func (p *benchPlan) words(c *cli.Context) error {
	size, err := config.ParseSize(c.String("size"))
	if err != nil || size > api.MaxValue {
		return withHint(usagef("bench: --size is %q: want 0 to %d bytes", c.String("size"), api.MaxValue), "it is a size, as 128 or 4KiB")
	}
	p.Size = int(size)
	for flag, to := range map[string]*time.Duration{"for": &p.length, "warmup": &p.warmup} {
		if *to, err = time.ParseDuration(c.String(flag)); err != nil || *to < 0 || flag == "for" && *to == 0 {
			return withHint(usagef("bench: --%s is %q", flag, c.String(flag)), "it is a duration above 0, as 30s or 10m; --warmup may be 0s")
		}
	}
	o, err := readOptions(c)
	p.Local = o.Local
	return err
}

func (a *app) bench(c *cli.Context) error {
	if _, err := argsOf(c); err != nil {
		return err
	}
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	plan, err := benchPlanOf(c)
	if err != nil {
		return err
	}
	t, err := a.target(c)
	if err != nil {
		return err
	}
	control, err := t.connect()
	if err != nil {
		return err
	}
	defer control.Close()
	a.say("cluster %s", t)
	load, err := t.connectWith(client.Options{Once: true, Conns: plan.workers(), Streams: plan.Native})
	if err != nil {
		return err
	}
	defer load.Close()
	b := newBench(plan, load)
	b.out.Cluster, b.out.Endpoints = t.name, t.Endpoints
	err = a.benchTables(c.Context, control, b)
	if err == nil {
		err = a.benchRun(c.Context, b)
	}
	err = errors.Join(err, a.benchClean(c.Context, control, b))
	if b.out.Seconds == 0 {
		return err // it did not come to measuring
	}
	if b.out.Unsent > 0 {
		a.say("%d requests were due and not sent: every client was busy; --clients has more", b.out.Unsent)
	}
	if format == formatJSON {
		return errors.Join(err, a.writeJSON(b.out))
	}
	return errors.Join(err, a.writeBench(&b.out))
}

// benchTables makes the tables.
func (a *app) benchTables(ctx context.Context, cl *client.Client, b *bench) error {
	name := "bench-" + strings.ToLower(rand.Text()[:6])
	a.say("making %d tables, %s-0 and so on; they are dropped at the end", b.plan.Tables, name)
	for i := range b.plan.Tables {
		// Before it is made: of one that may have been made, too, nothing is to stay.
		b.tables = append(b.tables, fmt.Sprintf("%s-%d", name, i))
		if _, _, err := cl.PutTable(ctx, b.tables[i], api.TableSettings{Replicas: b.plan.Replicas}); err != nil {
			if i == 0 && errors.Is(err, client.ErrUnreachable) {
				b.tables = nil // nobody was asked for it, nor would be
				return err
			}
			return fmt.Errorf("create table %s: %w", b.tables[i], err)
		}
	}
	return nil
}

// benchClean drops the tables, also when ctx has ended.
func (a *app) benchClean(ctx context.Context, cl *client.Client, b *bench) error {
	if ctx.Err() != nil {
		a.say("dropping the tables; a second Ctrl-C leaves them")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), benchDrop)
	defer cancel()
	var all error
	for _, name := range b.tables {
		err := cl.DropTable(ctx, name)
		if err != nil && api.CodeOf(err) != api.CodeTableNotFound {
			all = errors.Join(all, withHint(fmt.Errorf("drop table %s: %w", name, err), "tidal tables drop "+name+" --yes"))
		}
	}
	return all
}

// benchRun writes the rows that are to be read, warms up, and measures.
func (a *app) benchRun(ctx context.Context, b *bench) error {
	if b.plan.reads() {
		a.say("writing %d rows to read", b.plan.Keys)
		if err := b.fill(ctx); err != nil {
			return err
		}
	}
	if b.plan.warmup > 0 {
		a.say("warming up for %s", b.plan.warmup)
		err := b.load(ctx, b.plan.warmup, func(time.Duration) {})
		b.forget()
		if err != nil {
			return err
		}
	}
	a.say("measuring for %s", b.plan.length)
	return b.load(ctx, b.plan.length, func(since time.Duration) {
		w, r := b.write.glance(), b.read.glance()
		a.say("%5.0f s  %8.0f requests/s  %d not done", since.Seconds(), float64(w.done+r.done)/since.Seconds(), w.failed+r.failed)
	})
}

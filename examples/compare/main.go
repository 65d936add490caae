// Command compare measures tidal, etcd and NATS JetStream side by side on one
// machine: three nodes each, durable writes, mutual TLS. See README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const nodes = 3

// store is a cluster of three processes under test. do is one attempt: it never
// retries, and nil means that a write was acknowledged as durable.
type store interface {
	start(ctx context.Context, dir string, tables int) error
	can(o op) bool
	do(ctx context.Context, o op, r request) error
	restart(ctx context.Context, node int) (time.Duration, error)
	pids() []int
	stop()
}

// contender is a store that takes part.
type contender struct {
	name  string
	fresh func() store
	cells map[string][]cell // by test
}

// test is one thing that is measured.
type test struct {
	name string
	load
}

// The names of tests, or parts of them.
const (
	writes      = "writes"
	reads       = "reads"
	overStreams = " over streams"
	oneClient   = ", one client"
	batches     = "rows in batches of 100, 16 clients"
	restarts    = "restart with 100,000 rows"
)

// tests are the measurements, in the order in which a cluster goes through them.
func tests(l load) []test {
	as := func(name string, o op, clients int) test {
		t := test{name, l}
		t.op, t.clients = o, clients
		return t
	}
	return []test{
		as(restarts, restart, 1), // before anything but the rows is there
		as(writes+many(l), write, l.clients),
		as(writes+overStreams+many(l), streamWrite, l.clients),
		as(writes+oneClient, write, 1),
		as(reads+many(l), read, l.clients),
		as(reads+overStreams+many(l), streamRead, l.clients),
		as(batches, batch, 16),
		as(batches+overStreams, streamBatch, 16),
	}
}

// many is how the names of tests with many clients end.
func many(l load) string { return fmt.Sprintf(", %d clients", l.clients) }

func main() {
	var l load
	tidal := flag.String("tidal", "", "the tidal binary")
	etcd := flag.String("etcd", "", "the etcd binary; without it etcd is left out")
	nats := flag.String("nats", "", "the nats-server binary; without it NATS is left out")
	dir := flag.String("dir", "", "folder for data, on the disk to be measured (default: a temporary one)")
	rounds := flag.Int("rounds", 3, "rounds; each measures every store once, in another order")
	flag.IntVar(&l.clients, "clients", 64, "clients, each with one write at a time")
	flag.IntVar(&l.bytes, "bytes", 128, "bytes of a value")
	flag.IntVar(&l.tables, "tables", 6, "tables (tidal), key prefixes (etcd), streams (NATS)")
	flag.DurationVar(&l.length, "d", 3*time.Second, "length of a measurement, after a fifth of that to warm up")
	only := flag.String("test", "", "measure only what has this in its name: writes, streams, one client, reads, restart")
	flag.Parse()

	var all []*contender
	for _, c := range []struct {
		name, bin string
		fresh     func(bin string) store
	}{{"tidal", *tidal, newTidal}, {"etcd", *etcd, newEtcd}, {"nats", *nats, newNATS}} {
		if c.bin != "" {
			all = append(all, &contender{name: c.name, fresh: func() store { return c.fresh(c.bin) }, cells: map[string][]cell{}})
		}
	}
	if len(all) == 0 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "compare: name at least one of -tidal, -etcd, -nats; -h shows all flags")
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	list := slices.DeleteFunc(tests(l), func(t test) bool { return !strings.Contains(t.name, *only) })
	began := time.Now()
	err := run(ctx, all, list, *dir, *rounds)
	report(os.Stdout, all, list) // of what there is
	figures(os.Stdout, all, many(l))
	fmt.Fprintf(os.Stderr, "%d rounds took %s\n", *rounds, time.Since(began).Round(time.Second))
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// run measures every contender once a round, the first one a place later each time. It
// goes on after a failure, unless ctx ends.
func run(ctx context.Context, all []*contender, list []test, dir string, rounds int) error {
	tmp, err := os.MkdirTemp(dir, "compare-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	var failed error
	for round := range rounds {
		for i := range all {
			c := all[(i+round)%len(all)]
			err := measure(ctx, c, list, filepath.Join(tmp, fmt.Sprintf("%s-%d", c.name, round)))
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s, round %d: %w", c.name, round+1, err))
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	return failed
}

// measure starts a store on an empty folder, takes it through the tests, and ends it. One
// that fails is left out.
func measure(ctx context.Context, c *contender, list []test, dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s := c.fresh()
	defer s.stop()
	if err := s.start(ctx, dir, list[0].tables); err != nil {
		return err
	}
	if s.can(batch) {
		if err := fill(ctx, s, list[0].load); err != nil {
			return fmt.Errorf("write the rows: %w", err)
		}
	}
	var failed error
	for _, t := range list {
		if !s.can(t.op) {
			continue
		}
		got, err := t.measure(ctx, s)
		if err != nil {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", t.name, err))
			continue
		}
		fmt.Fprintf(os.Stderr, "%-6s %-48s %s\n", c.name, t.name, got)
		c.cells[t.name] = append(c.cells[t.name], got)
	}
	return failed
}

func (t test) measure(ctx context.Context, s store) (cell, error) {
	if t.op == restart {
		return t.restarts(ctx, s)
	}
	warm := t.load
	warm.length /= 5
	if _, err := warm.run(ctx, s); err != nil {
		return cell{}, err
	}
	return t.run(ctx, s)
}

// fill writes every row, in batches: reads are to find them.
func fill(ctx context.Context, s store, l load) error {
	l.op, l.each, l.clients = batch, true, 16
	c, err := l.run(ctx, s)
	if err == nil && c.failed > 0 {
		err = fmt.Errorf("%.0f failed: %s", c.failed, c.failure)
	}
	return err
}

// restarts restarts each node once.
func (t test) restarts(ctx context.Context, s store) (cell, error) {
	var took []float64
	for i := range nodes {
		d, err := s.restart(ctx, i)
		if err != nil {
			return cell{}, err
		}
		took = append(took, float64(d.Microseconds())/1000)
	}
	slices.Sort(took)
	return cell{p50: took[len(took)/2], p99: took[len(took)-1], loadAvg: loadAverage()}, nil
}

// report prints for each test the contenders' medians, and tidal's as ratios to the
// others'. What goes over streams is held against tidal's HTTP.
func report(w io.Writer, all []*contender, list []test) {
	fmt.Fprintln(w, "| test | store | rounds | per second | p50 ms | p99 ms | CPU s per 100,000 | failed | load average | tidal: rate × | p50 × | p99 × | CPU × |")
	fmt.Fprintln(w, "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	for _, t := range list {
		var base *cell
		for _, c := range all {
			cells := c.cells[t.name]
			if len(cells) == 0 {
				continue
			}
			m := median(cells)
			against := &m
			if plain := strings.Replace(t.name, overStreams, "", 1); c.name == "tidal" {
				base, against = &m, nil
				if other := c.cells[plain]; plain != t.name && len(other) > 0 {
					o := median(other)
					against = &o
				}
			}
			ratios := "| | | |"
			if base != nil && against != nil {
				ratios = fmt.Sprintf("%s | %s | %s | %s |", ratio(base.perSecond, against.perSecond), ratio(base.p50, against.p50),
					ratio(base.p99, against.p99), ratio(base.cpu, against.cpu))
			}
			fmt.Fprintf(w, "| %s | %s | %d | %.0f | %.2f | %.2f | %.1f | %.0f | %.1f | %s\n", t.name, c.name, len(cells),
				m.perSecond, m.p50, m.p99, m.cpu, m.failed, m.loadAvg, ratios)
		}
	}
}

func ratio(a, b float64) string {
	if b == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", a/b)
}

// median is the middle of each figure over the cells.
func median(cells []cell) cell {
	mid := func(get func(cell) float64) float64 {
		var v []float64
		for _, c := range cells {
			v = append(v, get(c))
		}
		slices.Sort(v)
		return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
	}
	return cell{
		perSecond: mid(func(c cell) float64 { return c.perSecond }),
		p50:       mid(func(c cell) float64 { return c.p50 }),
		p99:       mid(func(c cell) float64 { return c.p99 }),
		cpu:       mid(func(c cell) float64 { return c.cpu }),
		failed:    mid(func(c cell) float64 { return c.failed }),
		loadAvg:   mid(func(c cell) float64 { return c.loadAvg }),
	}
}

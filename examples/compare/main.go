// Command compare measures tidal, etcd and NATS JetStream side by side on one
// machine: three nodes each, durable writes, mutual TLS. See README.md.
package main

import (
	"context"
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

// store is a cluster of three processes under test. put is one attempt: it never
// retries, and nil means that the write was acknowledged as durable.
type store interface {
	start(ctx context.Context, dir string, tables int) error
	put(ctx context.Context, node, table int, key string, value []byte) error
	pids() []int
	stop()
}

// contender is a store that takes part.
type contender struct {
	name  string
	fresh func() store
	cells []cell
}

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
	flag.DurationVar(&l.length, "d", 10*time.Second, "length of a measurement, after a fifth of that to warm up")
	flag.Parse()

	var all []*contender
	for _, c := range []struct {
		name, bin string
		fresh     func(bin string) store
	}{{"tidal", *tidal, newTidal}, {"etcd", *etcd, newEtcd}, {"nats", *nats, newNATS}} {
		if c.bin != "" {
			all = append(all, &contender{name: c.name, fresh: func() store { return c.fresh(c.bin) }})
		}
	}
	if len(all) == 0 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "compare: name at least one of -tidal, -etcd, -nats; -h shows all flags")
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, all, l, *dir, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
	report(os.Stdout, all)
}

// run measures every contender once a round, the first one a place later each time.
func run(ctx context.Context, all []*contender, l load, dir string, rounds int) error {
	tmp, err := os.MkdirTemp(dir, "compare-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	for round := range rounds {
		for i := range all {
			c := all[(i+round)%len(all)]
			got, err := measure(ctx, c.fresh(), l, filepath.Join(tmp, fmt.Sprintf("%s-%d", c.name, round)))
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Fprintf(os.Stderr, "round %d  %-6s %s\n", round+1, c.name, got)
			c.cells = append(c.cells, got)
		}
	}
	return nil
}

// measure starts a store on an empty folder, loads it and ends it.
func measure(ctx context.Context, s store, l load, dir string) (cell, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return cell{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	defer s.stop()
	if err := s.start(ctx, dir, l.tables); err != nil {
		return cell{}, err
	}
	warm := l
	warm.length /= 5
	if _, err := warm.run(ctx, s); err != nil {
		return cell{}, err
	}
	return l.run(ctx, s)
}

// report prints each contender's medians, and tidal's as ratios to the others.
func report(w io.Writer, all []*contender) {
	fmt.Fprintln(w, "| store | rounds | writes/s | p50 ms | p99 ms | CPU s per 100,000 | failed | load average | tidal: writes × | p99 × | CPU × |")
	fmt.Fprintln(w, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
	var base *cell
	for _, c := range all {
		m := median(c.cells)
		if c.name == "tidal" {
			base = &m
		}
		ratios := []string{"", "", ""}
		if base != nil && c.name != "tidal" {
			ratios = []string{ratio(base.perSecond, m.perSecond), ratio(base.p99, m.p99), ratio(base.cpu, m.cpu)}
		}
		fmt.Fprintf(w, "| %s | %d | %.0f | %.2f | %.2f | %.1f | %.0f | %.1f | %s |\n", c.name, len(c.cells),
			m.perSecond, m.p50, m.p99, m.cpu, m.failed, m.loadAvg, strings.Join(ratios, " | "))
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

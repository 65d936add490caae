package main

import (
	"fmt"
	"io"
)

// figure is one that tidal is to reach.
type figure struct {
	name   string
	test   string // tidal's, with so many clients as the tests have
	of     func(cell) float64
	store  string // that it is divided by; "": none
	plain  string // tidal's own test that it is divided by; "": none
	bound  float64
	atMost bool // else at least
}

func perSecond(c cell) float64 { return c.perSecond }
func middle(c cell) float64    { return c.p50 }
func slowest(c cell) float64   { return c.p99 }
func cpu(c cell) float64       { return c.cpu }

// wanted are the figures that tidal is to reach.
func wanted() []figure {
	return []figure{
		{name: "CPU of a write, of etcd's", test: writes, of: cpu, store: "etcd", bound: 0.6, atMost: true},
		{name: "CPU of a write, of NATS's", test: writes, of: cpu, store: "nats", bound: 0.75, atMost: true},
		{name: "writes, of etcd's", test: writes, of: perSecond, store: "etcd", bound: 1.3},
		{name: "writes, of NATS's", test: writes, of: perSecond, store: "nats", bound: 1},
		{name: "p99 of writes, of etcd's", test: writes, of: slowest, store: "etcd", bound: 0.6, atMost: true},
		{name: "p50 of one client's writes, of etcd's", test: writes + oneClient, of: middle, store: "etcd", bound: 0.8, atMost: true},
		{name: "linearizable reads, of etcd's", test: reads, of: perSecond, store: "etcd", bound: 1.5},
		{name: "rows a second in batches", test: batches, of: perSecond, bound: 60_000},
		{name: "writes over streams, of those over HTTP", test: writes + overStreams, of: perSecond, plain: writes, bound: 2},
		{name: "restart to ready, of etcd's", test: restarts, of: middle, store: "etcd", bound: 1, atMost: true},
	}
}

// figures prints which of those that are wanted were reached.
func figures(w io.Writer, all []*contender, many string) {
	stores := map[string]*contender{}
	for _, c := range all {
		stores[c.name] = c
	}
	full := func(test string) string {
		switch test {
		case writes, reads, writes + overStreams:
			return test + many
		}
		return test
	}
	value := func(f figure, store, test string) (float64, bool) {
		c := stores[store]
		if c == nil || len(c.cells[full(test)]) == 0 {
			return 0, false
		}
		return f.of(median(c.cells[full(test)])), true
	}
	fmt.Fprintln(w, "\n| figure | wanted | measured | |\n| --- | ---: | ---: | --- |")
	for _, f := range wanted() {
		is, known := value(f, "tidal", f.test)
		form := "%.0f"
		if f.store != "" || f.plain != "" {
			form = "%.2f"
			store, test := f.store, f.test
			if f.plain != "" {
				store, test = "tidal", f.plain
			}
			base, there := value(f, store, test)
			is /= base
			known = known && there
		}
		word, reached := "at least", is >= f.bound
		if f.atMost {
			word, reached = "at most", is <= f.bound
		}
		measured, verdict := fmt.Sprintf(form, is), "missed"
		if form == "%.2f" {
			measured = fmt.Sprintf("%.3f", is) // so that just missed looks it
		}
		switch {
		case !known:
			measured, verdict = "-", "not measured"
		case reached:
			verdict = "reached"
		}
		fmt.Fprintf(w, "| %s | %s "+form+" | %s | %s |\n", f.name, word, f.bound, measured, verdict)
	}
}

package main

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/tui"
)

func (a *app) checkCommand() *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "hold a cluster to conditions, for scripts and monitoring",
		Description: "It asks once, prints each condition with what it found, and ends with 10 if one does not hold. Without flags\n" +
			"the condition is that nothing is degraded. What is not known does not hold.",
		UsageText: "tidal check [--max-lag N] [--min-ready N] [--cert-days N]",
		Flags: append(connectFlags(), outputFlag(),
			&cli.Int64Flag{Name: "max-lag", Usage: "no replica lacks more than so many `ENTRIES`", Value: -1, DefaultText: "not checked"},
			&cli.IntFlag{Name: "min-ready", Usage: "so many `NODES` at least are ready", Value: -1, DefaultText: "not checked"},
			&cli.IntFlag{Name: "cert-days", Usage: "no node's certificate expires within so many `DAYS`", Value: -1, DefaultText: "not checked"},
		),
		Action: a.check,
	}
}

// condition is one thing that was checked.
type condition struct {
	Name  string `json:"name"`
	Holds bool   `json:"holds"`
	Found string `json:"found"`
}

func (a *app) check(c *cli.Context) error {
	if _, err := argsOf(c); err != nil {
		return err
	}
	for name, n := range map[string]int64{"max-lag": c.Int64("max-lag"), "min-ready": int64(c.Int("min-ready")), "cert-days": int64(c.Int("cert-days"))} {
		if c.IsSet(name) && n < 0 { // else it would not be checked
			return usagef("check: --%s is %d: want 0 or more", name, n)
		}
	}
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	t, err := a.target(c)
	if err != nil {
		return err
	}
	cl, err := t.connect()
	if err != nil {
		return err
	}
	defer cl.Close()
	r, err := tui.Once(c.Context, cl, tui.Options{Cluster: t.short()})
	if err != nil {
		return fmt.Errorf("ask for the status: %w", err)
	}
	list := conditions(c, r)
	if format == formatJSON {
		err = a.writeJSON(map[string][]condition{"conditions": list})
	} else {
		rows := make([][]string, 0, len(list))
		for _, x := range list {
			rows = append(rows, []string{x.Name, map[bool]string{true: "ok", false: "FAILED"}[x.Holds], x.Found})
		}
		err = a.writeTable([]string{"CONDITION", "RESULT", "FOUND"}, rows)
	}
	if err != nil {
		return err
	}
	var failed []string
	for _, x := range list {
		if !x.Holds {
			failed = append(failed, x.Name+": "+x.Found)
		}
	}
	if len(failed) > 0 {
		return withCode(exitDegraded, errors.New("it does not hold: "+strings.Join(failed, "; ")))
	}
	return nil
}

// conditions checks what the flags ask for; that nothing is degraded if they ask for
// nothing.
func conditions(c *cli.Context, r *tui.Report) []condition {
	var out []condition
	if n := c.Int64("max-lag"); n >= 0 {
		out = append(out, maxLag(r, n))
	}
	if n := c.Int("min-ready"); n >= 0 {
		out = append(out, minReady(r, n))
	}
	if n := c.Int("cert-days"); n >= 0 {
		out = append(out, certDays(r, n))
	}
	if len(out) > 0 {
		return out
	}
	found := "nothing"
	if r.Degraded {
		found = strings.Join(r.Problems, "; ")
	}
	return []condition{{"degraded", !r.Degraded, found}}
}

func maxLag(r *tui.Report, most int64) condition {
	x := condition{Name: fmt.Sprintf("max-lag %d", most)}
	w := r.Status.Window
	switch {
	case w == nil || w.MaxLag == nil && w.Total > 0:
		x.Found = "no replica says how far it is"
	case w.Unknown > 0:
		x.Found = fmt.Sprintf("%d replicas do not say how far they are", w.Unknown)
	case w.Total == 0:
		x.Holds, x.Found = true, "there is no table"
	default:
		x.Holds, x.Found = *w.MaxLag <= most, fmt.Sprintf("the replica furthest behind lacks %d entries", *w.MaxLag)
	}
	return x
}

func minReady(r *tui.Report, least int) condition {
	ready := 0
	var others []string
	for _, n := range r.Nodes {
		if n.Reachable && n.Local.Ready {
			ready++
		} else {
			others = append(others, n.Node)
		}
	}
	x := condition{
		Name: fmt.Sprintf("min-ready %d", least), Holds: ready >= least,
		Found: fmt.Sprintf("%d of %d nodes are ready", ready, len(r.Nodes)),
	}
	if len(others) > 0 {
		x.Found += ", and not " + strings.Join(others, ", ")
	}
	return x
}

func certDays(r *tui.Report, days int) condition {
	x := condition{Name: fmt.Sprintf("cert-days %d", days), Holds: true}
	left, who := math.Inf(1), ""
	var silent []string
	for _, n := range r.Nodes {
		switch {
		case !n.Reachable:
			silent = append(silent, n.Node)
		case n.Local.Certificate != nil:
			if d := time.Until(*n.Local.Certificate).Hours() / 24; d < left {
				left, who = d, n.Node
			}
		}
	}
	x.Found = "no node has a certificate"
	if who != "" {
		x.Found = fmt.Sprintf("the first to expire is node %s's, in %.1f days", who, left)
		x.Holds = left > float64(days)
	}
	if len(silent) > 0 {
		x.Holds = false
		x.Found += "; nobody knows of " + strings.Join(silent, ", ")
	}
	return x
}

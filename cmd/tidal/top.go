package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"tidal/node/client"
	"tidal/tui"
)

func (a *app) topCommand() *cli.Command {
	return &cli.Command{
		Name:  "top",
		Usage: "watch a cluster: nodes, tables and what happens",
		Description: "On a terminal it shows the cluster until you press q; ? says which keys there are. It stays when the cluster\n" +
			"goes, and says how old what it shows is.\n" +
			"With --once, with -o json, and when the output is no terminal, it prints what there is and ends: with 10,\n" +
			"and why, if the cluster is degraded.",
		Flags: append(connectFlags(), outputFlag(),
			&cli.BoolFlag{Name: "once", Usage: "print what there is, and end"},
			&cli.StringFlag{Name: "sort", Usage: "`COLUMN` that tables are sorted by, with a minus for the other way round, as in --sort=-lag", Value: "name"},
			&cli.StringFlag{Name: "filter", Usage: "show the tables that match, as in: owner=a lag>100"},
			&cli.StringFlag{Name: "interval", Usage: "between two looks, a `DURATION`", Value: tui.DefaultInterval.String()},
			&cli.BoolFlag{Name: "read-only", Usage: "offer no action that changes anything"},
			&cli.StringFlag{Name: "theme", Usage: strings.Join(tui.Themes(), ", "), Value: "auto"},
			&cli.BoolFlag{Name: "ascii", Usage: "draw with ASCII alone; so it is anyway where the locale is not UTF-8"},
		),
		Action: a.top,
	}
}

// Bounds of --interval.
const (
	minInterval = 100 * time.Millisecond
	maxInterval = time.Minute
)

func (a *app) top(c *cli.Context) error {
	if _, err := argsOf(c); err != nil {
		return err
	}
	format, err := formatOf(c)
	if err != nil {
		return err
	}
	o, err := a.topOptions(c)
	if err != nil {
		return err
	}
	out, screen := a.stdout.(*os.File)
	screen = screen && format == formatTable && !c.Bool("once") && term.IsTerminal(int(out.Fd()))
	if screen && !a.isScreen() {
		return a.watchScreen(c.Context, out)
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
	o.Source, o.Journal, o.Cluster = cl, cl, t.short()
	if !screen {
		return a.topOnce(c, cl, o, format)
	}
	ctx, err := asScreen(c.Context)
	if err != nil {
		return err
	}
	a.look(&o)
	o.In, o.Out = a.stdin, out
	r := newTopRoller(a, c, cl)
	o.Roller = r
	return errors.Join(topError(tui.Run(ctx, o)), r.leave(ctx))
}

// topOptions reads the flags.
func (a *app) topOptions(c *cli.Context) (tui.Options, error) {
	interval, err := time.ParseDuration(c.String("interval"))
	if err != nil || interval < minInterval || interval > maxInterval {
		return tui.Options{}, usagef("top: --interval is %q: want %s to %s, as in 500ms", c.String("interval"), minInterval, maxInterval)
	}
	o := tui.Options{
		By: claimant(), Theme: c.String("theme"), ASCII: c.Bool("ascii"), ReadOnly: c.Bool("read-only"),
		Sort: c.String("sort"), Filter: c.String("filter"), Interval: interval, Fault: a.fault(),
	}
	if !slices.Contains(tui.Themes(), o.Theme) {
		return o, usagef("top: there is no theme %q: the themes are %s", o.Theme, strings.Join(tui.Themes(), ", "))
	}
	if err = tui.CheckTables(o.Sort, o.Filter); err != nil {
		return o, withCode(exitUsage, err)
	}
	return o, nil
}

// look fills in what the terminal is like.
func (a *app) look(o *tui.Options) {
	env := func(name string) string { v, _ := a.env(name); return v }
	locale := env("LC_ALL")
	for _, name := range []string{"LC_CTYPE", "LANG"} {
		if locale == "" {
			locale = env(name)
		}
	}
	utf8 := strings.Contains(strings.ToLower(strings.ReplaceAll(locale, "-", "")), "utf8")
	o.ASCII = o.ASCII || !utf8
	o.NoColor = env("NO_COLOR") != ""
	o.Tmux = env("TMUX") != ""
	if env("TERM") == "dumb" {
		o.Theme, o.ASCII, o.NoColor = "mono", true, true
	}
	// A terminal that says nothing of its background is taken for a dark one. The
	// number is the background's: 7 and from 9 on are light.
	if _, background, ok := strings.Cut(env("COLORFGBG"), ";"); ok && o.Theme == "auto" {
		if i := strings.LastIndex(background, ";"); i >= 0 {
			background = background[i+1:]
		}
		if background == "7" || background >= "9" || len(background) > 1 {
			o.Theme = "light"
		}
	}
}

// topError gives a screen that was interrupted its exit code.
func topError(err error) error {
	if errors.Is(err, tui.ErrInterrupted) {
		return withCode(exitInterrupted, err)
	}
	return err
}

// topOnce prints what there is now.
func (a *app) topOnce(c *cli.Context, cl *client.Client, o tui.Options, format string) error {
	r, err := tui.Once(c.Context, cl, o)
	if err != nil {
		return fmt.Errorf("ask for the status: %w", err)
	}
	if format == formatJSON {
		err = a.writeJSON(r)
	} else {
		err = r.Write(a.stdout)
	}
	if err != nil {
		return err
	}
	if r.Degraded {
		return withCode(exitDegraded, errors.New("degraded: "+strings.Join(r.Problems, "; ")))
	}
	return nil
}

// short names the target in a word.
func (t target) short() string {
	if t.name != "" {
		return t.name
	}
	return strings.TrimPrefix(strings.TrimPrefix(t.Endpoints[0], "https://"), "http://")
}

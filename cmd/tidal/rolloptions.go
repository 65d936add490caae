package main

import (
	"time"

	"github.com/urfave/cli/v2"

	"tidal/roll"
)

// rollFlags say how to roll.
func rollFlags() []cli.Flag {
	return append(append(connectFlags(), outputFlag()), planFlags()...)
}

// planFlags are those of them that a plan keeps.
func planFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "only", Usage: "roll this `NODE` (may be repeated)", DefaultText: "every node"},
		&cli.StringSliceFlag{Name: "skip", Usage: "leave this `NODE` alone (may be repeated)"},
		&cli.IntFlag{Name: "max-unavailable", Usage: "how many nodes may be down at once, if every quorum survives that", Value: 1},
		&cli.BoolFlag{Name: "by-zone", Usage: "with --max-unavailable, nodes that are down together are of one zone"},
		&cli.IntFlag{Name: "pause-after", Usage: "pause after so many nodes", DefaultText: "never"},
		&cli.StringFlag{Name: "settle", Usage: "how long a node must stay ready before the next, a `DURATION`", Value: "10s"},
		&cli.StringFlag{Name: "stall", Usage: "how long nothing may move before the roll pauses, a `DURATION`", Value: "60s"},
		&cli.Uint64Flag{Name: "max-refusals", Usage: "pause when more requests than this were refused"},
		&cli.BoolFlag{Name: "allow-unavailable", Usage: "also roll nodes that tables with a single replica depend on"},
		&cli.StringFlag{Name: "upgrade-to", Usage: "`VERSION` that every node must run afterwards; those that do are left alone"},
		binaryFlag(),
		&cli.StringFlag{Name: "driver", Usage: "who restarts a node: inplace (it does), exec (a command) or manual (you)", Value: roll.DriverInPlace},
		&cli.StringFlag{Name: "command", Usage: "`COMMAND` for the shell that restarts a node, with {node}, {host}, {label} and {address}; or the preset systemd-ssh or fly-machines", DefaultText: "none"},
		&cli.StringFlag{Name: "hook-before", Usage: "`COMMAND` for the shell before each node, with TIDAL_NODE and TIDAL_ROLL set; it pauses if that fails"},
		&cli.StringFlag{Name: "hook-after", Usage: "`COMMAND` for the shell after each node"},
	}
}

func binaryFlag() cli.Flag {
	return &cli.StringFlag{Name: "binary", Usage: "`FILE` that every node is to run; it is sent to them, and checked, before the first stop"}
}

// aloneWithPlan refuses flags that a plan keeps beside --plan: those that it was made
// with hold.
func aloneWithPlan(c *cli.Context) error {
	if c.String("plan") == "" {
		return nil
	}
	for _, name := range flagNames(planFlags()) {
		if c.IsSet(name) {
			return withHint(usagef("%s: --%s and --plan: a plan holds the flags that it was made with", c.Command.HelpName, name),
				"make another plan: tidal roll plan --out FILE")
		}
	}
	return nil
}

// rollDefaults are the flags of a roll that the operator's file has for a cluster,
// in [clusters.NAME.roll].
type rollDefaults struct {
	Driver           string `toml:"driver"`
	Command          string `toml:"command"`
	MaxUnavailable   int    `toml:"max_unavailable"`
	ByZone           bool   `toml:"by_zone"`
	PauseAfter       int    `toml:"pause_after"`
	Settle           string `toml:"settle"`
	Stall            string `toml:"stall"`
	MaxRefusals      uint64 `toml:"max_refusals"`
	AllowUnavailable bool   `toml:"allow_unavailable"`
	HookBefore       string `toml:"hook_before"`
	HookAfter        string `toml:"hook_after"`
}

// flagOr returns what a flag says, or what the file does if the flag is not there.
func flagOr[T comparable](c *cli.Context, name string, flag func(string) T, file T) T {
	var unset T
	if !c.IsSet(name) && file != unset {
		return file
	}
	return flag(name)
}

// rollOptions reads the flags that rollFlags makes, and the operator's file.
func (a *app) rollOptions(c *cli.Context) (roll.Options, error) {
	t, err := a.target(c)
	if err != nil {
		return roll.Options{}, err
	}
	return optionsOf(c, t.Roll)
}

// optionsOf reads the flags over what the file has.
func optionsOf(c *cli.Context, file rollDefaults) (roll.Options, error) {
	if c.IsSet("driver") && c.String("driver") != file.Driver {
		file.Command = "" // which is another driver's
	}
	o := roll.Options{
		Only: c.StringSlice("only"), Skip: c.StringSlice("skip"), Version: c.String("upgrade-to"),
		MaxUnavailable:   flagOr(c, "max-unavailable", c.Int, file.MaxUnavailable),
		ByZone:           flagOr(c, "by-zone", c.Bool, file.ByZone),
		PauseAfter:       flagOr(c, "pause-after", c.Int, file.PauseAfter),
		MaxRefusals:      flagOr(c, "max-refusals", c.Uint64, file.MaxRefusals),
		AllowUnavailable: flagOr(c, "allow-unavailable", c.Bool, file.AllowUnavailable),
		Driver:           flagOr(c, "driver", c.String, file.Driver),
		Command:          roll.Preset(flagOr(c, "command", c.String, file.Command)),
		HookBefore:       flagOr(c, "hook-before", c.String, file.HookBefore),
		HookAfter:        flagOr(c, "hook-after", c.String, file.HookAfter),
	}
	for _, d := range []struct {
		flag, file string
		to         *time.Duration
	}{{"settle", file.Settle, &o.Settle}, {"stall", file.Stall, &o.Stall}} {
		text := flagOr(c, d.flag, c.String, d.file)
		var err error
		*d.to, err = time.ParseDuration(text)
		if err != nil || *d.to < 0 || d.flag == "stall" && *d.to < time.Second {
			return o, withHint(usagef("%s: --%s is %q", c.Command.HelpName, d.flag, text), "it is a duration, as 30s or 10m; a stall is at least 1s")
		}
	}
	switch o.Driver {
	case roll.DriverInPlace, roll.DriverExec, roll.DriverManual:
	default:
		return o, withHint(usagef("%s: unknown driver %q", c.Command.HelpName, o.Driver), "it is inplace, exec or manual")
	}
	if (o.Driver == roll.DriverExec) != (o.Command != "") {
		return o, withHint(usagef("%s: --driver exec and --command go together", c.Command.HelpName), "as in --driver exec --command systemd-ssh")
	}
	if o.MaxUnavailable < 1 || o.PauseAfter < 0 {
		return o, usagef("%s: --max-unavailable is %d and --pause-after %d: want at least 1 and 0", c.Command.HelpName, o.MaxUnavailable, o.PauseAfter)
	}
	if c.IsSet("by-zone") && o.ByZone && o.MaxUnavailable < 2 { // in the file it is a rule for whoever rolls more at once
		return o, withHint(usagef("%s: --by-zone, and one node at a time", c.Command.HelpName), "how many of a zone may be down at once? as in --by-zone --max-unavailable 2")
	}
	return o, nil
}

package main

import (
	"regexp"

	"github.com/urfave/cli/v2"
)

// flagError says what is wrong with a command line in words that do not need the
// flag library's.
func flagError(c *cli.Context, err error) error {
	m := regexp.MustCompile(`^(?:Incorrect Usage: )?invalid (?:boolean )?value "(.*)" for (?:flag )?-+([a-z-]+): `).FindStringSubmatch(err.Error())
	if m == nil {
		return usagef("%s: %w", c.Command.HelpName, err)
	}
	value, name := m[1], m[2]
	return withHint(usagef("%s: %s: %q is not %s", c.Command.HelpName, dashed(name), value, wants(c.Command.Flags, name)),
		"`"+c.Command.HelpName+" --help` lists the flags with their forms")
}

// wants says what belongs behind a flag.
func wants(flags []cli.Flag, name string) string {
	for _, f := range flags {
		for _, n := range f.Names() {
			if n != name {
				continue
			}
			switch f.(type) {
			case *cli.DurationFlag:
				return "a time with its unit, as 30s or 5m"
			case *cli.IntFlag, *cli.Int64Flag:
				return "a whole number"
			case *cli.UintFlag, *cli.Uint64Flag:
				return "a whole number from 0 on"
			case *cli.Float64Flag:
				return "a number"
			case *cli.BoolFlag:
				return "true or false"
			}
		}
	}
	return "of its form"
}

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"tidal/node/config"
)

// The flag package stops at the first argument, so that in `rows put t k -o json`
// the flag would be an argument. arrange puts a command line into the order that
// it understands, which lets flags stand anywhere.

// line is a command line taken apart.
type line struct {
	path  []*cli.Command // from the first command to the one that runs
	flags []string       // with their values, as written
	names []string       // of the flags, without dashes
	empty []string       // those of them whose value is empty
	args  []string
	help  bool
}

// parse takes the words after the program's name apart. Errors are usage errors.
func parse(app *cli.App, words []string) (line, error) {
	var l line
	takesValue := flagArity(app.Commands)
	commands, dashes := app.Commands, false
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case dashes:
			l.args = append(l.args, w)
		case w == "--":
			dashes = true
		case w == "-h" || w == "--help" || w == "help" && len(l.path) == 0 && len(l.args) == 0:
			l.help = true
		case w == "--version" && len(l.path) == 0:
			// Many programs have it as a flag, and many scripts ask so.
			l.path = append(l.path, find(commands, "version"))
		case len(w) > 1 && w[0] == '-':
			n, err := l.addFlag(words[i:], takesValue)
			if err != nil {
				return l, err
			}
			i += n - 1
		default:
			c := find(commands, w)
			if c == nil || len(l.args) > 0 {
				l.args = append(l.args, w)
				continue
			}
			l.path, commands = append(l.path, c), c.Subcommands
		}
	}
	return l, l.check(app)
}

// addFlag takes the flag at the head of words, and its value, and returns how
// many words that were.
func (l *line) addFlag(words []string, takesValue map[string]bool) (int, error) {
	name, value, assigned := strings.Cut(strings.TrimLeft(words[0], "-"), "=")
	l.names = append(l.names, name)
	if !takesValue[name] || assigned {
		l.flags = append(l.flags, words[0])
		if takesValue[name] && value == "" {
			l.empty = append(l.empty, name)
		}
		return 1, nil
	}
	// A value that looks like a flag is nearly always a forgotten value.
	if len(words) == 1 || len(words[1]) > 1 && words[1][0] == '-' {
		return 0, withHint(usagef("flag %s needs a value", words[0]),
			fmt.Sprintf("a value that begins with a dash is written %s=VALUE", words[0]))
	}
	l.flags = append(l.flags, words[0], words[1])
	if words[1] == "" {
		l.empty = append(l.empty, name)
	}
	return 2, nil
}

// mayBeEmpty reports whether an empty value of a flag says something of its own: of keys,
// filters and reasons that there is none, of a node's configuration that the file's is
// not meant.
func mayBeEmpty(command *cli.Command, name string) bool {
	switch name {
	case "prefix", "filter", "reason":
		return true
	case "from", "to", "after":
		return command.Name == "list" // they are keys there, else nodes
	}
	return slices.ContainsFunc(config.Keys(), func(k config.Key) bool { return k.Flag() == name })
}

// check refuses what the command on the line does not know.
func (l *line) check(app *cli.App) error {
	commands, called := app.Commands, app.Name
	var flags []cli.Flag
	if len(l.path) > 0 {
		last := l.path[len(l.path)-1]
		commands, flags = last.Subcommands, last.Flags
		called = l.called(app.Name)
	}
	if len(commands) > 0 && len(l.args) > 0 {
		return withHint(usagef("there is no command `%s %s`", called, l.args[0]), nearHint(l.args[0], commandNames(commands), called))
	}
	if l.help {
		return nil
	}
	known := flagNames(flags)
	for _, n := range l.names {
		if !slices.Contains(known, n) {
			return withHint(usagef("unknown flag %s of `%s`", dashed(n), called), nearFlagHint(n, known, called))
		}
	}
	for _, n := range l.empty {
		// Nearly always it is a variable of a script that is not set, and the flag would mean
		// nothing, or the default.
		if !mayBeEmpty(l.path[len(l.path)-1], n) {
			return withHint(usagef("flag %s of `%s` has an empty value", dashed(n), called), "give it one, or leave the flag out")
		}
	}
	if len(commands) > 0 && len(l.path) > 0 && l.path[len(l.path)-1].Action == nil {
		return withHint(usagef("`%s` needs one of the commands %s", called, strings.Join(commandNames(commands), ", ")),
			fmt.Sprintf("`%s --help` says what each does", called))
	}
	return nil
}

// words returns the line in the order that urfave/cli wants.
func (l *line) words(app *cli.App) []string {
	out := []string{app.Name}
	for _, c := range l.path {
		out = append(out, c.Name)
	}
	if l.help {
		return append(out, "--help")
	}
	out = append(out, l.flags...)
	if len(l.args) > 0 {
		out = append(append(out, "--"), l.args...)
	}
	return out
}

// called returns the command as the user calls it.
func (l *line) called(program string) string {
	words := []string{program}
	for _, c := range l.path {
		words = append(words, c.Name)
	}
	return strings.Join(words, " ")
}

// argsOf returns the arguments of a command that wants those named: "TABLE" must
// be there and "[VALUE]" may be. A wrong number is a usage error.
func argsOf(c *cli.Context, names ...string) ([]string, error) {
	got := c.Args().Slice()
	for i, n := range names {
		if i >= len(got) && !strings.HasPrefix(n, "[") {
			return nil, withHint(usagef("%s: argument %s is missing", c.Command.HelpName, n),
				strings.TrimSpace("usage: "+c.Command.HelpName+" "+strings.Join(names, " ")))
		}
	}
	if len(got) > len(names) {
		hint := strings.TrimSpace("usage: " + c.Command.HelpName + " " + strings.Join(names, " "))
		if slices.ContainsFunc(names, func(n string) bool { return strings.HasPrefix(n, "VALUE") }) {
			hint += "; a value with blanks stands in quotes"
		}
		return nil, withHint(usagef("%s: unexpected argument %q", c.Command.HelpName, got[len(names)]), hint)
	}
	for i, n := range names {
		if i < len(got) && got[i] == "" && isFile(n) {
			return nil, emptyArgument(c, n)
		}
	}
	return got, nil
}

// isFile reports whether an argument of that name is the path of a file.
func isFile(name string) bool {
	return name == "CERT" || strings.HasPrefix(name, "FILE")
}

// noEmpty is an error if one of a command's arguments, which are called so, is empty.
func noEmpty(c *cli.Context, name string) error {
	if slices.Contains(c.Args().Slice(), "") {
		return emptyArgument(c, name)
	}
	return nil
}

func emptyArgument(c *cli.Context, name string) error {
	return usagef("%s: argument %s is empty", c.Command.HelpName, name)
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// flagArity says of every flag in the tree whether it takes a value. A name means
// the same in all commands; a test holds them to it.
func flagArity(commands []*cli.Command) map[string]bool {
	all := map[string]bool{}
	for _, c := range commands {
		for _, f := range c.Flags {
			_, isBool := f.(*cli.BoolFlag)
			for _, n := range namesOf(f) {
				all[n] = !isBool
			}
		}
		maps.Copy(all, flagArity(c.Subcommands))
	}
	return all
}

// namesOf returns the names of a flag. The library's own way to them takes ten times as
// long, and every command line asks for those of all commands.
func namesOf(f cli.Flag) []string {
	switch f := f.(type) {
	case *cli.StringFlag:
		return append([]string{f.Name}, f.Aliases...)
	case *cli.StringSliceFlag:
		return append([]string{f.Name}, f.Aliases...)
	case *cli.BoolFlag:
		return append([]string{f.Name}, f.Aliases...)
	case *cli.IntFlag:
		return append([]string{f.Name}, f.Aliases...)
	}
	return f.Names()
}

func flagNames(flags []cli.Flag) []string {
	var out []string
	for _, f := range flags {
		out = append(out, namesOf(f)...)
	}
	return out
}

func commandNames(commands []*cli.Command) []string {
	var out []string
	for _, c := range commands {
		if !c.Hidden {
			out = append(out, c.Name)
		}
	}
	return out
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

func nearFlagHint(name string, known []string, called string) string {
	if near := config.Nearest(name, known); near != "" {
		return "did you mean " + dashed(near) + "?"
	}
	return fmt.Sprintf("`%s --help` lists its flags; an argument that begins with a dash goes after --", called)
}

func nearHint(name string, known []string, called string) string {
	if near := config.Nearest(name, known); near != "" {
		return fmt.Sprintf("did you mean `%s %s`?", called, near)
	}
	return fmt.Sprintf("`%s --help` lists the commands", called)
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime/debug"

	"github.com/urfave/cli/v2"
)

// app is what every command may touch of the world outside.
type app struct {
	stdin  io.Reader
	stdout io.Writer // data
	stderr io.Writer // talk
	env    func(string) (string, bool)
}

// run runs the command line args, whose first word is the program's name, and
// returns the process's exit code. It is main without the process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, env func(string) (string, bool)) (code int) {
	a := &app{stdin: stdin, stdout: stdout, stderr: stderr, env: env}
	defer func() {
		if p := recover(); p != nil {
			if a.isScreen() {
				panic(p) //nolint:forbidigo // who waits for the screen tells, where it can be seen
			}
			_, _ = fmt.Fprintf(stderr, "tidal: internal error: %v\n%s", p, debug.Stack())
			code = int(exitInternal)
		}
	}()
	err := a.runLine(ctx, args)
	if err != nil && !errors.Is(err, errSaid) {
		report(stderr, err)
	}
	return int(codeOf(err))
}

func (a *app) runLine(ctx context.Context, args []string) error {
	root := a.root()
	l, err := parse(root, args[min(1, len(args)):])
	if err != nil {
		return err
	}
	err = root.RunContext(ctx, l.words(root))
	if _, file := errors.AsType[*fs.PathError](err); !file && codeOf(err) == exitUsage && hintOf(err) == "" {
		err = withHint(err, "`"+l.called(root.Name)+" --help` says what it takes")
	}
	return err
}

// root returns the tree of commands.
func (a *app) root() *cli.App {
	return &cli.App{
		Name:                      "tidal",
		HelpName:                  "tidal",
		Usage:                     "a replicated table store that refuses nothing while it is restarted, rolled, scaled or re-certified",
		UsageText:                 "tidal COMMAND [flags] [arguments]",
		HideVersion:               true,
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true,
		Reader:                    a.stdin,
		Writer:                    a.stdout,
		ErrWriter:                 a.stderr,
		// run reports errors and chooses the exit code.
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError: func(c *cli.Context, err error, _ bool) error {
			return flagError(c, err)
		},
		Commands: a.commands(),
	}
}

func (a *app) commands() []*cli.Command {
	all := []*cli.Command{
		a.serveCommand(),
		a.devCommand(),
		a.tablesCommand(),
		a.rowsCommand(),
		a.statusCommand(),
		a.nodeCommand(),
		a.clusterCommand(),
		a.rollCommand(),
		a.topCommand(),
		a.checkCommand(),
		a.benchCommand(),
		a.waitCommand(),
		a.certsCommand(),
		a.configCommand(),
		a.debugCommand(),
		a.completionCommand(),
		a.completeCommand(),
		a.versionCommand(),
	}
	for _, c := range all {
		prepare(c, "tidal")
	}
	return all
}

// prepare sets what all commands share. under is how what c is a part of is called.
func prepare(c *cli.Command, under string) {
	path := under + " " + c.Name
	switch {
	case c.UsageText != "":
	case len(c.Subcommands) > 0:
		c.UsageText = path + " COMMAND [flags] [arguments]"
	case len(c.Flags) > 0:
		c.UsageText = path + " [flags]"
	default:
		c.UsageText = path
	}
	c.HideHelpCommand = true
	c.OnUsageError = func(c *cli.Context, err error, _ bool) error {
		return flagError(c, err)
	}
	for _, sub := range c.Subcommands {
		prepare(sub, path)
	}
}

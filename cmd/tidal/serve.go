package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"tidal/node"
	"tidal/node/api"
	"tidal/node/config"
)

// dialTimeout bounds how long a peer may take to accept a connection.
const dialTimeout = 5 * time.Second

func (a *app) serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "run a node",
		Description: "The first SIGTERM or SIGINT drains the node and stops it gracefully, the second stops it\n" +
			"at once. SIGHUP has it look at the files of its certificates, which it does every few seconds anyhow.\n" +
			"Each key of the configuration is a flag and a variable of the environment too.\n" +
			"With --check it only says whether it could start: the configuration, the certificates and the format\n" +
			"of the data are read; the port and a database that is in use are left alone.",
		Flags: append(configFlags(),
			&cli.BoolFlag{Name: "check", Usage: "check the configuration, the certificates and the data's format, and start nothing"},
			&cli.StringFlag{Name: "log-format", Usage: "form of the log on stderr: text or json", Value: "text"},
			&cli.StringFlag{Name: "log-level", Usage: "least level to log: debug, info, warn or error", Value: "info"},
		),
		Action: a.serve,
	}
}

func (a *app) serve(c *cli.Context) error {
	if _, err := argsOf(c); err != nil {
		return err
	}
	log, err := a.logger(c)
	if err != nil {
		return err
	}
	conf, speaks, err := a.toServe(c)
	if err != nil {
		return err
	}
	if c.Bool("check") {
		return withCode(exitConfig, node.Check(conf, version(), speaks))
	}
	program, err := ownProgram(os.Args[0])
	if err != nil {
		return err
	}
	given, err := inherit(a.env)
	if err != nil {
		return withCode(exitConfig, err)
	}
	// A reader of the log that goes away must not take the node with it, nor a
	// terminal: without a drain requests would be refused.
	signal.Ignore(syscall.SIGPIPE)
	reload := make(chan os.Signal, 1)
	signal.Notify(reload, syscall.SIGHUP)
	stopNow, done := secondSignal()
	defer done()
	defer paceGC(a.env)()
	o := node.Options{
		Config:  conf,
		Version: version(),
		Levels:  speaks,
		Log:     log,
		Listen:  given.listen,
		Dial:    (&net.Dialer{Timeout: dialTimeout}).DialContext,
		Lock:    given.lock,
		Program: &binaries{path: program, args: os.Args, environ: os.Environ(), levels: speaks},
		Notice:  a.notifier(c.Context),
		Reload:  reload,
	}
	if err = a.faults(&o); err != nil {
		return withCode(exitConfig, errors.Join(err, given.close()))
	}
	err = errors.Join(node.Run(c.Context, stopNow, o), given.close())
	select {
	case <-stopNow:
		return withCode(exitInterrupted, errors.Join(errors.New("stopped at once by a second signal"), err))
	default:
	}
	if next, ok := errors.AsType[*node.RestartError](err); ok {
		return restartInPlace(c.Context, log, program, next)
	}
	if disk, ok := errors.AsType[*node.DiskError](err); ok {
		return withHint(withCode(exitConfig, err), disk.Hint)
	}
	switch {
	case errors.Is(err, node.ErrLocked):
		return withCode(exitLocked, err)
	case errors.Is(err, node.ErrSetup):
		return withCode(exitConfig, err)
	case errors.Is(err, node.ErrSlowClose), errors.Is(err, node.ErrPort):
		return withCode(exitFailed, err)
	case errors.Is(err, node.ErrStalled):
		return withHint(withCode(exitFailed, err), "the log has what every goroutine did; start the node again once its disk answers")
	}
	return withCode(exitInternal, err)
}

// toServe returns the configuration of a node that could be run, and the feature levels
// that it speaks.
func (a *app) toServe(c *cli.Context) (config.Config, api.Levels, error) {
	e, err := a.loadConfig(c)
	if err != nil {
		return config.Config{}, api.Levels{}, err
	}
	if err = e.Config.Validate(); err != nil {
		return config.Config{}, api.Levels{}, withHint(withCode(exitConfig, wrongConfig(err)), "`tidal config explain` with the same flags says where each value came from")
	}
	speaks, err := a.levels()
	return e.Config, speaks, withCode(exitConfig, err)
}

// restartInPlace turns this process into the node's next incarnation, unless it
// was told to stop meanwhile.
func restartInPlace(ctx context.Context, log *slog.Logger, program string, files *node.RestartError) error {
	if ctx.Err() != nil {
		return files.Close()
	}
	log.InfoContext(ctx, "restarting in place", "program", program)
	signal.Ignore(syscall.SIGHUP) // until the next incarnation listens for it, it must not end it
	return errors.Join(become(program, os.Args, os.Environ(), files), files.Close())
}

// logger returns the log that the flags ask for.
func (a *app) logger(c *cli.Context) (*slog.Logger, error) {
	var level slog.Level
	switch text := c.String("log-level"); text {
	case "debug", "info", "warn", "error":
		if err := level.UnmarshalText([]byte(text)); err != nil {
			return nil, err
		}
	default:
		return nil, withHint(usagef("unknown --log-level %q", text), "it is debug, info, warn or error")
	}
	options := &slog.HandlerOptions{Level: level}
	switch text := c.String("log-format"); text {
	case "text":
		return slog.New(slog.NewTextHandler(a.stderr, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(a.stderr, options)), nil
	default:
		return nil, withHint(usagef("unknown --log-format %q", text), "it is text or json")
	}
}

// secondSignal returns a channel that is closed when a second signal asks the
// process to stop; the first one cancels main's context. done ends the watch.
func secondSignal() (stopNow <-chan struct{}, done func()) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	stop, ended, quit := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for range 2 {
			select {
			case <-signals:
			case <-quit:
				return
			}
		}
		close(stop)
	}()
	return stop, func() {
		signal.Stop(signals)
		close(quit)
		<-ended
	}
}

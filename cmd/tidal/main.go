package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"tidal/cmd/tidal/early"
)

func main() {
	if err := early.Restore(); err != nil {
		_, _ = os.Stderr.WriteString("tidal: the environment cannot be set: " + err.Error() + "\n")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the next one has its default effect again, except
	// in serve, which listens for it.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr, os.LookupEnv))
}

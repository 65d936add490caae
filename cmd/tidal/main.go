package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the next one has its default effect again, except
	// in serve, which listens for it.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr, os.LookupEnv))
}

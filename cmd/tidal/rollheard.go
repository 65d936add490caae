package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
)

// listener is whoever hears what a command says. A command that has to end in order is not
// ended by a terminal that is closed, or by a reader that goes away; it is told of that.
type listener struct {
	why  atomic.Pointer[error]
	done func()
}

// listen returns an app like a that tells the listener when nothing is heard any more.
func (l *listener) listen(a *app) *app {
	// Both are caught, and not ignored: commands that are started here would inherit that.
	// What is written to a pipe that nobody reads then fails, also to those of the network,
	// so that the signal itself says nothing.
	pipes := make(chan os.Signal, 1)
	signal.Notify(pipes, syscall.SIGPIPE)
	hangups, ended := make(chan os.Signal, 1), make(chan struct{})
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		signal.Notify(hangups, syscall.SIGHUP)
	}
	go func() {
		select {
		case <-hangups:
			l.lost(errors.New("its terminal was closed"))
		case <-ended:
		}
	}()
	l.done = func() {
		signal.Stop(pipes)
		signal.Stop(hangups)
		close(ended)
	}
	out := *a
	out.stdout, out.stderr = heard{a.stdout, l}, heard{a.stderr, l}
	return &out
}

// end takes signals as before.
func (l *listener) end() { l.done() }

// gone says why nobody hears the command any more, nil while somebody does.
func (l *listener) gone() error {
	if why := l.why.Load(); why != nil {
		return *why
	}
	return nil
}

func (l *listener) lost(why error) { l.why.CompareAndSwap(nil, &why) }

// heard is where something is written for the listener.
type heard struct {
	to io.Writer
	l  *listener
}

// Write writes, and tells the listener if that fails.
func (h heard) Write(p []byte) (int, error) {
	n, err := h.to.Write(p)
	if err != nil {
		h.l.lost(fmt.Errorf("nobody reads what it says: %w", err))
	}
	return n, err
}

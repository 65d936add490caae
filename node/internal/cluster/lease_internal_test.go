package cluster

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"tidal/node/api"
	"tidal/node/internal/rafthost"
)

// onLog calls a function before each record.
type onLog struct {
	slog.Handler

	f func()
}

// Enabled implements slog.Handler.
func (onLog) Enabled(context.Context, slog.Level) bool { return true }

// Handle implements slog.Handler.
func (h onLog) Handle(context.Context, slog.Record) error { h.f(); return nil }

// TestLeaseOfALeaderJustHeard: a node that finds no leader of the metadata, and hears one
// before it waits, asks it for its lease at once.
func TestLeaseOfALeaderJustHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		c := still(w.state.View())
		asked := make(chan time.Time, 1)
		c.o.Net = &peers{calls: map[string]func(context.Context) error{"b": func(context.Context) error {
			asked <- time.Now()
			return errors.New("busy")
		}}}
		c.o.Log = slog.New(onLog{slog.DiscardHandler, func() { // as it says that it has no lease
			c.Observe(rafthost.Event{Group: uint64(api.MetaGroup), State: rafthost.State{Lead: 2, Term: 3}})
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		start := time.Now()
		go func() { done <- c.renewLease(ctx) }()
		if waited := (<-asked).Sub(start); waited != 0 {
			t.Errorf("it waited %v", waited)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

package store

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
)

// events is pebble's logger and listener. An error that pebble meets in the
// background, or a corrupt block, means that the disk can no longer be trusted;
// the owner of the database is told once and ends the process.
type events struct {
	log   *slog.Logger
	fatal func(error)
	disk  *watchedFS
	once  sync.Once
}

// Infof drops what pebble says about its own work: file numbers and compactions.
func (e *events) Infof(string, ...any) {}

// Errorf logs what pebble could not do.
func (e *events) Errorf(format string, args ...any) {
	e.log.Error("database error", "detail", fmt.Sprintf(format, args...))
}

// Fatalf tells the owner and never returns: pebble relies on that, since what
// comes after it would write to a log that has lost data.
func (e *events) Fatalf(format string, args ...any) {
	e.die(fmt.Errorf("database: "+format, args...))
	select {}
}

// die tells the owner. What pebble says of a write that failed lacks the file; the
// disk knows it.
func (e *events) die(err error) {
	e.once.Do(func() {
		if t := e.disk.wrote(); t != nil && !errors.As(err, new(*DiskError)) {
			err = t
		}
		if e.fatal != nil {
			e.fatal(err)
		}
	})
}

func (e *events) listener() *pebble.EventListener {
	return &pebble.EventListener{
		BackgroundError: func(err error) { e.die(fmt.Errorf("database in the background: %w", err)) },
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			e.die(&DiskError{Op: "check", Path: i.Path, Offset: -1, Err: fmt.Errorf("%w: %w", ErrDamaged, i.Details)})
		},
		DiskSlow: func(i pebble.DiskSlowInfo) {
			e.log.Warn("slow disk", "operation", i.OpType.String(), "file", i.Path, "duration", i.Duration)
		},
		WriteStallBegin: func(i pebble.WriteStallBeginInfo) { e.log.Warn("writes stall", "reason", i.Reason) },
		WriteStallEnd:   func() { e.log.Info("writes go on") },
	}
}

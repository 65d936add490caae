package tui

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	tea "github.com/charmbracelet/bubbletea"
)

// Options are what the screen is made of.
type Options struct {
	Source   Source
	Journal  Journal // of rolls; nil: none is shown
	Roller   Roller  // nil: no roll can be started
	Cluster  string  // as the operator calls it
	By       string  // who acts, for claims
	Theme    string  // one of Themes
	ASCII    bool
	NoColor  bool
	Tmux     bool // the terminal is inside tmux
	ReadOnly bool // offers no action
	Sort     string
	Filter   string
	Interval time.Duration // between two questions; 0: DefaultInterval
	In       io.Reader
	Out      *os.File
	// Fault breaks the program in a way that a test must survive; "" in a release.
	Fault string

	ctx context.Context //nolint:containedctx // actions of keys end with the program
}

// ErrInterrupted says that it was ended by a signal or by Ctrl-C.
var ErrInterrupted = errors.New("interrupted")

// framesPerSecond is how often the screen is drawn at most.
const framesPerSecond = 12

// Run shows the cluster until the operator leaves, ctx ends, or the terminal is gone.
// The terminal is as it was when it returns. It catches no panic: some are in goroutines
// of others, so the terminal is for another process to restore, whichever it is. Errors:
// ErrInterrupted, and what the terminal says.
func Run(ctx context.Context, o Options) error {
	name := o.Theme
	if o.NoColor {
		name = "mono"
	}
	if name == "" {
		name = "auto"
	}
	th, err := newTheme(name, o.ASCII)
	if err != nil {
		return err
	}
	if o.Interval == 0 {
		o.Interval = DefaultInterval
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o.ctx = ctx
	f := newFeed(o.Source, o.Cluster, o.Interval)
	m := newModel(o, th, f)
	out := &terminal{File: o.Out, gone: func(err error) { cancel(err) }}
	m.copy = out.aside
	program := tea.NewProgram(m,
		tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(out), tea.WithAltScreen(), tea.WithFPS(framesPerSecond),
		tea.WithoutSignalHandler(), tea.WithoutCatchPanics()) // signals end ctx
	f.changed = func() { program.Send(newMsg{}) }
	f.run(ctx)
	if o.Journal != nil {
		f.tasks.Go(func() { f.askRolls(ctx, o.Journal) })
	}
	f.fault(o.Fault)
	_, err = program.Run()
	cause := context.Cause(ctx)
	cancel(nil)
	f.tasks.Wait()
	return ended(err, cause)
}

// ended says why the program ended.
func ended(err, cause error) error {
	lost, isLost := errors.AsType[*lostError](cause)
	switch {
	case isLost:
		return lost
	case err == nil:
		return nil
	case errors.Is(err, tea.ErrInterrupted), cause != nil:
		return ErrInterrupted
	}
	return err
}

// lostError is a terminal that takes no more.
type lostError struct{ err error }

func (e *lostError) Error() string { return "the terminal is gone: " + e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// terminal is the program's output. What is written aside, for the clipboard, never
// falls into a frame.
type terminal struct {
	*os.File

	mu   sync.Mutex
	gone func(error)
}

// Write writes a frame. A terminal that takes none ends the program.
func (t *terminal) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, err := t.File.Write(b)
	if err != nil {
		t.gone(&lostError{err})
	}
	return n, err
}

func (t *terminal) aside(s string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, err := t.WriteString(s)
	return err
}

// fault breaks the program for a test, beside the loop.
func (f *feed) fault(what string) {
	switch what {
	case "goroutine":
		f.tasks.Go(fail)
	case "timer": // whose goroutine is nobody's
		time.AfterFunc(frameEvery, fail)
	case "fatal": // which nothing could recover
		f.tasks.Go(func() { new(sync.Mutex).Unlock() })
	}
}

func fail() {
	panic("a fault for the test") //nolint:forbidigo // that is what is tested
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"golang.org/x/term"
)

// A panic ends a process at once, in whichever goroutine it is, one that a library
// started included, and leaves the terminal as the screen had it: without echo. So the
// screen is shown by a process of its own, and the one that was called waits for it,
// puts the terminal back, and tells what it ended with. Nothing else in tidal top has
// to think of panics.
//
// The two share the terminal and two pipes. What the runtime writes of a crash comes
// through one. The other never carries anything: its end tells the screen that who waits
// was signalled, or is gone.

const (
	screenEnv   = "TIDAL_SCREEN" // of the screen: the process that waits for it
	screenCrash = 3              // its descriptor for what the runtime says of a crash
	screenLife  = 4              // its descriptor that ends when it is to end

	crashMost = 64 << 10 // bytes of a crash that are shown
)

// errSaid stands for an error that another process has reported already.
var errSaid = errors.New("reported already")

// isScreen reports whether this process is the one that shows the screen.
func (a *app) isScreen() bool {
	parent, ok := a.env(screenEnv)
	return ok && parent == strconv.Itoa(os.Getppid())
}

// asScreen makes this process one that may crash: who waits for it is told why. The
// context ends when that process wants it to.
func asScreen(ctx context.Context) (context.Context, error) {
	syscall.CloseOnExec(screenCrash)
	syscall.CloseOnExec(screenLife)
	crash, life := os.NewFile(screenCrash, "crash"), os.NewFile(screenLife, "life")
	if err := errors.Join(debug.SetCrashOutput(crash, debug.CrashOptions{}), crash.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", screenEnv, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	go func() { // ends with the process that waits, or with this one
		_, _ = io.Copy(io.Discard, life)
		cancel()
	}()
	return ctx, nil
}

// watchScreen runs this command line again as the process that shows the screen, and
// returns what that ended with once the terminal is in order.
func (a *app) watchScreen(ctx context.Context, out *os.File) error {
	program, err := os.Executable()
	if err != nil {
		return err
	}
	crash, crashEnd, err1 := os.Pipe()
	lifeEnd, life, err2 := os.Pipe()
	if err = errors.Join(err1, err2); err != nil {
		return err // and this process ends
	}
	cmd := exec.Command(program) //nolint:gosec,noctx // this program; it is told to end, not killed
	cmd.Args = os.Args           // as this one was called
	cmd.Env = append(os.Environ(), screenEnv+"="+strconv.Itoa(os.Getpid()))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = a.stdin, a.stdout, a.stderr
	cmd.ExtraFiles = []*os.File{crashEnd, lifeEnd}

	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	before := terminalsOf(a.stdin, out)
	err = cmd.Start()
	if err = errors.Join(err, crashEnd.Close(), lifeEnd.Close()); err != nil {
		return err
	}
	said := make(chan string, 1)
	go func() { // ends with the screen
		text, _ := io.ReadAll(io.LimitReader(crash, crashMost))
		_, _ = io.Copy(io.Discard, crash)
		said <- string(text)
	}()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }() // likewise
	asked := ctx.Done()
	for first := true; ; {
		select {
		case <-asked:
			asked, _ = nil, life.Close()
		case s := <-signals: // the first has ended ctx too
			if !first {
				_ = cmd.Process.Signal(s) // it may have ended just now
			}
			first = false
		case err = <-ended:
			return before.screenError(out, cmd.ProcessState, <-said, err)
		}
	}
}

// screenError puts the terminal back and returns what the screen ended with.
func (ts terminals) screenError(out io.Writer, state *os.ProcessState, crash string, err error) error {
	restored := ts.restore(out)
	switch status, _ := state.Sys().(syscall.WaitStatus); {
	case crash != "":
		err = withCode(exitInternal, errors.New("internal error: "+harmless(crash)))
	case status.Signaled():
		err = withCode(exitInterrupted, fmt.Errorf("the screen was ended by a signal: %s", status.Signal()))
	case state.ExitCode() > 0:
		err = withCode(exitCode(state.ExitCode()), errSaid)
	}
	return errors.Join(err, restored)
}

// terminals are those that a process was given, and how they are to be when it ends.
type terminals map[int]term.State

func terminalsOf(files ...any) terminals {
	ts := terminals{}
	for _, x := range files {
		if f, ok := x.(*os.File); ok {
			if state, err := term.GetState(int(f.Fd())); err == nil {
				ts[int(f.Fd())] = *state
			}
		}
	}
	return ts
}

// leaveScreen ends what a screen sets besides the line discipline: the other screen, the
// hidden cursor, marked pastes, colours.
const leaveScreen = "\x1b[?2004l\x1b[?1049l\x1b[?25h\x1b[m"

// restore puts the terminals back where they are not as they were. One that is gone needs
// nothing.
func (ts terminals) restore(out io.Writer) error {
	var err error
	wild := false
	for fd, before := range ts {
		if now, gone := term.GetState(fd); gone == nil && *now != before {
			wild = true
			err = errors.Join(err, term.Restore(fd, &before))
		}
	}
	if wild {
		_, werr := io.WriteString(out, leaveScreen)
		err = errors.Join(err, werr)
	}
	if err != nil {
		return fmt.Errorf("restore the terminal: %w", err)
	}
	return nil
}

// harmless keeps what a crash says, which may hold names, from doing anything to the
// terminal.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, strings.TrimSpace(text))
}

package roll

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

const (
	commandEnd = 2 * time.Second // for a command that is told to end, before it is killed
	outputKept = 64 << 10        // bytes of a command's output, the last ones
	outputSaid = 500             // of them in an error
)

// CommandError is a command of whoever rolls that failed. Whether a node restarted
// all the same its peers know.
type CommandError struct {
	Command string
	Output  string // the end of it: what it wrote to stdout, then to stderr
	Err     error
}

// Error says what the command said last.
func (e *CommandError) Error() string {
	said := strings.TrimSpace(e.Output)
	if said == "" {
		return fmt.Sprintf("%s: %v", e.Command, e.Err)
	}
	return fmt.Sprintf("%s: %v: %s", e.Command, e.Err, said[max(0, len(said)-outputSaid):])
}

// Unwrap returns what ended the command.
func (e *CommandError) Unwrap() error { return e.Err }

// Exit returns how the command ended in few words: its exit code and its last line.
func (e *CommandError) Exit() string {
	how := e.Err.Error()
	if ended, ok := errors.AsType[*exec.ExitError](e.Err); ok && ended.Exited() {
		how = fmt.Sprintf("exit %d", ended.ExitCode())
	}
	if last := LastLine(e.Output); last != "" {
		how += ": " + last
	}
	return how
}

// Process is a command that is run to its end.
type Process struct {
	Argv  []string
	Env   []string // beside the environment of this process
	Limit time.Duration
}

// Shell runs a command by the shell; see Process.
func Shell(ctx context.Context, limit time.Duration, command string, env ...string) error {
	_, err := Process{Argv: []string{"/bin/sh", "-c", command}, Env: env, Limit: limit}.Run(ctx)
	if failed, ok := errors.AsType[*CommandError](err); ok {
		failed.Command = command
	}
	return err
}

// Run runs the command, with nothing to read, and returns the end of its output. What it
// says on stderr is in the error alone: a warning that comes and goes is no answer.
// It has a process group of its own: Ctrl-C, which pauses a roll, does not reach it,
// and when its time is over all that it started ends with it. The error is a
// *CommandError.
func (p Process) Run(ctx context.Context) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, p.Limit, fmt.Errorf("it did not end within %s", p.Limit))
	defer cancel()
	var out, said lastBytes
	cmd := exec.CommandContext(ctx, p.Argv[0], p.Argv[1:]...) //nolint:gosec // the operator's own command
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, &said, append(os.Environ(), p.Env...)
	cmd.WaitDelay = commandEnd // also for what it left running with its output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	err := cmd.Run()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
		if cmd.Process != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // an error says that nothing of it is left
		}
	}
	if err == nil || errors.Is(err, exec.ErrWaitDelay) {
		return string(out), nil
	}
	// Two pipes are read in no order. What it says on stderr stands last: that is why.
	return string(out), &CommandError{Command: Verbatim(p.Argv), Output: string(append(line(out), said...)), Err: err}
}

// line returns b with its last line ended.
func line(b []byte) []byte {
	if len(b) > 0 && b[len(b)-1] != '\n' {
		return append(b, '\n')
	}
	return b
}

// lastBytes keeps the end of what is written.
type lastBytes []byte

// Write implements io.Writer.
func (l *lastBytes) Write(p []byte) (int, error) {
	b := append(*l, p[max(0, len(p)-outputKept):]...)
	if n := len(b) - outputKept; n > 0 {
		b = append(b[:0], b[n:]...)
	}
	*l = b
	return len(p), nil
}

// LastLine returns the last line of a text that holds something.
func LastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// Verbatim writes a command as it would be typed.
func Verbatim(argv []string) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		if words[i] = w; w == "" || strings.ContainsFunc(w, func(r rune) bool { return !plain(r) }) {
			words[i] = quoted(w)
		}
	}
	return strings.Join(words, " ")
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// plain reports whether no shell takes the character for anything else.
func plain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@%_+=:,./-", r)
}

// CheckWord refuses what should not stand for a placeholder in a command: quotes hold
// for the shell here, and not for one at the other end of ssh, which reads the words
// again. A word that begins with a dash would be an option.
func CheckWord(what, word string) error {
	if word == "" {
		return fmt.Errorf("%s is empty", what)
	}
	if strings.HasPrefix(word, "-") {
		return fmt.Errorf("%s is %q: it would be taken for an option", what, word)
	}
	for _, r := range word {
		if !plain(r) {
			return fmt.Errorf("%s is %q: a shell would take %q for something else; letters, digits and @%%_+=:,./- are let through", what, word, r)
		}
	}
	return nil
}

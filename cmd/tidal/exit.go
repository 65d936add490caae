package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"tidal/node/api"
	"tidal/node/client"
	"tidal/pki"
	"tidal/roll/generic"
)

// exitCode is what the process ends with. The numbers are part of the command
// line's contract; docs/exit-codes.md lists them and a test compares the two.
type exitCode int

const (
	exitOK          exitCode = 0
	exitFailed      exitCode = 1   // the command failed
	exitUsage       exitCode = 2   // the command line is wrong
	exitConfig      exitCode = 3   // configuration or storage
	exitUnreachable exitCode = 4   // no node could be reached
	exitAuth        exitCode = 5   // certificates or permissions
	exitNotReady    exitCode = 6   // not ready in time
	exitRefused     exitCode = 7   // refused by a safety check
	exitPaused      exitCode = 8   // paused, to be resumed
	exitLocked      exitCode = 9   // someone else holds the lock
	exitDegraded    exitCode = 10  // it works, but not everything is well
	exitAborted     exitCode = 11  // aborted and undone
	exitInternal    exitCode = 70  // a defect of tidal
	exitInterrupted exitCode = 130 // stopped by a signal
)

// exitMeaning pairs a code with the words that docs/exit-codes.md uses for it.
type exitMeaning struct {
	code    exitCode
	meaning string
}

// exitMeanings returns every code in order.
func exitMeanings() []exitMeaning {
	return []exitMeaning{
		{exitOK, "ok"},
		{exitFailed, "failed"},
		{exitUsage, "usage: the command line is wrong"},
		{exitConfig, "configuration or storage"},
		{exitUnreachable, "cannot reach a node"},
		{exitAuth, "certificates or permissions"},
		{exitNotReady, "not ready in time"},
		{exitRefused, "refused by a safety check"},
		{exitPaused, "paused"},
		{exitLocked, "locked by someone else"},
		{exitDegraded, "degraded"},
		{exitAborted, "aborted and undone"},
		{exitInternal, "internal error"},
		{exitInterrupted, "interrupted"},
	}
}

// cliError is an error with what the shell and the user need besides its text.
type cliError struct {
	code exitCode // 0: not said here
	hint string   // "": not said here
	err  error
}

func (e *cliError) Error() string { return e.err.Error() }
func (e *cliError) Unwrap() error { return e.err }

// withCode makes the process end with code if err reaches run. It is nil for a
// nil err.
func withCode(code exitCode, err error) error {
	if err == nil {
		return nil
	}
	return &cliError{code: code, err: err}
}

// withHint adds a line that says what to do about err. It is nil for a nil err.
func withHint(err error, hint string) error {
	if err == nil {
		return nil
	}
	return &cliError{hint: hint, err: err}
}

// usagef returns an error about the command line itself: exit 2.
func usagef(format string, args ...any) error {
	return withCode(exitUsage, fmt.Errorf(format, args...))
}

// codeOf returns the exit code for err: the outermost one that was given, else
// the one that its kind calls for.
func codeOf(err error) exitCode {
	if err == nil {
		return exitOK
	}
	for e := err; e != nil; {
		var ce *cliError
		if !errors.As(e, &ce) {
			break
		}
		if ce.code != exitOK {
			return ce.code
		}
		e = ce.err
	}
	return codeOfKind(err)
}

// codeOfKind returns the exit code of an error that nobody gave one to.
func codeOfKind(err error) exitCode {
	if e, ok := errors.AsType[*pki.Error](err); ok {
		switch e.Kind {
		case pki.KindUsage:
			return exitUsage
		case pki.KindFiles:
			return exitConfig
		case pki.KindRefused:
			return exitRefused
		case pki.KindLocked:
			return exitLocked
		}
	}
	if _, ok := errors.AsType[*generic.SilentError](err); ok {
		return exitUnreachable
	}
	if _, ok := errors.AsType[*generic.BusyError](err); ok {
		return exitLocked
	}
	switch code := api.CodeOf(err); {
	case code == api.CodeUnauthorized || code == api.CodeForbidden:
		return exitAuth
	case code == api.CodeConflict || code == api.CodePreconditionFailed:
		return exitRefused
	case code == api.CodeNotReady:
		return exitNotReady
	case errors.Is(err, client.ErrTLS):
		return exitAuth
	case errors.Is(err, client.ErrUnreachable):
		return exitUnreachable
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	}
	return exitFailed
}

// hintOf returns the outermost hint of err, or "".
func hintOf(err error) string {
	for e := err; e != nil; {
		var ce *cliError
		if !errors.As(e, &ce) {
			break
		}
		if ce.hint != "" {
			return ce.hint
		}
		e = ce.err
	}
	if e, ok := errors.AsType[*api.Error](err); ok {
		return cmp.Or(commandFor(e.Code), e.Hint)
	}
	if e, ok := errors.AsType[*pki.Error](err); ok {
		return e.Hint
	}
	if e, ok := errors.AsType[*generic.BusyError](err); ok {
		return "a process that has it is stopped or hangs: `fuser " + e.Path + "` names it; have it go on (kill -CONT) or end it"
	}
	if _, ok := errors.AsType[*generic.SilentError](err); ok {
		return "do the nodes answer this machine? their probes are in the operator's file"
	}
	if errors.Is(err, client.ErrUnreachable) && !errors.Is(err, client.ErrTLS) {
		return "is a node running there, and is that its address? --endpoint and --cluster name others"
	}
	return ""
}

// commandFor returns the hint of an error that the nodes give one for callers of the HTTP
// API; "": theirs is for everybody.
func commandFor(code api.Code) string {
	switch code {
	case api.CodeTableNotFound:
		return "`tidal tables list` lists the tables, `tidal tables create` makes one"
	case api.CodeNodeNotFound:
		return "`tidal node list` lists the nodes"
	case api.CodeRollNotFound:
		return "`tidal roll history` lists the last rolls"
	default:
		return ""
	}
}

// report tells the user about err on stderr: what, why, and a hint.
func report(stderr io.Writer, err error) {
	text := strings.TrimPrefix(err.Error(), "tidal ")
	if e, ok := errors.AsType[*api.Error](err); ok && e.Hint != "" {
		// The hint has a line of its own.
		bare := *e
		bare.Hint = ""
		text = replaceLast(text, e.Error(), bare.Error())
	}
	if codeOf(err) == exitInterrupted {
		text = strings.ReplaceAll(text, context.Canceled.Error(), "interrupted")
	}
	if hint := hintOf(err); hint != "" {
		text += "\nhint: " + hint
	}
	// What stderr does not take can be told nowhere.
	_, _ = fmt.Fprintf(stderr, "tidal: %s\n", text)
}

// replaceLast replaces the last occurrence of old in s.
func replaceLast(s, old, with string) string {
	i := strings.LastIndex(s, old)
	if i < 0 {
		return s
	}
	return s[:i] + with + s[i+len(old):]
}

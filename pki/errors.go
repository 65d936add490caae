package pki

import (
	"errors"
	"fmt"
)

// Kind says what sort of failure an Error is; a command turns it into its exit
// code.
type Kind uint8

// The kinds.
const (
	KindUsage   Kind = iota + 1 // what was asked for is not possible: a bad name, a missing argument
	KindFiles                   // a file cannot be read, written or understood
	KindRefused                 // it would replace something that may be in use
	KindLocked                  // another process works in the directory
)

// Error is a failure with the one thing that helps against it.
type Error struct {
	Kind    Kind
	Message string // what failed and why
	Hint    string // what to do about it; may be empty
	Err     error  // the cause, already part of Message; may be nil
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ErrNoCertificate is what PeerNode and ClientRole return when the other side
// showed no certificate that was verified.
var ErrNoCertificate = errors.New("no verified client certificate")

func usage(hint, format string, args ...any) *Error {
	return &Error{Kind: KindUsage, Message: fmt.Sprintf(format, args...), Hint: hint}
}

func badFile(path, hint, format string, args ...any) *Error {
	return &Error{Kind: KindFiles, Message: path + ": " + fmt.Sprintf(format, args...), Hint: hint}
}

func fileError(path string, err error) *Error {
	return &Error{Kind: KindFiles, Message: path + ": " + reason(err), Err: err}
}

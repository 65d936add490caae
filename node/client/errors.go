package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"tidal/node/api"
)

// ErrUnreachable is in every error of a call that no endpoint answered.
var ErrUnreachable = errors.New("no node could be reached")

// ErrTLS is in the errors of a call that no endpoint answered, if one of them
// could be reached and the two sides do not trust each other's certificates.
var ErrTLS = errors.New("tls")

// EndpointError is why one endpoint gave no answer.
type EndpointError struct {
	Endpoint string
	Err      error
}

// Error names the endpoint and the cause.
func (e *EndpointError) Error() string { return e.Endpoint + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *EndpointError) Unwrap() error { return e.Err }

// UnreachableError says of each endpoint why it gave no answer.
type UnreachableError struct {
	Causes []*EndpointError
}

// Error lists the endpoints with their causes.
func (e *UnreachableError) Error() string {
	var b strings.Builder
	b.WriteString(ErrUnreachable.Error())
	for i, c := range e.Causes {
		sep := "; "
		if i == 0 {
			sep = ": "
		}
		b.WriteString(sep + c.Error())
	}
	return b.String()
}

// Unwrap returns ErrUnreachable and the causes.
func (e *UnreachableError) Unwrap() []error {
	all := []error{ErrUnreachable}
	for _, c := range e.Causes {
		all = append(all, c)
	}
	return all
}

// silenceError is an attempt that ended without an answer.
type silenceError struct {
	err  error
	sent bool // a connection stood, so the request may have arrived
}

func (e *silenceError) Error() string { return e.err.Error() }
func (e *silenceError) Unwrap() error { return e.err }

// lateError is of an endpoint that took longer than its share of a call's time.
type lateError struct{ after time.Duration }

func (e *lateError) Error() string {
	return fmt.Sprintf("no answer within %v", e.after.Round(time.Millisecond))
}

// Timeout has it be a failure of the network, to whoever asks.
func (e *lateError) Timeout() bool { return true }

// Temporary implements net.Error.
func (e *lateError) Temporary() bool { return true }

// explain says what it means that net/http got no answer.
func (e *silenceError) explain() *silenceError {
	op, ok := errors.AsType[*net.OpError](e.err)
	switch {
	case ok && op.Op == "remote error":
		// The server refused our certificate. In TLS 1.3 the client learns it
		// only when it reads, but the server has read nothing of the request.
		return &silenceError{err: fmt.Errorf("%w: the node refused this client's certificate: %w", ErrTLS, op.Err)}
	case !e.sent && !isNetwork(e.err):
		return &silenceError{err: fmt.Errorf("%w: %w", ErrTLS, e.err)}
	}
	return e
}

// isNetwork reports whether a connection failed below TLS.
func isNetwork(err error) bool {
	var (
		op  *net.OpError
		dns *net.DNSError
		out net.Error
	)
	return errors.As(err, &op) || errors.As(err, &dns) || errors.As(err, &out) && out.Timeout() ||
		errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// unknown is the error of a write that was sent and got no answer.
func unknown(cause error) error {
	return fmt.Errorf("%w: %w", &api.Error{
		Code:    api.CodeOutcomeUnknown,
		Message: "no answer came after the request was sent: it may or may not have been applied",
		Hint:    "look whether it was, or send it again with the same Idempotency-Key",
	}, cause)
}

package api

import (
	"errors"
	"net/http"
	"time"
)

// Code names a kind of failure. It is part of the API: codes are only ever added.
type Code string

// The codes. Docs list each with its meaning; a test compares the two.
const (
	CodeBadRequest       Code = "bad-request"
	CodeUnauthorized     Code = "unauthorized"
	CodeForbidden        Code = "forbidden"
	CodeNotFound         Code = "not-found"
	CodeRowNotFound      Code = "row-not-found"
	CodeTableNotFound    Code = "table-not-found"
	CodeMethodNotAllowed Code = "method-not-allowed"
	CodeTableExists      Code = "table-exists"
	CodeTooLarge         Code = "too-large"
	CodeIDReused         Code = "id-reused"
	CodeTooMany          Code = "too-many-requests"
	CodeConflict         Code = "conflict"
	CodeNotEnoughNodes   Code = "not-enough-nodes"
	CodeStaleOwner       Code = "stale-owner"
	CodeNoOwner          Code = "no-owner"
	CodeOwnerUnreachable Code = "owner-unreachable"
	CodeOutcomeUnknown   Code = "outcome-unknown"
	CodeBehind           Code = "behind"
	CodeNotReady         Code = "not-ready"
	CodeInternal         Code = "internal"

	CodePreconditionFailed Code = "precondition-failed"

	CodeDiskFull Code = "disk-full"

	CodeNodeNotFound Code = "node-not-found"
	CodeClaimed      Code = "claimed"
	CodeCheckFailed  Code = "check-failed"

	CodeRollNotFound Code = "roll-not-found"
	CodeRollLocked   Code = "roll-locked"
	CodeStaleEpoch   Code = "stale-epoch"
	CodeWrongDisk    Code = "wrong-disk"
)

// Outcome says what became of a request that failed. The router decides by it.
type Outcome uint8

// The outcomes.
const (
	OutcomeNone    Outcome = iota // nothing was done; it may be sent again
	OutcomeDone                   // it was decided for good; sending it again changes nothing
	OutcomeUnknown                // it may have been done; only the same request id may be sent again
)

// Kind is what a Code means to HTTP and to the router.
type Kind struct {
	Code    Code
	Status  int
	Outcome Outcome
	Route   bool // it comes from routing: header Tidal-Route-Error, and a refusal in the metrics
}

// Kinds returns every code with its meaning.
func Kinds() []Kind {
	return []Kind{
		{CodeBadRequest, http.StatusBadRequest, OutcomeDone, false},
		{CodeUnauthorized, http.StatusUnauthorized, OutcomeDone, false},
		{CodeForbidden, http.StatusForbidden, OutcomeDone, false},
		{CodeNotFound, http.StatusNotFound, OutcomeDone, false},
		{CodeRowNotFound, http.StatusNotFound, OutcomeDone, false},
		{CodeTableNotFound, http.StatusNotFound, OutcomeDone, false},
		{CodeMethodNotAllowed, http.StatusMethodNotAllowed, OutcomeDone, false},
		{CodeTableExists, http.StatusConflict, OutcomeDone, false},
		{CodeTooLarge, http.StatusRequestEntityTooLarge, OutcomeDone, false},
		{CodeIDReused, http.StatusUnprocessableEntity, OutcomeDone, false},
		{CodeTooMany, http.StatusTooManyRequests, OutcomeNone, false},
		{CodeConflict, http.StatusConflict, OutcomeDone, false},
		{CodeNotEnoughNodes, http.StatusConflict, OutcomeDone, false},
		{CodeStaleOwner, http.StatusConflict, OutcomeNone, true},
		{CodeNoOwner, http.StatusServiceUnavailable, OutcomeNone, true},
		{CodeOwnerUnreachable, http.StatusServiceUnavailable, OutcomeNone, true},
		{CodeOutcomeUnknown, http.StatusBadGateway, OutcomeUnknown, true},
		{CodeBehind, http.StatusServiceUnavailable, OutcomeNone, true},
		{CodeNotReady, http.StatusServiceUnavailable, OutcomeNone, false},
		{CodeInternal, http.StatusInternalServerError, OutcomeUnknown, false},
		{CodePreconditionFailed, http.StatusPreconditionFailed, OutcomeDone, false},
		{CodeDiskFull, http.StatusInsufficientStorage, OutcomeNone, false},
		{CodeNodeNotFound, http.StatusNotFound, OutcomeDone, false},
		{CodeClaimed, http.StatusConflict, OutcomeDone, false},
		{CodeCheckFailed, http.StatusConflict, OutcomeDone, false},
		{CodeRollNotFound, http.StatusNotFound, OutcomeDone, false},
		{CodeRollLocked, http.StatusConflict, OutcomeDone, false},
		{CodeStaleEpoch, http.StatusConflict, OutcomeDone, false},
		{CodeWrongDisk, http.StatusServiceUnavailable, OutcomeNone, false},
	}
}

// KindOf returns what a code means; an unknown one is internal.
func KindOf(c Code) Kind {
	for _, k := range Kinds() {
		if k.Code == c {
			return k
		}
	}
	return Kind{Code: c, Status: http.StatusInternalServerError, Outcome: OutcomeUnknown}
}

// Error is the one error of the API, between nodes and to clients. Message and
// Hint are public: no private cause goes into them.
type Error struct {
	Code       Code
	Message    string
	Hint       string        // what to do about it
	RetryAfter time.Duration // when sending it again makes sense; 0: not said
	Owner      string        // of stale-owner: the node that owns the table as far as known
	// At is, of precondition-failed, the version of the row that is there, zero if
	// there is none; of behind, a position of the table that is new enough.
	At Position
}

// NodesHint is the hint of CodeNodeNotFound, for callers of the HTTP API.
const NodesHint = "GET /v1/nodes lists them"

// NoNode is the error of a node id that no member has.
func NoNode(node string) *Error {
	return &Error{Code: CodeNodeNotFound, Message: "there is no node " + node + " in this cluster", Hint: NodesHint}
}

// Error returns the message, the code and the hint.
func (e *Error) Error() string {
	s := e.Message + " (" + string(e.Code) + ")"
	if e.Hint != "" {
		s += ": " + e.Hint
	}
	return s
}

// Outcome says what became of the request.
func (e *Error) Outcome() Outcome { return KindOf(e.Code).Outcome }

// AsError returns err as an *Error; another error becomes an internal one that
// does not show its cause.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return &Error{Code: CodeInternal, Message: "the node met an unexpected error; its log has the cause"}
}

// CodeOf returns err's code, or "" if err is nil or not an *Error.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}

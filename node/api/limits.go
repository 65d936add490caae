package api

import (
	"fmt"
	"time"
	"unicode/utf8"
)

// Limits of version 1. A request past one of them is refused with the limit named.
const (
	MaxKey   = 1024    // bytes of a row's key
	MaxValue = 1 << 20 // bytes of a row's value
	MaxTable = 64      // bytes of a table's name
	MaxNode  = 32      // bytes of a node's id
	MaxIdem  = 256     // bytes of an Idempotency-Key
	MaxBatch = 8 << 20 // bytes of a batch, as it is sent

	MaxChanges = 10_000 // in a batch

	MaxRows     = 10_000  // of a page of a scan
	DefaultRows = 1000    // of a page, unless its client says otherwise
	PageBytes   = 1 << 20 // of keys and values that end a page

	DefaultReplicas = 3
	MaxReplicas     = 7
)

// Patience is how long a request may wait for its table's owner in all, unless
// the client's own deadline is nearer.
const Patience = 8 * time.Second

// CheckTable returns a bad-request error unless name is a table name:
// [a-z0-9][a-z0-9_-]{0,63}.
func CheckTable(name string) error {
	if wordOK(name, MaxTable, true) {
		return nil
	}
	return &Error{
		Code:    CodeBadRequest,
		Message: fmt.Sprintf("table name %q is not of the form [a-z0-9][a-z0-9_-]{0,%d}", clip(name), MaxTable-1),
	}
}

// CheckNode returns a bad-request error unless id is a node id:
// [a-z0-9][a-z0-9-]{0,31}.
func CheckNode(id string) error {
	if wordOK(id, MaxNode, false) {
		return nil
	}
	return &Error{
		Code:    CodeBadRequest,
		Message: fmt.Sprintf("node id %q is not of the form [a-z0-9][a-z0-9-]{0,%d}", clip(id), MaxNode-1),
	}
}

// CheckKey returns a bad-request error unless key is a row's key: 1 to MaxKey
// bytes of UTF-8.
func CheckKey(key string) error {
	switch {
	case key == "":
		return &Error{Code: CodeBadRequest, Message: "the row's key is empty: want 1 to 1024 bytes of UTF-8"}
	case len(key) > MaxKey:
		return &Error{Code: CodeBadRequest, Message: fmt.Sprintf("the row's key has %d bytes: the limit is %d", len(key), MaxKey)}
	case !utf8.ValidString(key):
		return &Error{Code: CodeBadRequest, Message: "the row's key is not UTF-8"}
	}
	return nil
}

func wordOK(s string, limit int, underscore bool) bool {
	if s == "" || len(s) > limit {
		return false
	}
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case i > 0 && (c == '-' || c == '_' && underscore):
		default:
			return false
		}
	}
	return true
}

// StopMost is how long a node takes at most to stop by SIGTERM. Who kills it before cuts
// requests short.
const StopMost = 22 * time.Second

// clip shortens what a user sent before it is shown in an error.
func clip(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

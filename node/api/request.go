package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Op is what a request does to a row.
type Op uint8

// The operations. Their numbers are on disk and on the wire: append only.
const (
	OpGet Op = iota + 1
	OpHead
	OpPut
	OpDelete
)

// Writes reports whether the operation changes a row.
func (o Op) Writes() bool { return o == OpPut || o == OpDelete }

// String returns the operation's name, as in metrics.
func (o Op) String() string {
	switch o {
	case OpGet:
		return "get"
	case OpHead:
		return "head"
	case OpPut:
		return "put"
	case OpDelete:
		return "delete"
	}
	return "op" + strconv.Itoa(int(o))
}

// Role is what a client may do.
type Role uint8

// The roles, each of which may do what those before it may.
const (
	RoleNone Role = iota
	RoleReader
	RoleWriter
	RoleAdmin
)

// String returns the role's name as certificates carry it.
func (r Role) String() string {
	switch r {
	case RoleReader:
		return "reader"
	case RoleWriter:
		return "writer"
	case RoleAdmin:
		return "admin"
	case RoleNone:
	}
	return "none"
}

// ParseRole reads a role's name.
func ParseRole(s string) (Role, bool) {
	for _, r := range []Role{RoleReader, RoleWriter, RoleAdmin} {
		if s == r.String() {
			return r, true
		}
	}
	return RoleNone, false
}

// Principal is who sent a request: the name and role of its certificate.
type Principal struct {
	Name string
	Role Role
}

// Position is a place in a table's history: the raft index of an entry of one
// table. The zero position is before all.
type Position struct {
	Table TableID
	Index uint64
}

// Version is the position of a row's last write; its ETag. It never repeats in a
// name, since table ids do not.
type Version = Position

// ETag returns the version as an HTTP entity tag: "TABLE-INDEX" in hex, quoted.
func ETag(v Version) string { return fmt.Sprintf("\"%x-%x\"", uint64(v.Table), v.Index) }

// ParseETag reads the form that ETag writes.
func ParseETag(s string) (Version, error) {
	inner, ok := strings.CutPrefix(s, `"`)
	inner, closed := strings.CutSuffix(inner, `"`)
	table, index, dash := strings.Cut(inner, "-")
	t, err1 := strconv.ParseUint(table, 16, 64)
	i, err2 := strconv.ParseUint(index, 16, 64)
	if !ok || !closed || !dash || err1 != nil || err2 != nil {
		return Version{}, &Error{
			Code:    CodeBadRequest,
			Message: fmt.Sprintf("entity tag %s is not one that this server gave", clip(s)),
			Hint:    `send back the ETag header of an earlier answer, with its quotes`,
		}
	}
	return Version{Table: TableID(t), Index: i}, nil
}

// Request is one row operation on its way from the node it entered to the
// table's owner.
type Request struct {
	ID    RequestID // of a write: made where it enters, or from its Idempotency-Key
	Keyed bool      // ID comes from the client's Idempotency-Key, and is kept 15 minutes
	Op    Op
	Table string
	Key   string
	Value []byte
	Local bool // ?consistency=local: read what this replica has

	IfMatch     *Version // of a write: only if the row's version is this one
	IfNoneMatch bool     // of a put: only if there is no such row

	Deadline  time.Time // when the answer is no longer wanted
	Born      Position  // highest committed position of the table that the entering node knew
	Hops      uint8     // how often it was forwarded; a node never forwards twice
	Principal Principal
}

// Response is the answer to a Request that was served.
type Response struct {
	Found   bool    // a read met a row
	Version Version // of the row read or written
	Value   []byte  // of a get
	Size    int     // bytes of the value, of a head too
	Lag     uint64  // of a local read: entries that this replica is known to lack
	Owner   string  // node that served it
	Hops    uint8   // how often the request was forwarded
}

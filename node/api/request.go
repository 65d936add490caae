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
	OpBatch
	OpScan
)

// Ops returns all operations.
func Ops() []Op { return []Op{OpGet, OpHead, OpPut, OpDelete, OpBatch, OpScan} }

// Writes reports whether the operation changes rows.
func (o Op) Writes() bool { return o == OpPut || o == OpDelete || o == OpBatch }

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
	case OpBatch:
		return "batch"
	case OpScan:
		return "scan"
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

// MaxTags is the most entity tags that a condition may list.
const MaxTags = 16

// Position is a place in a table's history: the raft index of an entry of one
// table. The zero position is before all.
type Position struct {
	Table TableID
	Index uint64
}

// Version is the position of a row's last write; its ETag. It never repeats in a
// name, since table ids do not.
type Version = Position

// String returns the position as TABLE-INDEX in hex.
func (p Position) String() string {
	b := strconv.AppendUint(make([]byte, 0, 33), uint64(p.Table), 16)
	return string(strconv.AppendUint(append(b, '-'), p.Index, 16))
}

// ParsePosition reads the form of Position.String.
func ParsePosition(s string) (Position, bool) {
	table, index, dash := strings.Cut(s, "-")
	t, err1 := strconv.ParseUint(table, 16, 64)
	i, err2 := strconv.ParseUint(index, 16, 64)
	return Position{Table: TableID(t), Index: i}, dash && err1 == nil && err2 == nil
}

// MarshalText writes the form of String.
func (p Position) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads the form of String.
func (p *Position) UnmarshalText(b []byte) error {
	v, ok := ParsePosition(string(b))
	if !ok {
		return fmt.Errorf("position %q: want TABLE-INDEX in hex", clip(string(b)))
	}
	*p = v
	return nil
}

// ETag returns the version as an HTTP entity tag: the position in quotes.
func ETag(v Version) string { return `"` + v.String() + `"` }

// ParseETag reads the form that ETag writes.
func ParseETag(s string) (Version, error) {
	inner, opened := strings.CutPrefix(s, `"`)
	inner, closed := strings.CutSuffix(inner, `"`)
	if v, ok := ParsePosition(inner); ok && opened && closed {
		return v, nil
	}
	return Version{}, &Error{
		Code:    CodeBadRequest,
		Message: fmt.Sprintf("entity tag %s is not one that this server gave", clip(s)),
		Hint:    `send back the ETag header of an earlier answer, with its quotes`,
	}
}

// ParseETags reads the lists of entity tags that an If-Match header holds, up to
// MaxTags of them. One that is "*" and nothing else gives none, and true.
func ParseETags(lists []string) (tags []Version, all bool, err error) {
	if len(lists) == 1 && strings.TrimSpace(lists[0]) == "*" {
		return nil, true, nil
	}
	for _, list := range lists {
		for tag := range strings.SplitSeq(list, ",") {
			v, err := ParseETag(strings.TrimSpace(tag))
			if err != nil {
				return nil, false, err
			}
			if tags = append(tags, v); len(tags) > MaxTags {
				return nil, false, &Error{Code: CodeBadRequest, Message: fmt.Sprintf("a condition lists more than %d entity tags", MaxTags)}
			}
		}
	}
	return tags, false, nil
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

	Changes []Change // of a batch
	Range   Range    // of a scan

	// Conditions of a write. The table decides them, so that they hold when the
	// write is done and not just when it was asked for.
	IfMatch     []Version // only if the row's version is one of these; empty: no condition
	IfExists    bool      // only if there is such a row
	IfNoneMatch bool      // only if there is no such row

	Deadline  time.Time // when the answer is no longer wanted
	Born      Position  // highest committed position of the table that the client, or else the entering node, knew
	Hops      uint8     // how often it was forwarded; a node never forwards twice
	Principal Principal
}

// Response is the answer to a Request that was served.
type Response struct {
	Found   bool    // a read met a row
	Version Version // of the row read or written; of a delete: its own position, which no row has
	Value   []byte  // of a get
	Size    int     // bytes of the value, of a head too
	Lag     uint64  // of a local read: entries that this replica is known to lack
	Owner   string  // node that served it
	Hops    uint8   // how often the request was forwarded
	Rows    []Row   // of a scan
	More    bool    // of a scan: the range has more rows after them
}

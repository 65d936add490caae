package api

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// MetaGroup is the raft group that holds members, leases and tables. Its number
// is never a table's.
const MetaGroup TableID = 1

// ClusterID names a cluster for ever; it is made when the cluster forms.
type ClusterID [16]byte

// DiskID names one data directory for ever; it is made when the directory is.
type DiskID [16]byte

// RequestID names one write for ever, however often it is sent.
type RequestID [16]byte

// TableID names one life of a table and its raft group. It is never reused, so a
// table that is dropped and made again under its name has another.
type TableID uint64

// String returns the id as 32 hex digits.
func (id ClusterID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether the id was never set.
func (id ClusterID) IsZero() bool { return id == ClusterID{} }

// MarshalText writes the id as 32 hex digits.
func (id ClusterID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads 32 hex digits.
func (id *ClusterID) UnmarshalText(b []byte) error { return unhex(id[:], b, "cluster id") }

// String returns the id as 32 hex digits.
func (id DiskID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether the id was never set.
func (id DiskID) IsZero() bool { return id == DiskID{} }

// MarshalText writes the id as 32 hex digits.
func (id DiskID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads 32 hex digits.
func (id *DiskID) UnmarshalText(b []byte) error { return unhex(id[:], b, "disk id") }

// String returns the id as 32 hex digits.
func (id RequestID) String() string { return hex.EncodeToString(id[:]) }

// IsZero reports whether the id was never set.
func (id RequestID) IsZero() bool { return id == RequestID{} }

// String returns the id as 16 hex digits.
func (id TableID) String() string { return fmt.Sprintf("%016x", uint64(id)) }

// MarshalText writes the id as 16 hex digits, so that JSON readers that keep
// numbers as floats lose nothing.
func (id TableID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads up to 16 hex digits.
func (id *TableID) UnmarshalText(b []byte) error {
	n, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil {
		return fmt.Errorf("table id %q: want up to 16 hex digits", b)
	}
	*id = TableID(n)
	return nil
}

func unhex(dst, text []byte, what string) error {
	if len(text) != hex.EncodedLen(len(dst)) {
		return fmt.Errorf("%s %q: want %d hex digits", what, text, hex.EncodedLen(len(dst)))
	}
	if _, err := hex.Decode(dst, text); err != nil {
		return fmt.Errorf("%s %q: %w", what, text, err)
	}
	return nil
}

// Incarnation names one run of a node's process: the node, how often its disk
// was started, and a random suffix that tells copies of one disk apart.
type Incarnation struct {
	Node   string
	Start  uint64
	Suffix uint32
}

// String returns the form "a.17.3f2a9c1b".
func (i Incarnation) String() string {
	return i.Node + "." + strconv.FormatUint(i.Start, 10) + "." + fmt.Sprintf("%08x", i.Suffix)
}

// IsZero reports whether the incarnation was never set.
func (i Incarnation) IsZero() bool { return i == Incarnation{} }

// Compare orders incarnations of one node by their start; it is 0 only for the same one.
func (i Incarnation) Compare(o Incarnation) int {
	return cmp.Or(cmp.Compare(i.Node, o.Node), cmp.Compare(i.Start, o.Start), cmp.Compare(i.Suffix, o.Suffix))
}

// MarshalText writes the form of String.
func (i Incarnation) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

// UnmarshalText reads the form of String.
func (i *Incarnation) UnmarshalText(b []byte) error {
	v, err := ParseIncarnation(string(b))
	if err == nil {
		*i = v
	}
	return err
}

// ParseIncarnation reads the form of Incarnation.String.
func ParseIncarnation(s string) (Incarnation, error) {
	parts := strings.Split(s, ".")
	if len(parts) != 3 {
		return Incarnation{}, fmt.Errorf("incarnation %q: want NODE.START.SUFFIX", s)
	}
	start, err := strconv.ParseUint(parts[1], 10, 64)
	if err != nil {
		return Incarnation{}, fmt.Errorf("incarnation %q: start %q is not a number", s, parts[1])
	}
	suffix, err := strconv.ParseUint(parts[2], 16, 32)
	if err != nil {
		return Incarnation{}, fmt.Errorf("incarnation %q: suffix %q is not 8 hex digits", s, parts[2])
	}
	return Incarnation{Node: parts[0], Start: start, Suffix: uint32(suffix)}, nil
}

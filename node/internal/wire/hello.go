package wire

import (
	"fmt"

	"tidal/node/api"
)

// Protocol versions that this release speaks between nodes. Neighbouring
// releases share at least one.
const (
	ProtocolMin = 1
	ProtocolMax = 1
)

// ConnKind is what a connection between nodes is for. Numbers are on the wire:
// append only.
type ConnKind byte

// The kinds.
const (
	ConnRaft     ConnKind = iota + 1 // the dialling side's raft messages and heartbeats
	ConnCall                         // the dialling side's calls, and their replies
	ConnSnapshot                     // one snapshot of the dialling side's
)

// String returns the kind's name, as in logs.
func (k ConnKind) String() string {
	switch k {
	case ConnRaft:
		return "raft"
	case ConnCall:
		return "call"
	case ConnSnapshot:
		return "snapshot"
	}
	return fmt.Sprintf("kind%d", byte(k))
}

// MaxHello and MaxVerdict are the most bytes of the payloads of a hello and of
// the verdict on it.
const (
	MaxHello   = 4 << 10
	MaxVerdict = 16 << 10
)

const (
	helloFormat = 1
	maxName     = 256 // of a cluster's name and a release's version
)

// Hello is what each side of a connection says first. Its format can only grow
// at its end, since releases of any age must be able to read it.
type Hello struct {
	Min, Max    uint64 // protocol versions spoken
	Kind        ConnKind
	ClusterID   api.ClusterID // zero while the node belongs to no cluster
	Cluster     string        // configured name
	Disk        api.DiskID
	Incarnation api.Incarnation // names the node too
	Pass        uint64          // number of the last synced pass that its disk had when it began
	Version     string          // of the release, for people
}

// AppendHello appends h.
func AppendHello(dst []byte, h *Hello) []byte {
	dst = append(dst, helloFormat)
	dst = AppendUvarint(dst, h.Min)
	dst = AppendUvarint(dst, h.Max)
	dst = append(dst, byte(h.Kind))
	dst = append(dst, h.ClusterID[:]...)
	dst = AppendString(dst, h.Cluster)
	dst = append(dst, h.Disk[:]...)
	dst = AppendIncarnation(dst, h.Incarnation)
	dst = AppendUvarint(dst, h.Pass)
	return AppendString(dst, h.Version)
}

// DecodeHello reads what AppendHello of this or a later release wrote.
func DecodeHello(b []byte) (Hello, error) {
	r := NewReader(b)
	r.format("hello format", helloFormat)
	h := Hello{
		Min:         r.Uvarint("lowest protocol"),
		Max:         r.Uvarint("highest protocol"),
		Kind:        ConnKind(r.Byte("connection kind")),
		ClusterID:   r.Array16("cluster id"),
		Cluster:     r.String("cluster name", maxName),
		Disk:        r.Array16("disk id"),
		Incarnation: r.Incarnation("incarnation"),
		Pass:        r.Uvarint("pass"),
		Version:     r.String("release", maxName),
	}
	if r.Err() == nil && api.CheckNode(h.Incarnation.Node) != nil {
		r.Fail("incarnation", fmt.Sprintf("%q is no node id", h.Incarnation.Node))
	}
	return h, r.Err()
}

// Common returns the highest protocol version that both sides speak.
func Common(local, remote *Hello) (uint64, error) {
	v := min(local.Max, remote.Max)
	if v < max(local.Min, remote.Min) {
		return 0, fmt.Errorf("no common protocol version: release %q speaks %d to %d, release %q speaks %d to %d",
			local.Version, local.Min, local.Max, remote.Version, remote.Min, remote.Max)
	}
	return v, nil
}

// AppendIncarnation appends i as Reader.Incarnation reads it.
func AppendIncarnation(dst []byte, i api.Incarnation) []byte {
	dst = AppendString(dst, i.Node)
	dst = AppendUvarint(dst, i.Start)
	return AppendUvarint(dst, uint64(i.Suffix))
}

// Incarnation reads what AppendIncarnation wrote.
func (r *Reader) Incarnation(field string) api.Incarnation {
	i := api.Incarnation{Node: r.String(field, api.MaxNode), Start: r.Uvarint(field)}
	suffix := r.Uvarint(field)
	if suffix > 1<<32-1 {
		r.Fail(field, "its suffix has more than 32 bits")
		return api.Incarnation{}
	}
	i.Suffix = uint32(suffix)
	return i
}

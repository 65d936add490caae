package wire

import (
	"fmt"

	"tidal/node/api"
)

// Levels returns the feature levels that this release speaks. One number stands for
// all that is stored or sent between nodes. What a higher level brings is written only
// once the meta group's state has that level: until then every member may go back to
// the release before. A release speaks two levels at most, the older of which is the
// newest of the release before.
func Levels() api.Levels { return api.Levels{Min: 1, Max: 1} }

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
	Min, Max    uint64 // feature levels spoken
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
		Min:         r.Uvarint("lowest level"),
		Max:         r.Uvarint("highest level"),
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

// Levels returns the feature levels that the side speaks.
func (h *Hello) Levels() api.Levels { return api.Levels{Min: h.Min, Max: h.Max} }

// Common returns the highest feature level that both sides speak.
func Common(local, remote *Hello) (uint64, error) {
	v := min(local.Max, remote.Max)
	if v < max(local.Min, remote.Min) {
		return 0, &api.Error{
			Code: api.CodeForbidden,
			Message: fmt.Sprintf("the releases are too far apart: node %s runs %s and speaks %s, node %s runs %s and speaks %s",
				local.Incarnation.Node, local.Version, local.Levels(), remote.Incarnation.Node, remote.Version, remote.Levels()),
			Hint: "run a release in between on all nodes and `tidal cluster finalize`, then go on to the newer one",
		}
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

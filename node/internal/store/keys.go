package store

import "encoding/binary"

// Keyspaces. The numbers are on disk: append only.
const (
	spaceNode  byte = 0x01 // one value each: format, identity, pass number
	spaceTomb  byte = 0x02 // tombstones of removed replicas, outside the range of any
	spaceGroup byte = 0x10 // all that belongs to one replica, in one contiguous range
)

// Values of the node itself.
const (
	NodeFormat    byte = 0x01 // version of this layout
	NodeIdentity  byte = 0x02 // cluster, node, disk, start counter
	NodePass      byte = 0x03 // number of the last synced batch
	NodeFormation byte = 0x04 // the member list that this node agreed to when the cluster formed
	NodeManifest  byte = 0x08 // how far the database's list of files was synced: an extent
	NodeAdmission byte = 0x10 // raft id of this node's replica of the meta group, if it was admitted later
	NodeFence     byte = 0x11 // why this disk takes no part in its cluster any more
	NodeSeen      byte = 0x12 // how far the disks of other nodes have come: a value for each node, whose id follows
	NodeUnsound   byte = 0x13 // replicas that are fenced since they differ from others: a raft id for each group, whose number follows
)

// Keyspaces inside a group's range.
const (
	SubHard    byte = 0x01 // raft hard state: term, vote, commit
	SubStart   byte = 0x02 // index and term of the entry before the log's first
	SubApplied byte = 0x03 // applied index and term, configuration
	SubReplica byte = 0x04 // raft id of the replica
	SubEntry   byte = 0x10 // log entries by index
	SubState   byte = 0x20 // first of the state machine's own, 0x20 to 0x2f
	SubBeyond  byte = 0x30 // after the last of them
)

// appendExtent appends a length and a name.
func appendExtent(b []byte, e extent) []byte {
	return append(binary.AppendUvarint(b, uint64(e.bytes)), e.name...)
}

func readExtent(b []byte) (e extent, ok bool) {
	n, w := binary.Uvarint(b)
	if w <= 0 || w == len(b) {
		return extent{}, false
	}
	return extent{name: string(b[w:]), bytes: int64(n)}, true
}

// NodeKey returns the key of one of the node's own values.
func NodeKey(sub byte) []byte { return []byte{spaceNode, sub} }

// UnsoundKey returns the key of the raft id of a group's replica that is fenced.
func UnsoundKey(group uint64) []byte {
	return binary.BigEndian.AppendUint64(NodeKey(NodeUnsound), group)
}

// TombKey returns the key of a group's tombstone.
func TombKey(group uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{spaceTomb}, group)
}

// GroupKey returns the prefix of one keyspace of a group; the rest of the key is
// appended to it. Its capacity leaves room for an index.
func GroupKey(group uint64, sub byte) []byte {
	k := make([]byte, 0, 24)
	k = append(k, spaceGroup)
	k = binary.BigEndian.AppendUint64(k, group)
	return append(k, sub)
}

// GroupEnd returns the exclusive upper bound of one keyspace of a group.
func GroupEnd(group uint64, sub byte) []byte { return GroupKey(group, sub+1) }

// GroupRange returns the bounds of all that a group's replica has on this disk.
func GroupRange(group uint64) (lo, hi []byte) {
	return GroupKey(group, 0), GroupKey(group+1, 0)
}

// EntryKey returns the key of a group's log entry.
func EntryKey(group, index uint64) []byte {
	return binary.BigEndian.AppendUint64(GroupKey(group, SubEntry), index)
}

// GroupPrefix is how many bytes stand before the keyspace in a group's keys.
const GroupPrefix = 9

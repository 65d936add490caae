package wire

import "encoding/binary"

// raftPass stands where a raft message has its type; the number of a pass follows.
const raftPass = 0xF2

// AppendPass appends to a new batch of raft messages the number of the sender's
// last synced pass: what the messages promise, the disk has at that number. So who
// counts a promise knows a number below which that disk must never fall again.
func AppendPass(b []byte, pass uint64) []byte { return binary.AppendUvarint(append(b, raftPass), pass) }

// RaftPass returns the number with which a batch begins, or 0.
func RaftPass(batch []byte) uint64 {
	if len(batch) < 2 || batch[0] != raftVersion || batch[1] != raftPass {
		return 0
	}
	r := NewReader(batch[1:])
	return readPass(r)
}

// readPass reads what AppendPass wrote; 0 if it is damaged.
func readPass(r *Reader) uint64 {
	r.Byte("mark of a pass")
	return r.Uvarint("pass of a raft batch")
}

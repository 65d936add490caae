package wire

import (
	"encoding/binary"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
)

// raftVersion is the first byte of a batch of raft messages.
const raftVersion = 1

// MaxRaftBatch is the size at which a batch is cut, in bytes. One message alone
// may be larger.
const MaxRaftBatch = 256 << 10

// MsgCut is a message of the host's own among those of raft: all replicas have
// the entries up to Index. A release that does not know it drops it.
const MsgCut pb.MessageType = 0x80

// RaftMessage is a raft message with the group it belongs to. Its From and To
// are replica ids, which are unique for ever.
type RaftMessage struct {
	Group uint64
	*pb.Message
	Word *Word // nil: raft's own message
}

// Bits of a message's flags.
const (
	raftReject   = 1 << iota // the Reject field
	raftContext              // a context follows
	raftEntries              // entries follow
	raftPosition             // LogTerm and Index follow
	raftExtra                // Commit, Vote and RejectHint follow
)

// NewRaftBatch returns the start of a batch; AppendRaft adds messages to it.
func NewRaftBatch() []byte { return append(make([]byte, 0, 512), raftVersion) }

// AppendRaft appends a message to a batch. Snapshots do not travel this way.
func AppendRaft(b []byte, group uint64, m *pb.Message) []byte {
	flags := byte(0)
	if m.GetReject() {
		flags |= raftReject
	}
	if len(m.GetContext()) > 0 {
		flags |= raftContext
	}
	if len(m.GetEntries()) > 0 {
		flags |= raftEntries
	}
	if m.GetLogTerm() != 0 || m.GetIndex() != 0 {
		flags |= raftPosition
	}
	if m.GetCommit() != 0 || m.GetVote() != 0 || m.GetRejectHint() != 0 {
		flags |= raftExtra
	}
	b = append(b, byte(m.GetType()), flags)
	b = binary.AppendUvarint(b, group)
	b = binary.AppendUvarint(b, m.GetTo())
	b = binary.AppendUvarint(b, m.GetFrom())
	b = binary.AppendUvarint(b, m.GetTerm())
	if flags&raftPosition != 0 {
		b = binary.AppendUvarint(b, m.GetLogTerm())
		b = binary.AppendUvarint(b, m.GetIndex())
	}
	if flags&raftExtra != 0 {
		b = binary.AppendUvarint(b, m.GetCommit())
		b = binary.AppendUvarint(b, m.GetVote())
		b = binary.AppendUvarint(b, m.GetRejectHint())
	}
	if flags&raftContext != 0 {
		b = AppendBytes(b, m.GetContext())
	}
	if flags&raftEntries != 0 {
		b = binary.AppendUvarint(b, uint64(len(m.GetEntries())))
		for _, e := range m.GetEntries() {
			b = append(b, byte(e.GetType()))
			b = binary.AppendUvarint(b, e.GetTerm())
			b = binary.AppendUvarint(b, e.GetIndex())
			b = AppendBytes(b, e.GetData())
		}
	}
	return b
}

// raftBlock holds a decoded message and all that its pointers point at, so that
// a message costs one allocation and one more for its entries.
type raftBlock struct {
	m                          pb.Message
	typ                        pb.MessageType
	to, from, term, logTerm    uint64
	index, commit, vote, hints uint64
	reject                     bool
}

type raftEntry struct {
	e           pb.Entry
	typ         pb.EntryType
	term, index uint64
}

// DecodeRaft calls f for each message of a batch. The messages do not alias b:
// their entries live on in logs and caches, and must not hold whole batches.
func DecodeRaft(b []byte, f func(RaftMessage)) error {
	r := NewReader(b)
	if v := r.Byte("version of a raft batch"); r.Err() == nil && v != raftVersion {
		return fmt.Errorf("raft batch of version %d: this node reads version %d", v, raftVersion)
	}
	for r.Err() == nil && len(r.Rest()) > 0 {
		if r.Rest()[0] == raftPass {
			readPass(r)
			continue
		}
		if m := decodeMessage(r); r.Err() == nil {
			f(m)
		}
	}
	return r.Err()
}

func decodeMessage(r *Reader) RaftMessage {
	kind := r.Byte("raft message type")
	if kind == wordLead || kind == wordFollow {
		return decodeWord(r, kind)
	}
	k := &raftBlock{}
	k.typ = pb.MessageType(kind)
	flags := r.Byte("raft message flags")
	group := r.Uvarint("raft group")
	k.to = r.Uvarint("raft message to")
	k.from = r.Uvarint("raft message from")
	k.term = r.Uvarint("raft message term")
	k.m.Type, k.m.To, k.m.From, k.m.Term = &k.typ, &k.to, &k.from, &k.term
	if flags&raftReject != 0 {
		k.reject = true
		k.m.Reject = &k.reject
	}
	if flags&raftPosition != 0 {
		k.logTerm = r.Uvarint("raft message log term")
		k.index = r.Uvarint("raft message index")
		k.m.LogTerm, k.m.Index = &k.logTerm, &k.index
	}
	if flags&raftExtra != 0 {
		k.commit = r.Uvarint("raft message commit")
		k.vote = r.Uvarint("raft message vote")
		k.hints = r.Uvarint("raft message reject hint")
		k.m.Commit, k.m.Vote, k.m.RejectHint = &k.commit, &k.vote, &k.hints
	}
	if flags&raftContext != 0 {
		k.m.Context = append([]byte(nil), r.Bytes("raft message context", 1<<10)...)
	}
	if flags&raftEntries != 0 {
		k.m.Entries = decodeEntries(r)
	}
	return RaftMessage{Group: group, Message: &k.m}
}

// minEntry is the least that an entry takes in a batch: type, term, index, length.
const minEntry = 4

func decodeEntries(r *Reader) []*pb.Entry {
	n := r.Count("number of raft entries", minEntry)
	if r.Err() != nil {
		return nil
	}
	limit := len(r.Rest())
	block := make([]raftEntry, n)
	out := make([]*pb.Entry, n)
	total := 0
	for i := range block {
		k := &block[i]
		k.typ = pb.EntryType(r.Byte("raft entry type"))
		k.term = r.Uvarint("raft entry term")
		k.index = r.Uvarint("raft entry index")
		k.e.Data = r.Bytes("raft entry data", limit)
		k.e.Type, k.e.Term, k.e.Index = &k.typ, &k.term, &k.index
		total += len(k.e.Data)
		out[i] = &k.e
	}
	if r.Err() != nil {
		return nil
	}
	data := make([]byte, 0, total)
	for i := range block {
		e := &block[i].e
		if len(e.Data) == 0 {
			e.Data = nil
			continue
		}
		at := len(data)
		data = append(data, e.Data...)
		e.Data = data[at:len(data):len(data)]
	}
	return out
}

// AppendEntry appends what is stored of a log entry; its index is in its key.
func AppendEntry(b []byte, e *pb.Entry) []byte {
	b = append(b, byte(e.GetType()))
	b = binary.AppendUvarint(b, e.GetTerm())
	return append(b, e.GetData()...)
}

// DecodeEntry reads what AppendEntry wrote. The entry aliases b.
func DecodeEntry(index uint64, b []byte) (*pb.Entry, error) {
	r := NewReader(b)
	k := &raftEntry{index: index}
	k.typ = pb.EntryType(r.Byte("type of a stored entry"))
	k.term = r.Uvarint("term of a stored entry")
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("entry %d: %w", index, err)
	}
	if rest := r.Rest(); len(rest) > 0 {
		k.e.Data = rest
	}
	k.e.Type, k.e.Term, k.e.Index = &k.typ, &k.term, &k.index
	return &k.e, nil
}

// EntryTerm reads the term alone of what AppendEntry wrote.
func EntryTerm(b []byte) (uint64, error) {
	r := NewReader(b)
	r.Byte("type of a stored entry")
	t := r.Uvarint("term of a stored entry")
	return t, r.Err()
}

package wire

import (
	"encoding/binary"

	pb "go.etcd.io/raft/v3/raftpb"
)

// Kinds of words, where a raft message has its type. Raft's own are far below.
const (
	wordLead   = 0xF0 // from the leader of a group
	wordFollow = 0xF1 // from a follower to its leader
)

// Word marks a raft message as what a node's heartbeat says of one group: a
// MsgHeartbeat from the leader, or a MsgHeartbeatResp from a follower that wants
// to be heard, each without a context.
type Word struct {
	// Frontier is the leader's commit index once it has applied an entry of its
	// own term, else 0. It may be above the message's commit, which is what this
	// receiver may take as committed.
	Frontier uint64
	// Rest, from the leader: the log ends at the message's commit, and the group
	// may be quiet. From a follower: it is, with a log that ends there.
	Rest bool
}

// AppendWord appends to a batch of raft messages what the sender's heartbeat
// says of a group. Of m it takes type, sender, receiver, term and commit.
func AppendWord(b []byte, group uint64, m *pb.Message, w Word) []byte {
	kind := byte(wordLead)
	if m.GetType() == pb.MsgHeartbeatResp {
		kind = wordFollow
	}
	b = AppendBool(append(b, kind), w.Rest)
	b = binary.AppendUvarint(b, group)
	b = binary.AppendUvarint(b, m.GetTo())
	b = binary.AppendUvarint(b, m.GetFrom())
	b = binary.AppendUvarint(b, m.GetTerm())
	b = binary.AppendUvarint(b, m.GetCommit())
	return binary.AppendUvarint(b, w.Frontier)
}

// decodeWord reads what follows the kind.
func decodeWord(r *Reader, kind byte) RaftMessage {
	k := &struct {
		raftBlock
		word Word
	}{}
	k.typ = pb.MsgHeartbeat
	if kind == wordFollow {
		k.typ = pb.MsgHeartbeatResp
	}
	k.word.Rest = r.Bool("rest")
	group := r.Uvarint("raft group")
	k.to = r.Uvarint("receiver of a word")
	k.from = r.Uvarint("sender of a word")
	k.term = r.Uvarint("term of a word")
	k.commit = r.Uvarint("commit of a word")
	k.word.Frontier = r.Uvarint("frontier")
	k.m.Type, k.m.To, k.m.From, k.m.Term, k.m.Commit = &k.typ, &k.to, &k.from, &k.term, &k.commit
	return RaftMessage{Group: group, Message: &k.m, Word: &k.word}
}

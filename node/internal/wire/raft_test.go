package wire_test

import (
	"bytes"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"tidal/node/internal/wire"
)

func raftEntry(index, term uint64, data []byte) *pb.Entry {
	return &pb.Entry{Type: pb.EntryNormal.Enum(), Index: &index, Term: &term, Data: data}
}

// raftSamples are all messages that travel between nodes, with all that raft
// puts into them.
func raftSamples() []*pb.Message {
	msg := func(t pb.MessageType, set func(m *pb.Message)) *pb.Message {
		m := &pb.Message{Type: t.Enum(), To: proto.Uint64(2), From: proto.Uint64(1 << 50), Term: proto.Uint64(7)}
		set(m)
		return m
	}
	position := func(m *pb.Message) { m.LogTerm, m.Index = proto.Uint64(6), proto.Uint64(300) }
	extra := func(m *pb.Message) {
		m.Commit, m.Vote, m.RejectHint = proto.Uint64(299), proto.Uint64(4), proto.Uint64(17)
	}
	change := &pb.Entry{Type: pb.EntryConfChangeV2.Enum(), Index: proto.Uint64(302), Term: proto.Uint64(7), Data: []byte("change")}
	return []*pb.Message{
		msg(pb.MsgApp, func(m *pb.Message) {
			position(m)
			m.Commit = proto.Uint64(299)
			m.Entries = []*pb.Entry{raftEntry(301, 7, []byte("data")), change, raftEntry(303, 7, nil), raftEntry(304, 7, bytes.Repeat([]byte("x"), 70_000))}
		}),
		msg(pb.MsgApp, position),
		msg(pb.MsgAppResp, func(m *pb.Message) { position(m); extra(m); m.Reject = new(true) }),
		msg(pb.MsgAppResp, position),
		msg(pb.MsgVote, position),
		msg(pb.MsgVote, func(m *pb.Message) { position(m); m.Context = []byte("CampaignTransfer") }),
		msg(pb.MsgVoteResp, func(m *pb.Message) { m.Reject = new(true) }),
		msg(pb.MsgPreVote, position),
		msg(pb.MsgPreVoteResp, func(*pb.Message) {}),
		msg(pb.MsgHeartbeat, func(m *pb.Message) { m.Commit = proto.Uint64(1); m.Context = []byte{0, 0, 0, 0, 0, 0, 0, 9} }),
		msg(pb.MsgHeartbeatResp, func(m *pb.Message) { m.Context = []byte{0, 0, 0, 0, 0, 0, 0, 9} }),
		msg(pb.MsgTimeoutNow, func(*pb.Message) {}),
		msg(pb.MsgApp, func(m *pb.Message) { m.Term = proto.Uint64(math.MaxUint64); extra(m) }),
	}
}

// equal compares by value: an unset number and 0 mean the same to raft.
func equal(a, b *pb.Message) bool {
	if len(a.GetEntries()) != len(b.GetEntries()) {
		return false
	}
	for i, e := range a.GetEntries() {
		o := b.GetEntries()[i]
		if e.GetType() != o.GetType() || e.GetTerm() != o.GetTerm() || e.GetIndex() != o.GetIndex() || !bytes.Equal(e.GetData(), o.GetData()) {
			return false
		}
	}
	return a.GetType() == b.GetType() && a.GetTo() == b.GetTo() && a.GetFrom() == b.GetFrom() && a.GetTerm() == b.GetTerm() &&
		a.GetLogTerm() == b.GetLogTerm() && a.GetIndex() == b.GetIndex() && a.GetCommit() == b.GetCommit() && a.GetVote() == b.GetVote() &&
		a.GetReject() == b.GetReject() && a.GetRejectHint() == b.GetRejectHint() && bytes.Equal(a.GetContext(), b.GetContext())
}

func decodeRaft(b []byte) ([]wire.RaftMessage, error) {
	var out []wire.RaftMessage
	err := wire.DecodeRaft(b, func(m wire.RaftMessage) { out = append(out, m) })
	return out, err
}

func TestRaftMessagesTravel(t *testing.T) {
	all := wire.NewRaftBatch()
	for i, m := range raftSamples() {
		b := wire.AppendRaft(wire.NewRaftBatch(), uint64(i), m)
		got, err := decodeRaft(b)
		if err != nil || len(got) != 1 || got[0].Group != uint64(i) || !equal(got[0].Message, m) {
			t.Errorf("%v came back as %v, %v", m, got, err)
		}
		for cut := range b {
			if n := len(b); cut > 200 && cut < n-200 {
				continue // inside one long value
			}
			if got, err := decodeRaft(b[:cut]); cut != 1 && !errors.Is(err, wire.ErrMalformed) || len(got) != 0 {
				t.Errorf("%s cut after %d of %d bytes: %d messages, %v", m.GetType(), cut, len(b), len(got), err)
			}
		}
		all = wire.AppendRaft(all, uint64(i), m)
	}
	got, err := decodeRaft(all)
	if err != nil || len(got) != len(raftSamples()) {
		t.Fatalf("a batch of all: %d messages, %v", len(got), err)
	}
	for i, m := range raftSamples() {
		if got[i].Group != uint64(i) || !equal(got[i].Message, m) {
			t.Errorf("in a batch, %v came back as %v", m, got[i])
		}
	}
}

// TestEveryFieldOfARaftMessageIsKnown fails when a release of the raft library
// has a field that the codec does not carry.
func TestEveryFieldOfARaftMessageIsKnown(t *testing.T) {
	known := map[string]bool{
		"type": true, "to": true, "from": true, "term": true, "logTerm": true, "index": true, "entries": true,
		"commit": true, "vote": true, "reject": true, "rejectHint": true, "context": true,
		"snapshot":  false, // travels on a stream of its own
		"responses": false, // of local messages only
	}
	fields := (&pb.Message{}).ProtoReflect().Descriptor().Fields()
	for i := range fields.Len() {
		if _, ok := known[string(fields.Get(i).Name())]; !ok {
			t.Errorf("the field %s of a raft message is not carried", fields.Get(i).Name())
		}
	}
	entries := (&pb.Entry{}).ProtoReflect().Descriptor().Fields()
	if entries.Len() != 4 {
		t.Errorf("an entry has %d fields, of which 4 are carried", entries.Len())
	}
}

// TestRaftMessagesDoNotAliasTheFrame: entries live on in logs and caches, and a
// frame is as large as its largest neighbour.
func TestRaftMessagesDoNotAliasTheFrame(t *testing.T) {
	m := raftSamples()[0]
	b := wire.AppendRaft(wire.NewRaftBatch(), 1, m)
	got, err := decodeRaft(b)
	if err != nil {
		t.Fatal(err)
	}
	clear(b)
	if !equal(got[0].Message, m) {
		t.Error("the messages changed with the frame")
	}
	first := got[0].GetEntries()[0]
	_ = append(first.Data, "####"...)
	if !equal(got[0].Message, m) {
		t.Error("appending to one entry's data changed another's")
	}
}

func TestHostileRaftBatches(t *testing.T) {
	head := []byte{1, byte(pb.MsgApp)}
	huge := wire.AppendUvarint(nil, math.MaxUint64)
	for _, test := range []struct {
		name string
		in   []byte
		want string
	}{
		{"empty", nil, "malformed: version of a raft batch"},
		{"later version", []byte{2}, "raft batch of version 2: this node reads version 1"},
		{"many entries", append(append(append([]byte{}, head...), 1<<2, 1, 2, 3, 4), huge...), "malformed: number of raft entries: a list of 18446744073709551615"},
		{"entries past the end", append(append([]byte{}, head...), 1<<2, 1, 2, 3, 4, 3, 0, 1, 1, 0, 0, 1), "malformed: number of raft entries"},
		{"long data", append(append(append([]byte{}, head...), 1<<2, 1, 2, 3, 4, 1, 0, 1, 1), huge...), "malformed: raft entry data"},
		{"long context", append(append(append([]byte{}, head...), 1<<1, 1, 2, 3, 4), huge...), "malformed: raft message context: 18446744073709551615 bytes, the limit is 1024"},
		{"ends in the group", append(append([]byte{}, head...), 0, 0x80), "malformed: raft group"},
		{"ends in the sender", append(append([]byte{}, head...), 0, 1, 2), "malformed: raft message from"},
		{"ends in the position", append(append([]byte{}, head...), 1<<3, 1, 2, 3, 4, 5), "malformed: raft message index"},
		{"ends in the hint", append(append([]byte{}, head...), 1<<4, 1, 2, 3, 4, 5, 6), "malformed: raft message reject hint"},
	} {
		got, err := decodeRaft(test.in)
		if err == nil || !strings.HasPrefix(err.Error(), test.want) || len(got) != 0 {
			t.Errorf("%s: %d messages, %v, want %q", test.name, len(got), err, test.want)
		}
	}
}

// TestRaftEntriesAreNotBelieved has a list as long as the input could just hold,
// which may cost a small multiple of the input and no more.
func TestRaftEntriesAreNotBelieved(t *testing.T) {
	in := append([]byte{1, byte(pb.MsgApp), 1 << 2, 1, 2, 3, 4}, wire.AppendUvarint(nil, 1<<40)...)
	in = append(in, make([]byte, 64<<10)...)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := decodeRaft(in); err == nil {
		t.Error("a list of 2^40 entries was believed")
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 1<<20 {
		t.Errorf("%d bytes were allocated for it", n)
	}
}

func FuzzDecodeRaft(f *testing.F) {
	for i, m := range raftSamples() {
		f.Add(wire.AppendRaft(wire.NewRaftBatch(), uint64(i), m))
	}
	f.Add(wire.AppendWord(wire.NewRaftBatch(), 3, word(pb.MsgHeartbeat, 1, 2, 7, 300), wire.Word{Frontier: 301, Rest: true}))
	f.Add([]byte{1})
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, b []byte) {
		messages, err := decodeRaft(b)
		again := wire.NewRaftBatch()
		for _, m := range messages {
			if m.Word != nil {
				again = wire.AppendWord(again, m.Group, m.Message, *m.Word)
				continue
			}
			again = wire.AppendRaft(again, m.Group, m.Message)
		}
		back, err2 := decodeRaft(again)
		if err2 != nil || len(back) != len(messages) {
			t.Fatalf("%d messages came back as %d, %v (%v)", len(messages), len(back), err2, err)
		}
		for i := range back {
			if back[i].Group != messages[i].Group || !equal(back[i].Message, messages[i].Message) {
				t.Errorf("%v came back as %v", messages[i], back[i])
			}
		}
	})
}

func TestStoredEntries(t *testing.T) {
	for _, want := range []*pb.Entry{
		raftEntry(5, 3, []byte("data")),
		raftEntry(1<<60, math.MaxUint64, nil),
		{Type: pb.EntryConfChangeV2.Enum(), Index: proto.Uint64(1), Term: proto.Uint64(1), Data: []byte{0}},
	} {
		b := wire.AppendEntry(nil, want)
		got, err := wire.DecodeEntry(want.GetIndex(), b)
		if err != nil || !proto.Equal(got, want) {
			t.Errorf("%v came back as %v, %v", want, got, err)
		}
		if term, err := wire.EntryTerm(b); term != want.GetTerm() || err != nil {
			t.Errorf("the term of %v is %d, %v", want, term, err)
		}
	}
	for _, b := range [][]byte{nil, {0}, {0, 0x80}} {
		if _, err := wire.DecodeEntry(9, b); !errors.Is(err, wire.ErrMalformed) || !strings.Contains(err.Error(), "entry 9") {
			t.Errorf("%x: %v", b, err)
		}
		if _, err := wire.EntryTerm(b); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("the term of %x: %v", b, err)
		}
	}
}

func FuzzDecodeEntry(f *testing.F) {
	f.Add(wire.AppendEntry(nil, raftEntry(5, 3, []byte("data"))))
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := wire.DecodeEntry(5, b)
		term, err2 := wire.EntryTerm(b)
		if (err == nil) != (err2 == nil) || err == nil && term != e.GetTerm() {
			t.Fatalf("entry %v (%v), term %d (%v)", e, err, term, err2)
		}
		if err != nil {
			return
		}
		back, err := wire.DecodeEntry(5, wire.AppendEntry(nil, e))
		if err != nil || !proto.Equal(e, back) {
			t.Errorf("%v came back as %v, %v", e, back, err)
		}
	})
}

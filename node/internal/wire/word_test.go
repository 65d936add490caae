package wire_test

import (
	"errors"
	"math"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/wire"
)

func word(t pb.MessageType, from, to, term, commit uint64) *pb.Message {
	return &pb.Message{Type: t.Enum(), From: &from, To: &to, Term: &term, Commit: &commit}
}

// TestWordsTravel: words go in a batch with raft's own messages, and a cut one is
// no word.
func TestWordsTravel(t *testing.T) {
	type sample struct {
		m *pb.Message
		w wire.Word
	}
	samples := []sample{
		{word(pb.MsgHeartbeat, 1, 2, 7, 300), wire.Word{Frontier: 301}},
		{word(pb.MsgHeartbeat, 1, 2, 7, 300), wire.Word{Frontier: 300, Rest: true}},
		{word(pb.MsgHeartbeat, math.MaxUint64, 1<<50, math.MaxUint64, math.MaxUint64), wire.Word{Frontier: math.MaxUint64}},
		{word(pb.MsgHeartbeatResp, 2, 1, 7, 0), wire.Word{}},
		{word(pb.MsgHeartbeatResp, 2, 1, 7, 300), wire.Word{Rest: true}},
	}
	batch := wire.NewRaftBatch()
	for i, s := range samples {
		one := wire.AppendWord(wire.NewRaftBatch(), uint64(i), s.m, s.w)
		for cut := range one {
			if got, err := decodeRaft(one[:cut]); cut != 1 && !errors.Is(err, wire.ErrMalformed) || len(got) != 0 {
				t.Errorf("word %d cut after %d of %d bytes: %d messages, %v", i, cut, len(one), len(got), err)
			}
		}
		batch = wire.AppendWord(batch, uint64(i), s.m, s.w)
		batch = wire.AppendRaft(batch, 99, raftSamples()[0])
	}
	got, err := decodeRaft(batch)
	if err != nil || len(got) != 2*len(samples) {
		t.Fatalf("%d messages, %v", len(got), err)
	}
	for i, s := range samples {
		m, own := got[2*i], got[2*i+1]
		if m.Group != uint64(i) || !equal(m.Message, s.m) || m.Word == nil || *m.Word != s.w {
			t.Errorf("%v %+v came back as %v %+v", s.m, s.w, m.Message, m.Word)
		}
		if own.Word != nil || !equal(own.Message, raftSamples()[0]) {
			t.Errorf("raft's own message after word %d came back as %v %+v", i, own.Message, own.Word)
		}
	}
}

// TestWordsAreNoRaftMessages: raft must never get to use their numbers.
func TestWordsAreNoRaftMessages(t *testing.T) {
	for kind := range pb.MessageType_name {
		if kind >= 0xF0 {
			t.Errorf("raft has a message of type %d, which stands for a word", kind)
		}
	}
}

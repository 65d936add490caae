package wire_test

import (
	"reflect"
	"testing"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

func TestPass(t *testing.T) {
	m := word(pb.MsgHeartbeat, 1, 2, 7, 300)
	b := wire.AppendPass(wire.NewRaftBatch(), 1<<40)
	b = wire.AppendWord(b, 3, m, wire.Word{Frontier: 301})
	if got := wire.RaftPass(b); got != 1<<40 {
		t.Errorf("the pass is %d", got)
	}
	n := 0
	if err := wire.DecodeRaft(b, func(got wire.RaftMessage) { n += int(got.Group) }); err != nil || n != 3 {
		t.Errorf("the message behind it: group %d, %v", n, err)
	}
	for _, none := range [][]byte{nil, wire.NewRaftBatch(), wire.AppendWord(wire.NewRaftBatch(), 3, m, wire.Word{}), b[:2], {2, 0xF2, 1}} {
		if got := wire.RaftPass(none); got != 0 {
			t.Errorf("%x has pass %d", none, got)
		}
	}
	if err := wire.DecodeRaft(b[:4], func(wire.RaftMessage) {}); err == nil {
		t.Error("a pass that is cut off was read")
	}
}

func TestSighting(t *testing.T) {
	want := wire.Sighting{
		Disk: api.DiskID{1, 2}, Incarnation: api.Incarnation{Node: "a", Start: 17, Suffix: 3}, Pass: 80211,
		At: time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC),
	}
	b := wire.AppendSighting(nil, &want)
	if got, err := wire.DecodeSighting(b); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v came back as %+v, %v", want, got, err)
	}
	for cut := range b {
		if _, err := wire.DecodeSighting(b[:cut]); err == nil {
			t.Errorf("cut after %d of %d bytes, and read", cut, len(b))
		}
	}
	b[0] = 2
	if _, err := wire.DecodeSighting(b); err == nil {
		t.Error("a later version was read")
	}
}

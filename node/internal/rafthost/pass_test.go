package rafthost_test

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"tidal/node/internal/wire"
)

// TestPromisesCarryTheirPass: every message that promises something comes in a batch
// with the number of a pass that its disk has for certain. Who remembers that number
// knows the disk again if it has lost what it promised.
func TestPromisesCarryTheirPass(t *testing.T) {
	f := newFabric(t, 1)
	lead := f.elect(1)
	promised := map[string]uint64{}
	f.sent = func(n *node, batch []byte) {
		f.check(wire.DecodeRaft(batch, func(m wire.RaftMessage) {
			if m.GetType() == pb.MsgAppResp && !m.GetReject() {
				promised[n.id] = wire.RaftPass(batch)
				if promised[n.id] > n.stepper.Synced() {
					t.Errorf("%s tells pass %d, and has synced %d", n.id, promised[n.id], n.stepper.Synced())
				}
			}
		}))
	}
	before := map[string]uint64{}
	for _, n := range f.nodes {
		before[n.id] = n.stepper.Synced()
	}
	r := lead.propose(1, "text")
	f.settle()
	f.is("the proposal", r, nil)
	for _, n := range f.nodes[1:] {
		if got := promised[n.id]; got <= before[n.id] {
			t.Errorf("%s had synced pass %d, and promised with %d", n.id, before[n.id], got)
		}
	}
}

// TestEverySyncIsNumbered: also the batches that make replicas.
func TestEverySyncIsNumbered(t *testing.T) {
	f := newFabric(t, 1, 2)
	for _, n := range f.nodes {
		if stored, err := n.db.LastPass(); err != nil || n.stepper.Synced() != 2 || stored != 2 {
			t.Errorf("%s has made two replicas, is at pass %d, and its disk at %d, %v", n.id, n.stepper.Synced(), stored, err)
		}
	}
}

package cluster

import (
	"testing"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// TestNewDiskCountsAnew: the runs of a node's new disk begin at 1, after those of
// the one that is gone, whose late words count no more.
func TestNewDiskCountsAnew(t *testing.T) {
	var d directory
	d.init()
	hb := func(term uint64) *wire.Heartbeat {
		return &wire.Heartbeat{Owned: []wire.Owned{{Table: 2, Term: term, Frontier: 9}}}
	}
	d.disk("b", api.DiskID{2})
	d.dead("b", inc("b", 5))
	d.heard(inc("b", 5), hb(3))
	d.disk("b", api.DiskID{9})
	d.dead("b", inc("b", 1))
	if d.claim(2) != (claim{}) {
		t.Errorf("the lost disk still owns a table: %+v", d.claim(2))
	}
	if d.heard(inc("b", 5), hb(4)) {
		t.Error("a late word of the lost disk is taken")
	}
	if !d.heard(inc("b", 1), hb(5)) || d.claim(2).by != inc("b", 1) {
		t.Errorf("the new disk's word is not taken: %+v", d.claim(2))
	}
}

// TestReplacedReplicaDoesNotLive: the node lives again, and the replica that went
// with its old disk does not.
func TestReplacedReplicaDoesNotLive(t *testing.T) {
	w := newWorld(t)
	w.do(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "t", Nodes: []string{"a", "b", "c"}})
	w.do(wire.MetaCommand{Kind: wire.MetaReplaceDisk, Node: "b"})
	w.do(wire.MetaCommand{Kind: wire.MetaAdmitNode, Joiner: wire.Founder{Node: "b", Disk: api.DiskID{9}, Address: "http://b"}})
	w.lease("b", 1)
	c := still(w.state.View())
	c.o.Tables = stuck{}
	live := map[bool]bool{} // by leaving
	for _, r := range c.describe(w.state.View().Tables[0], nil).Replicas {
		if r.Node == "b" {
			live[r.Leaving] = r.Live
		}
	}
	if len(live) != 2 || live[true] || !live[false] {
		t.Errorf("live, by whether it leaves: %v", live)
	}
}

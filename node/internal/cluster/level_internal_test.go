package cluster

import (
	"errors"
	"strings"
	"testing"

	"tidal/node/api"
	"tidal/node/internal/rafthost"
	"tidal/node/internal/wire"
)

// TestAdmitLevels: a remote that does not speak what the cluster writes is refused. One
// that is too new only by who has missed nothing: else the level may have risen.
func TestAdmitLevels(t *testing.T) {
	for _, test := range []struct {
		name          string
		min, max      uint64
		joins, behind bool
		want          string // "": admitted
	}{
		{name: "our release", min: 1, max: 1},
		{name: "the release after ours", min: 1, max: 2},
		{name: "two after ours", min: 2, max: 3, want: "node b runs release v1, which speaks levels 2 to 3, and the cluster is at level 1 (forbidden): upgrade all nodes to a release in between"},
		{name: "two after ours, seen by one that is behind", min: 2, max: 3, behind: true},
		{name: "too old", want: "older releases cannot read what the cluster writes"},
		{name: "too old, seen by one that is behind", behind: true, want: "older releases cannot read"},
		{name: "too old, with an empty disk", joins: true, want: "which speaks level 0, and the cluster is at level 1"},
	} {
		c := still(newWorld(t).state.View())
		if !test.behind {
			c.mu.meta.Lead()
		}
		h := wire.Hello{
			Kind: wire.ConnCall, Cluster: "prod", ClusterID: api.ClusterID{1}, Disk: api.DiskID{2}, Incarnation: inc("b", 7),
			Version: "v1", Min: test.min, Max: test.max,
		}
		if test.joins {
			h.ClusterID = api.ClusterID{}
		}
		if err := c.Admit(h); (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

// TestRaisedTooFar: should the level ever rise beyond what a member speaks, that one
// stops before it reads anything that it could misread. This is the guard behind the
// rule that refuses such a rise.
func TestRaisedTooFar(t *testing.T) {
	w := newWorld(t)
	for _, n := range []string{"a", "b", "c"} {
		m, _ := w.state.View().Member(n)
		w.do(wire.MetaCommand{Kind: wire.MetaGrantLease, Lease: wire.Lease{Disk: m.Disk, Incarnation: inc(n, 1), Address: m.Address, Levels: api.Levels{Min: 1, Max: 2}}})
	}
	c := still(w.state.View()) // which speaks level 1
	m := &machine{c: c, state: w.state}
	_, _, err := m.Apply(nil, rafthost.Entry{Index: 9, Data: wire.AppendMetaCommand(nil, &wire.MetaCommand{Kind: wire.MetaRaiseLevel, ID: newID(), Level: 2})})
	if !errors.Is(err, wire.ErrNewer) || !strings.Contains(err.Error(), "meta entry 9") || !strings.Contains(err.Error(), "which speaks level 1, and the cluster is at level 2") {
		t.Errorf("it went on: %v", err)
	}
	if err = c.speaks(w.state.View()); !errors.Is(err, wire.ErrNewer) {
		t.Errorf("it would start on that: %v", err)
	}
}

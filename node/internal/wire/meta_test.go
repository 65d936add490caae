package wire_test

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// codec runs one format of the meta group without its type.
type codec struct {
	name   string
	good   [][]byte // encoded samples
	decode func(b []byte) (any, error)
	encode func(v any) []byte
}

func codecOf[T any](name string, encode func([]byte, *T) []byte, decode func([]byte) (T, error), samples ...T) codec {
	c := codec{
		name:   name,
		decode: func(b []byte) (any, error) { return decode(b) },
		encode: func(v any) []byte { x := v.(T); return encode(nil, &x) },
	}
	for _, s := range samples {
		c.good = append(c.good, encode(nil, &s))
	}
	return c
}

func metaCodecs() []codec {
	inc := api.Incarnation{Node: "a", Start: 17, Suffix: 0x3f2a9c1b}
	lease := wire.Lease{Disk: api.DiskID{1}, Incarnation: inc, Address: "https://a:8433", Version: "1.2.3", Zone: "z1", Levels: api.Levels{Min: 3, Max: 4}, Draining: true, Crashed: true}
	return []codec{
		codecOf("formation", wire.AppendFormation, wire.DecodeFormation, wire.Formation{
			ClusterID: api.ClusterID{7}, Cluster: "prod", Level: 3, Members: []wire.Founder{
				{Node: "a", Disk: api.DiskID{1}, Address: "https://a:8433", Zone: "z1"},
				{Node: "b", Disk: api.DiskID{2}, Address: "https://b:8433"},
			},
		}),
		codecOf("lease", wire.AppendLease, wire.DecodeLease, lease, wire.Lease{}),
		codecOf("member", wire.AppendMember, wire.DecodeMember,
			wire.Member{Node: "a", Disk: api.DiskID{1}, Address: "https://a", Zone: "z", Replica: 1, Voter: true, Rising: true, Last: inc, Left: true, Levels: api.Levels{Min: 3, Max: 4}},
			wire.Member{Node: "b"}),
		codecOf("table", wire.AppendTable, wire.DecodeTable, wire.Table{
			ID: 1 << 50, Name: "t", Wanted: 3,
			First: []uint64{4, 5}, Settled: 77,
			Replicas: []wire.Replica{{Node: "a", ID: 4, Voter: true, Leaving: true}, {Node: "b", ID: 1 << 60}},
		}),
		codecOf("command", wire.AppendMetaCommand, wire.DecodeMetaCommand,
			wire.MetaCommand{Kind: wire.MetaGrantLease, ID: api.RequestID{1}, Lease: lease},
			wire.MetaCommand{Kind: wire.MetaDrainLease, ID: api.RequestID{2}, Incarnation: inc, Draining: true},
			wire.MetaCommand{Kind: wire.MetaExpireLease, ID: api.RequestID{3}, Incarnation: inc},
			wire.MetaCommand{Kind: wire.MetaWithdrawLease, Incarnation: inc},
			wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "t", Wanted: 2, Nodes: []string{"b", "a"}},
			wire.MetaCommand{Kind: wire.MetaDropTable, Name: "t", Table: 9},
			wire.MetaCommand{
				Kind: wire.MetaAdmitNode, Known: true,
				Joiner: wire.Founder{Node: "d", Disk: api.DiskID{4}, Address: "https://d:8433", Zone: "z4"},
			},
			wire.MetaCommand{Kind: wire.MetaReplaceDisk, Node: "b"},
			wire.MetaCommand{Kind: wire.MetaRaiseLevel, Level: 300},
			wire.MetaCommand{Kind: wire.MetaMoveReplica, Table: 9, From: "a", To: "d"},
			wire.MetaCommand{Kind: wire.MetaSettleTable, Table: 9, Index: 300, Voters: []uint64{4, 9}, Learners: []uint64{10}},
			wire.MetaCommand{Kind: wire.MetaRotate, Rotation: wire.Rotation{Old: "1a", New: "2b", Phase: "soak", By: "ann"}},
			wire.MetaCommand{Kind: wire.MetaRevoke, Revocation: wire.Revocation{Serial: "12ab", Reason: "lost", By: "ann"}},
			wire.MetaCommand{Kind: wire.MetaChangeRoll, ID: api.RequestID{4}, Roll: wire.RollCommand{
				Action: api.RollEnd, Roll: 3, At: 1 << 40, Force: true, Epoch: 9, By: "ann", Node: "a", State: "drain", Note: "n",
				Status: api.RollPaused, Ask: "pause", Why: "so", Data: []byte("{}"),
			}}),
		codecOf("roll", wire.AppendRoll, wire.DecodeRoll, wire.Roll{}, wire.Roll{
			ID: 3, Epoch: 9, By: "ann", Status: api.RollPaused, Ask: "abort", Why: "so", Began: 1 << 40, Changed: 1 << 41,
			Made: api.RequestID{1}, Taken: api.RequestID{2}, Plan: []byte("{}"), Report: []byte("[]"),
		}),
		codecOf("node of a roll", wire.AppendRollNode, wire.DecodeRollNode, wire.RollNode{}, wire.RollNode{
			Node: "a", State: "drain", Note: "n", Data: []byte("{}"), Steps: []wire.RollStep{{State: "check", At: 1 << 40}, {State: "drain", At: 1 << 41}},
		}),
		codecOf("rotation", wire.AppendRotation, wire.DecodeRotation, wire.Rotation{Old: "1a", New: "2b", Phase: "soak", By: "ann"}, wire.Rotation{}),
		codecOf("revocation", wire.AppendRevocation, wire.DecodeRevocation, wire.Revocation{Serial: "12ab", Reason: "lost", By: "ann"}, wire.Revocation{}),
		codecOf("answer", wire.AppendMetaAnswer, wire.DecodeMetaAnswer,
			wire.MetaAnswer{Changed: true, Table: 5, Replica: 12, Roll: 3, Epoch: 9},
			wire.MetaAnswer{Code: api.CodeTableExists, Message: "so"}),
		codecOf("join request", wire.AppendJoinRequest, wire.DecodeJoinRequest,
			wire.JoinRequest{Address: "https://d:8433", Zone: "z4", Known: true}),
		codecOf("founding", wire.AppendFounding, wire.DecodeFounding, wire.Founding{List: "a=x b=y ", Members: []string{"a", "b"}}),
		codecOf("admission", wire.AppendAdmission, wire.DecodeAdmission, wire.Admission{Replica: 12, Formation: wire.Formation{
			ClusterID: api.ClusterID{7}, Cluster: "prod", Members: []wire.Founder{{Node: "a", Disk: api.DiskID{1}, Address: "https://a:8433"}},
		}}),
		codecOf("roster", wire.AppendRoster, wire.DecodeRoster, wire.Roster{Next: 17, Term: 3, Index: 99, Members: []wire.Member{
			{Node: "a", Disk: api.DiskID{1}, Address: "https://a", Zone: "z", Replica: 1, Voter: true, Rising: true, Last: inc, Left: true, Levels: api.Levels{Min: 3, Max: 4}},
		}}),
	}
}

// Each sample uses every field of its type: a field that the form forgets comes
// back as zero.
func TestMetaRoundTrip(t *testing.T) {
	for _, c := range metaCodecs() {
		for _, b := range c.good {
			v, err := c.decode(b)
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
				continue
			}
			if again := c.encode(v); !bytes.Equal(again, b) {
				t.Errorf("%s: got %x, want %x", c.name, again, b)
			}
		}
	}
	want := wire.MetaCommand{Kind: wire.MetaCreateTable, ID: api.RequestID{1}, Name: "t", Wanted: 2, Nodes: []string{"b", "a"}}
	got, err := wire.DecodeMetaCommand(wire.AppendMetaCommand(nil, &want))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestMetaRefuses(t *testing.T) {
	for _, c := range metaCodecs() {
		for _, b := range c.good {
			for n := range b {
				if _, err := c.decode(b[:n]); !errors.Is(err, wire.ErrMalformed) {
					t.Errorf("%s cut at %d of %d: %v", c.name, n, len(b), err)
				}
			}
			if _, err := c.decode(append(bytes.Clone(b), 0)); !errors.Is(err, wire.ErrMalformed) {
				t.Errorf("%s with a byte more: %v", c.name, err)
			}
			newer := bytes.Clone(b)
			if c.name == "command" {
				newer[1] = 2
			} else {
				newer[0] = 2
			}
			if _, err := c.decode(newer); !errors.Is(err, wire.ErrNewer) {
				t.Errorf("%s of version 2: %v", c.name, err)
			}
		}
	}
	kind := wire.AppendMetaCommand(nil, &wire.MetaCommand{Kind: 200})
	if _, err := wire.DecodeMetaCommand(kind); !errors.Is(err, wire.ErrNewer) || !strings.Contains(err.Error(), "kind 200") {
		t.Errorf("a later kind: %v", err)
	}
	wanted := wire.AppendMetaCommand(nil, &wire.MetaCommand{Kind: wire.MetaCreateTable, Wanted: api.MaxReplicas + 1})
	if _, err := wire.DecodeMetaCommand(wanted); !errors.Is(err, wire.ErrMalformed) {
		t.Errorf("too many replicas: %v", err)
	}
	for _, nodes := range [][2]string{{"b", "a"}, {"a", "a"}} {
		f := wire.Formation{Members: []wire.Founder{{Node: nodes[0]}, {Node: nodes[1]}}}
		if _, err := wire.DecodeFormation(wire.AppendFormation(nil, &f)); !errors.Is(err, wire.ErrMalformed) {
			t.Errorf("members %v: %v", nodes, err)
		}
	}
}

func TestFormationProposer(t *testing.T) {
	f := wire.Formation{Members: []wire.Founder{{Node: "a"}, {Node: "b", Disk: api.DiskID{1}}, {Node: "c", Disk: api.DiskID{2}}}}
	if p := f.Proposer(); p.Node != "b" {
		t.Errorf("the proposer is %q, want b", p.Node)
	}
	if p := (&wire.Formation{}).Proposer(); p.Node != "" {
		t.Errorf("the proposer of nobody is %q", p.Node)
	}
}

func TestFormationReplica(t *testing.T) {
	f := wire.Formation{Members: []wire.Founder{{Node: "a"}, {Node: "b"}}}
	if a, b, c := f.Replica("a"), f.Replica("b"), f.Replica("c"); a != 1 || b != 2 || c != 0 {
		t.Errorf("got %d %d %d, want 1 2 0", a, b, c)
	}
}

func FuzzDecodeMeta(f *testing.F) {
	for i, c := range metaCodecs() {
		for _, b := range c.good {
			f.Add(byte(i), b)
		}
	}
	codecs := metaCodecs()
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		c := codecs[int(which)%len(codecs)]
		v, err := c.decode(b)
		if err != nil {
			return
		}
		again, err := c.decode(c.encode(v))
		if err != nil || !reflect.DeepEqual(again, v) {
			t.Errorf("%s: %+v came back as %+v, %v", c.name, v, again, err)
		}
	})
}

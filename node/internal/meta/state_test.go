package meta_test

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tidal/node/api"
	"tidal/node/internal/meta"
	"tidal/node/internal/wire"
)

// group is a state with its records as a database would hold them.
type group struct {
	tb      testing.TB
	s       *meta.State
	records map[string][]byte
	index   uint64
}

func newGroup(tb testing.TB) *group {
	tb.Helper()
	g := &group{tb: tb, records: map[string][]byte{}}
	g.reload()
	return g
}

func (g *group) check(err error) {
	g.tb.Helper()
	if err != nil {
		g.tb.Fatal(err)
	}
}

func (g *group) all() iter.Seq2[[]byte, []byte] {
	return func(yield func(k, v []byte) bool) {
		for k, v := range g.records {
			if !yield([]byte(k), v) {
				return
			}
		}
	}
}

func (g *group) reload() {
	g.tb.Helper()
	s, err := meta.Load(g.all())
	g.check(err)
	g.s = s
}

func (g *group) store(changes []meta.Change) {
	for _, c := range changes {
		if c.Value == nil {
			delete(g.records, string(c.Key))
		} else {
			g.records[string(c.Key)] = c.Value
		}
	}
}

func (g *group) apply(c wire.MetaCommand) meta.Result {
	g.tb.Helper()
	g.index++
	r, err := g.s.Apply(g.index, wire.AppendMetaCommand(nil, &c))
	g.check(err)
	g.store(r.Changes)
	return r
}

func disk(node string) (d api.DiskID) {
	copy(d[:], "disk-"+node)
	return d
}

func formation(nodes ...string) wire.Formation {
	f := wire.Formation{ClusterID: api.ClusterID{7}, Cluster: "prod"}
	for _, n := range nodes {
		d := disk(n)
		if there, away := strings.CutSuffix(n, "-"); away {
			n, d = there, api.DiskID{}
		}
		f.Members = append(f.Members, wire.Founder{Node: n, Disk: d, Address: "https://" + n, Zone: "z-" + n})
	}
	return f
}

func (g *group) form(nodes ...string) {
	g.tb.Helper()
	changes, err := g.s.Genesis(formation(nodes...))
	g.check(err)
	g.store(changes)
}

// TestState runs the scripts in testdata. A cluster forms of nodes, a- being one that
// is away. A command is a line:
//
//	grant INCARNATION [address=A] [zone=Z] [version=V] [disk=NODE] [levels=MIN-MAX] [draining]
//	drain|undrain|expire|withdraw INCARNATION
//	create NAME [wanted=N] NODE...
//	drop ID
//	admit NODE DISK [known]
//	replace NODE
//	move ID FROM TO
//	settle ID INDEX VOTER... [learner=N]
//	roll ACTION ... as parseRoll reads it
//	revoke SERIAL REASON
//	rotate OLD NEW PHASE
//	note INCARNATION PASS [disk=NODE]
//	raise LEVEL
func TestState(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		t.Helper()
		g := newGroup(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			t.Helper()
			var out strings.Builder
			switch d.Cmd {
			case "form":
				g.form(strings.Fields(d.Input)...)
			case "apply":
				for line := range strings.Lines(d.Input) {
					r := g.apply(parse(t, strings.Fields(line)))
					fmt.Fprintf(&out, "%d: %s\n", g.index, say(r))
				}
			case "view":
				return show(g.s.View())
			case "records":
				for _, k := range slices.Sorted(maps.Keys(g.records)) {
					fmt.Fprintln(&out, k)
				}
			case "reload":
				g.reload()
			default:
				t.Fatalf("%s: unknown command %s", d.Pos, d.Cmd)
			}
			return out.String()
		})
	})
}

func parse(t *testing.T, words []string) wire.MetaCommand {
	t.Helper()
	c := wire.MetaCommand{Kind: map[string]wire.MetaKind{
		"grant": wire.MetaGrantLease, "drain": wire.MetaDrainLease, "undrain": wire.MetaDrainLease,
		"expire": wire.MetaExpireLease, "withdraw": wire.MetaWithdrawLease,
		"create": wire.MetaCreateTable, "drop": wire.MetaDropTable,
		"admit": wire.MetaAdmitNode, "replace": wire.MetaReplaceDisk, "move": wire.MetaMoveReplica, "settle": wire.MetaSettleTable,
		"roll":   wire.MetaChangeRoll,
		"revoke": wire.MetaRevoke, "rotate": wire.MetaRotate,
		"note": wire.MetaNoteDisk, "raise": wire.MetaRaiseLevel,
	}[words[0]]}
	switch words[0] {
	case "roll":
		c.ID, c.Roll = parseRoll(t, words[1:])
		return c
	case "create":
		c.Name = words[1]
		for _, w := range words[2:] {
			if n, ok := strings.CutPrefix(w, "wanted="); ok {
				c.Wanted, _ = strconv.Atoi(n)
			} else {
				c.Nodes = append(c.Nodes, w)
			}
		}
		return c
	case "admit":
		c.Joiner = wire.Founder{Node: words[1], Disk: disk(words[2]), Address: "https://" + words[1], Zone: "z-" + words[1]}
		c.Known = len(words) > 3
		return c
	case "revoke":
		c.Revocation = wire.Revocation{Serial: strings.Repeat("0", 32-len(words[1])) + words[1], Reason: words[2], By: "ann"}
		return c
	case "rotate":
		c.Rotation = wire.Rotation{Old: strings.Repeat(words[1], 64), New: strings.Repeat(words[2], 64), Phase: words[3], By: "ann"}
		return c
	case "replace":
		c.Node = words[1]
		return c
	case "raise":
		c.Level = number(t, words[1])
		return c
	case "drop", "move", "settle":
		c.Table = api.TableID(number(t, words[1]))
		switch words[0] {
		case "move":
			c.From, c.To = words[2], words[3]
		case "settle":
			c.Index = number(t, words[2])
			for _, w := range words[3:] {
				if n, ok := strings.CutPrefix(w, "learner="); ok {
					c.Learners = append(c.Learners, number(t, n))
				} else {
					c.Voters = append(c.Voters, number(t, w))
				}
			}
		}
		return c
	}
	inc, err := api.ParseIncarnation(words[1])
	if err != nil {
		t.Fatal(err)
	}
	if words[0] == "note" {
		c.Seen = wire.Sighting{Disk: disk(inc.Node), Incarnation: inc, Pass: number(t, words[2]), At: time.UnixMilli(1000).UTC()}
		if len(words) > 3 {
			c.Seen.Disk = disk(strings.TrimPrefix(words[3], "disk="))
		}
		return c
	}
	c.Incarnation, c.Draining = inc, words[0] == "drain"
	c.Lease = wire.Lease{Disk: disk(inc.Node), Incarnation: inc, Address: "https://" + inc.Node, Zone: "z-" + inc.Node, Version: "1", Levels: api.Levels{Min: 1, Max: 1}}
	for _, w := range words[2:] {
		name, value, _ := strings.Cut(w, "=")
		switch name {
		case "address":
			c.Lease.Address = value
		case "zone":
			c.Lease.Zone = value
		case "version":
			c.Lease.Version = value
		case "levels":
			low, high, _ := strings.Cut(value, "-")
			c.Lease.Levels = api.Levels{Min: number(t, low), Max: number(t, high)}
		case "disk":
			c.Lease.Disk = disk(value)
		case "draining":
			c.Lease.Draining = true
		default:
			t.Fatalf("unknown option %q", w)
		}
	}
	return c
}

func number(t *testing.T, word string) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(word, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func say(r meta.Result) string {
	a := r.Answer
	var b strings.Builder
	switch {
	case a.Err() != nil:
		fmt.Fprint(&b, a.Err())
	case a.Changed:
		b.WriteString("done")
	default:
		b.WriteString("so before")
	}
	if a.Table != 0 {
		fmt.Fprintf(&b, ", table %d", a.Table)
	}
	if a.Replica != 0 {
		fmt.Fprintf(&b, ", replica %d", a.Replica)
	}
	if a.Roll != 0 {
		fmt.Fprintf(&b, ", roll %d epoch %d", a.Roll, a.Epoch)
	}
	for _, c := range r.Changes {
		if c.Value == nil {
			b.WriteString(" -" + string(c.Key))
		} else {
			b.WriteString(" +" + string(c.Key))
		}
	}
	return b.String()
}

func show(v *meta.View) string {
	var b strings.Builder
	fmt.Fprintf(&b, "index %d cluster %s next table %d next replica %d\n", v.Index, v.Formation.Cluster, v.NextTable, v.NextReplica)
	if v.Level != 1 {
		fmt.Fprintf(&b, "level %d\n", v.Level)
	}
	for _, m := range v.Members {
		fmt.Fprintf(&b, "member %s %s zone %s replica %d voter %t", m.Node, m.Address, m.Zone, m.Replica, m.Voter)
		if m.Rising {
			b.WriteString(" rising")
		}
		if m.Disk.IsZero() {
			b.WriteString(" without disk")
		}
		if !m.Last.IsZero() {
			fmt.Fprintf(&b, " last %s left %t", m.Last, m.Left)
			if m.Levels != (api.Levels{Min: 1, Max: 1}) {
				fmt.Fprintf(&b, " speaks %s", m.Levels)
			}
		}
		if s, ok := v.Seen(m.Node); ok {
			fmt.Fprintf(&b, " seen as %s with pass %d", s.Incarnation, s.Pass)
		}
		b.WriteByte('\n')
	}
	for _, l := range v.Leases {
		fmt.Fprintf(&b, "lease %s %s zone %s version %s draining %t", l.Incarnation, l.Address, l.Zone, l.Version, l.Draining)
		if l.Crashed {
			b.WriteString(" crashed true")
		}
		b.WriteString("\n")
	}
	for _, t := range v.Tables {
		fmt.Fprintf(&b, "table %d %s wanted %d:", t.ID, t.Name, t.Wanted)
		for _, r := range t.Replicas {
			fmt.Fprintf(&b, " %s=%d", r.Node, r.ID)
			if !r.Voter {
				b.WriteString(" (comes)")
			}
			if r.Leaving {
				b.WriteString(" (goes)")
			}
		}
		b.WriteByte('\n')
	}
	showRolls(&b, v)
	for _, r := range v.Revoked {
		fmt.Fprintf(&b, "revoked %s %s by %s\n", r.Serial, r.Reason, r.By)
	}
	if r := v.Rotation; r.Phase != "" {
		fmt.Fprintf(&b, "rotation from %.4s to %.4s in phase %s by %s\n", r.Old, r.New, r.Phase, r.By)
	}
	return b.String()
}

func viewed(v *meta.View, node string) (wire.Member, bool) {
	if v == nil {
		return wire.Member{}, false
	}
	return v.Member(node)
}

// randomCommand returns one that makes some sense in a state.
func randomCommand(rnd *rand.Rand, v *meta.View) wire.MetaCommand {
	nodes := []string{"a", "b", "c", "x"}
	inc := api.Incarnation{Node: nodes[rnd.IntN(4)], Start: rnd.Uint64N(6) + 1, Suffix: uint32(rnd.IntN(4) / 3)}
	c := wire.MetaCommand{
		Kind:        wire.MetaKind(rnd.IntN(int(wire.MetaRaiseLevel)) + 1),
		ID:          api.RequestID{byte(rnd.IntN(255)) + 1},
		Incarnation: inc,
		Draining:    rnd.IntN(2) == 0,
		Lease: wire.Lease{
			Disk: disk(inc.Node), Incarnation: inc, Address: "https://" + strconv.Itoa(rnd.IntN(3)), Draining: rnd.IntN(4) == 0,
			Levels: api.Levels{Min: 1, Max: 40},
		},
		Name:   "t" + strconv.Itoa(rnd.IntN(5)),
		Wanted: rnd.IntN(4),
		Table:  api.TableID(rnd.Uint64N(20)),
		Joiner: wire.Founder{Node: nodes[rnd.IntN(4)], Disk: disk(strconv.Itoa(rnd.IntN(60))), Address: "https://n"},
		Known:  rnd.IntN(4) == 0,
		Node:   nodes[rnd.IntN(4)],
		From:   nodes[rnd.IntN(4)],
		To:     nodes[rnd.IntN(4)],
		Index:  rnd.Uint64N(1000),
		Roll:   randomRoll(rnd, v),
		Level:  rnd.Uint64N(20),

		Rotation: wire.Rotation{
			Old: strings.Repeat("a", 64), New: strings.Repeat(strconv.Itoa(rnd.IntN(2)), 64),
			Phase: []string{api.RotateTrust, api.RotateIssue, api.RotateSoak, api.RotateDrop, api.RotateDone, api.RotateUndo, api.RotateUndone}[rnd.IntN(7)],
		},
		Revocation: wire.Revocation{Serial: fmt.Sprintf("%032x", rnd.IntN(40)), Reason: "lost", By: "ann"},
		Seen:       wire.Sighting{Disk: disk(inc.Node), Incarnation: inc, Pass: rnd.Uint64N(50), At: time.UnixMilli(rnd.Int64N(1000)).UTC()},
	}
	for id := range uint64(200) {
		if rnd.IntN(2) == 0 {
			c.Voters = append(c.Voters, id)
		}
	}
	if rnd.IntN(10) == 0 { // they stand apart from the others
		c.Kind = wire.MetaRevoke + wire.MetaKind(rnd.IntN(2))
	}
	if rnd.IntN(4) == 0 { // a move is seldom possible, and only to a node with a lease
		c.Kind = []wire.MetaKind{wire.MetaMoveReplica, wire.MetaGrantLease, wire.MetaCreateTable}[rnd.IntN(3)]
	}
	if v != nil && len(v.Tables) > 0 && rnd.IntN(2) == 0 {
		c.Table = v.Tables[rnd.IntN(len(v.Tables))].ID // nearly all ids are of tables that are gone
	}
	if m, ok := viewed(v, inc.Node); ok {
		c.Lease.Disk, c.Seen.Disk = m.Disk, m.Disk
	}
	for range rnd.IntN(4) {
		c.Nodes = append(c.Nodes, nodes[rnd.IntN(3)])
	}
	return c
}

// replicas returns what each replica id stands for: the group, node and disk.
func replicas(v *meta.View) map[uint64]string {
	out := map[uint64]string{}
	for _, m := range v.Members {
		out[m.Replica] = m.Node
	}
	for _, table := range v.Tables {
		for _, r := range table.Replicas {
			out[r.ID] = table.ID.String() + r.Node
		}
	}
	return out
}

// What is loaded from the records is what was in memory, after every entry; each
// command may come twice; and no number is given out twice.
func TestReloadAndRepeatChangeNothing(t *testing.T) {
	done := map[wire.MetaKind]int{}
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		g := newGroup(t)
		g.form("a", "b", "c")
		taken := map[uint64]string{1: "a", 2: "b", 3: "c"}
		for range 1500 {
			c := randomCommand(rnd, g.s.View())
			r := g.apply(c)
			if r.ID != c.ID {
				t.Fatalf("seed %d: the answer to %s is for %s", seed, c.ID, r.ID)
			}
			if r.Answer.Changed != (len(r.Changes) > 0) {
				t.Fatalf("seed %d: %+v says changed %t with %d changes", seed, c, r.Answer.Changed, len(r.Changes))
			}
			if r.Answer.Changed {
				done[c.Kind]++
			}
			for replica, who := range replicas(g.s.View()) {
				if taken[replica] != "" && taken[replica] != who {
					t.Fatalf("seed %d: replica %d is %s and %s", seed, replica, who, taken[replica])
				}
				taken[replica] = who
			}
			view := g.s.View()
			if again := g.apply(c); again.Answer.Changed || again.Answer.Table != r.Answer.Table {
				t.Fatalf("seed %d: %+v once more: %+v after %+v", seed, c, again.Answer, r.Answer)
			}
			if g.s.View() != view {
				t.Fatalf("seed %d: nothing changed, but the view did", seed)
			}
			if !r.Answer.Changed {
				continue
			}
			g.reload()
			loaded := g.s.View()
			alike := []cmp.Option{cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(meta.View{}), cmpopts.IgnoreFields(meta.View{}, "Index")}
			if diff := cmp.Diff(view, loaded, alike...); diff != "" {
				t.Fatalf("seed %d: after %+v, loaded is not what was in memory:\n%s", seed, c, diff)
			}
			for _, m := range view.Members {
				was, _ := view.Seen(m.Node)
				if is, _ := loaded.Seen(m.Node); is != was {
					t.Fatalf("seed %d: %+v was loaded as %+v", seed, was, is)
				}
			}
			for _, table := range view.Tables {
				if named, ok := loaded.TableNamed(table.Name); !ok || named.ID != table.ID {
					t.Fatalf("seed %d: table %s was not loaded under its name", seed, table.Name)
				}
			}
		}
	}
	for kind := wire.MetaGrantLease; kind <= wire.MetaRaiseLevel; kind++ {
		if done[kind] < 5 {
			t.Errorf("%s changed something only %d times", kind, done[kind])
		}
	}
}

func TestViewsNeverChange(t *testing.T) {
	g := newGroup(t)
	g.form("a", "b", "c")
	rnd := rand.New(rand.NewPCG(1, 3))
	type old struct {
		view  *meta.View
		shown string
	}
	var olds []old
	for range 200 {
		olds = append(olds, old{g.s.View(), show(g.s.View())})
		g.apply(randomCommand(rnd, g.s.View()))
	}
	for _, o := range olds {
		if now := show(o.view); now != o.shown {
			t.Fatalf("a view changed after it was taken:\n%s\n%s", o.shown, now)
		}
	}
}

func TestViewFinds(t *testing.T) {
	g := newGroup(t)
	g.form("a", "b")
	g.apply(parse(t, strings.Fields("create zebra a")))
	g.apply(parse(t, strings.Fields("create ant b")))
	g.apply(parse(t, strings.Fields("grant b.1.00000001")))
	v := g.s.View()
	if m, ok := v.Member("b"); !ok || m.Replica != 2 {
		t.Errorf("member: %+v %t", m, ok)
	}
	if l, ok := v.Lease("b"); !ok || l.Incarnation.Start != 1 {
		t.Errorf("lease: %+v %t", l, ok)
	}
	if _, ok := v.Lease("a"); ok {
		t.Error("a has no lease")
	}
	if z, ok := v.Table(2); !ok || z.Name != "zebra" {
		t.Errorf("by id: %+v %t", z, ok)
	}
	if a, ok := v.TableNamed("ant"); !ok || a.ID != 3 {
		t.Errorf("by name: %+v %t", a, ok)
	}
	if _, ok := v.TableNamed("bee"); ok {
		t.Error("there is no table bee")
	}
	if r, ok := v.Tables[0].Replica("a"); !ok || r.ID != 3 || !r.Voter {
		t.Errorf("replica: %+v %t", r, ok)
	}
}

func TestGenesisRefuses(t *testing.T) {
	for name, f := range map[string]wire.Formation{
		"no members":   formation(),
		"six members":  formation("a", "b", "c", "d", "e", "f"),
		"out of order": formation("b", "a"),
		"no id":        {Members: formation("a").Members},
	} {
		g := newGroup(t)
		if changes, err := g.s.Genesis(f); err == nil || changes != nil {
			t.Errorf("%s: %v, %v", name, changes, err)
		}
		if len(g.s.View().Members) != 0 {
			t.Errorf("%s left members behind", name)
		}
	}
	g := newGroup(t)
	g.form("a")
	g.reload()
	if _, err := g.s.Genesis(formation("a")); !errors.Is(err, meta.ErrFormed) {
		t.Errorf("twice: %v", err)
	}
}

func TestStopsAtWhatItCannotRead(t *testing.T) {
	g := newGroup(t)
	if r, err := g.s.Apply(1, nil); err != nil || !reflect.DeepEqual(r, meta.Result{}) {
		t.Errorf("raft's empty entry: %+v, %v", r, err)
	}
	if _, err := g.s.Apply(41, []byte{200, 1}); !errors.Is(err, wire.ErrNewer) || !strings.Contains(err.Error(), "meta entry 41") {
		t.Errorf("a later kind: %v", err)
	}
	for _, key := range []string{"formation", "next/table", "next/replica", "level", "member/a", "lease/a", "table/0000000000000002", "dead/00", "roll/1"} {
		g.records = map[string][]byte{key: {9}}
		if _, err := meta.Load(g.all()); !errors.Is(err, wire.ErrNewer) || !strings.Contains(err.Error(), key) {
			t.Errorf("record %s of version 9: %v", key, err)
		}
	}
}

func BenchmarkCreateTable(b *testing.B) {
	g := newGroup(b)
	g.form("a", "b", "c")
	for i := 0; b.Loop(); i++ {
		g.apply(wire.MetaCommand{Kind: wire.MetaCreateTable, Name: "t" + strconv.Itoa(i), Nodes: []string{"a", "b", "c"}})
	}
}

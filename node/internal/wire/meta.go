package wire

import (
	"fmt"
	"slices"
	"strconv"

	"tidal/node/api"
)

// recordVersion is the version byte of all formats in this file and of commands.
// A format that changes gets a number of its own.
const recordVersion = 1

// Limits of what the meta group holds, in bytes. They bound what a decoder
// accepts; who makes a record checks its words before.
const (
	maxCluster = 256
	maxAddress = 1024
	maxRelease = 256
	maxZone    = 256
	maxText    = 4096
)

// MaxFounders is the largest number of nodes that may form a cluster together:
// all of them become voters of the meta group.
const MaxFounders = 5

// Formation is what the founding members of a cluster agreed to. It never changes.
type Formation struct {
	ClusterID api.ClusterID
	Cluster   string    // name
	Level     uint64    // feature level that it begins with; 0: the first
	Members   []Founder // in the order of their nodes; all are meta voters
}

// Founder is a node of the list with which the cluster formed.
type Founder struct {
	Node    string
	Disk    api.DiskID // zero: it was away, and is admitted with the first that it brings
	Address string
	Zone    string
}

// Replica returns the raft id of node's replica of the meta group: its place in
// the member list, from 1. It is 0 for a node that is no founder.
func (f *Formation) Replica(node string) uint64 {
	for i, m := range f.Members {
		if m.Node == node {
			return uint64(i) + 1
		}
	}
	return 0
}

// Proposer returns who proposed the cluster: the first member that was there.
func (f *Formation) Proposer() Founder {
	for _, m := range f.Members {
		if !m.Disk.IsZero() {
			return m
		}
	}
	return Founder{}
}

// AppendFormation appends the stored form of f, whose members must be in order.
func AppendFormation(dst []byte, f *Formation) []byte {
	dst = append(dst, recordVersion)
	dst = append(dst, f.ClusterID[:]...)
	dst = AppendString(dst, f.Cluster)
	dst = AppendUvarint(dst, f.Level)
	dst = AppendUvarint(dst, uint64(len(f.Members)))
	for _, m := range f.Members {
		dst = appendFounder(dst, &m)
	}
	return dst
}

// DecodeFormation reads the form of AppendFormation. It refuses members that are
// out of order or named twice.
func DecodeFormation(b []byte) (Formation, error) {
	r := NewReader(b)
	if err := checkVersion(r); err != nil {
		return Formation{}, fmt.Errorf("formation: %w", err)
	}
	f := Formation{ClusterID: r.Array16("cluster id"), Cluster: r.String("cluster", maxCluster), Level: r.Uvarint("level")}
	f.Members = make([]Founder, r.Count("members", 19))
	for i := range f.Members {
		m := &f.Members[i]
		*m = readFounder(r)
		if i > 0 && m.Node <= f.Members[i-1].Node {
			r.Fail("member node", "not in order")
		}
	}
	if err := r.Done(); err != nil {
		return Formation{}, fmt.Errorf("formation: %w", err)
	}
	return f, nil
}

// Lease is what the cluster knows of a live incarnation; its node is the
// incarnation's.
type Lease struct {
	Disk        api.DiskID
	Incarnation api.Incarnation
	Address     string // URL that answered as this incarnation
	Version     string // release
	Zone        string
	Levels      api.Levels // that the release speaks
	Draining    bool
	// Crashed says that the node went without a word before it got this lease: its
	// run before did, or its lease ran out.
	Crashed bool
}

// Bits of a lease's flags.
const (
	leaseDraining = 1 << iota
	leaseCrashed
	leaseFlags = 1<<iota - 1
)

// AppendLease appends the stored form of l.
func AppendLease(dst []byte, l *Lease) []byte { return appendLease(append(dst, recordVersion), l) }

// DecodeLease reads the form of AppendLease.
func DecodeLease(b []byte) (Lease, error) {
	r := NewReader(b)
	if err := checkVersion(r); err != nil {
		return Lease{}, fmt.Errorf("lease: %w", err)
	}
	l := readLease(r)
	if err := r.Done(); err != nil {
		return Lease{}, fmt.Errorf("lease: %w", err)
	}
	return l, nil
}

func appendLevels(dst []byte, l api.Levels) []byte {
	return AppendUvarint(AppendUvarint(dst, l.Min), l.Max)
}

func readLevels(r *Reader) api.Levels {
	return api.Levels{Min: r.Uvarint("lowest level"), Max: r.Uvarint("highest level")}
}

func appendLease(dst []byte, l *Lease) []byte {
	dst = append(dst, l.Disk[:]...)
	dst = AppendIncarnation(dst, l.Incarnation)
	dst = AppendString(dst, l.Address)
	dst = AppendString(dst, l.Version)
	dst = AppendString(dst, l.Zone)
	dst = appendLevels(dst, l.Levels)
	var flags byte
	if l.Draining {
		flags |= leaseDraining
	}
	if l.Crashed {
		flags |= leaseCrashed
	}
	return append(dst, flags)
}

func readLease(r *Reader) Lease {
	l := Lease{
		Disk:        r.Array16("disk"),
		Incarnation: r.Incarnation("incarnation"),
		Address:     r.String("address", maxAddress),
		Version:     r.String("release", maxRelease),
		Zone:        r.String("zone", maxZone),
		Levels:      readLevels(r),
	}
	flags := r.Byte("flags of a lease")
	if flags&^leaseFlags != 0 {
		r.Fail("flags of a lease", fmt.Sprintf("unknown bits in %#x", flags))
	}
	l.Draining, l.Crashed = flags&leaseDraining != 0, flags&leaseCrashed != 0
	return l
}

// Member is a node of the cluster, alive or not.
type Member struct {
	Node    string
	Disk    api.DiskID // zero while an empty disk is waited for in place of the one that is gone
	Address string     // of its last lease, or of the member list before the first
	Zone    string
	Replica uint64          // raft id in the meta group
	Voter   bool            // of the meta group
	Rising  bool            // it is to become a voter in place of a replica that is gone
	Last    api.Incarnation // newest that was ever granted a lease; zero: none
	Left    bool            // Last withdrew its lease and gets no other
	Levels  api.Levels      // that Last spoke
}

// AppendMember appends the stored form of m.
func AppendMember(dst []byte, m *Member) []byte {
	return appendMember(append(dst, recordVersion), m)
}

func appendMember(dst []byte, m *Member) []byte {
	dst = AppendString(dst, m.Node)
	dst = append(dst, m.Disk[:]...)
	dst = AppendString(dst, m.Address)
	dst = AppendString(dst, m.Zone)
	dst = AppendUvarint(dst, m.Replica)
	dst = AppendBool(dst, m.Voter)
	dst = AppendBool(dst, m.Rising)
	dst = AppendIncarnation(dst, m.Last)
	return appendLevels(AppendBool(dst, m.Left), m.Levels)
}

func readMember(r *Reader) Member {
	return Member{
		Node:    r.String("node", api.MaxNode),
		Disk:    r.Array16("disk"),
		Address: r.String("address", maxAddress),
		Zone:    r.String("zone", maxZone),
		Replica: r.Uvarint("replica"),
		Voter:   r.Bool("voter"),
		Rising:  r.Bool("rising"),
		Last:    r.Incarnation("incarnation"),
		Left:    r.Bool("left"),
		Levels:  readLevels(r),
	}
}

// DecodeMember reads the form of AppendMember.
func DecodeMember(b []byte) (Member, error) {
	r := NewReader(b)
	if err := checkVersion(r); err != nil {
		return Member{}, fmt.Errorf("member: %w", err)
	}
	m := readMember(r)
	if err := r.Done(); err != nil {
		return Member{}, fmt.Errorf("member: %w", err)
	}
	return m, nil
}

// Table is a table and where its replicas are.
type Table struct {
	ID       api.TableID
	Name     string
	Wanted   int       // replicas asked for; 0: the default, whatever the cluster's size makes of it
	First    []uint64  // raft ids of the first configuration, under which the log begins
	Settled  uint64    // position of the group's log up to which Replicas tell of its configuration
	Replicas []Replica // in the order of their ids
}

// Replica is one copy of a table. Its id is never used for another.
type Replica struct {
	Node    string
	ID      uint64 // raft id
	Voter   bool   // it counts; else it is a learner, or will be one, and is to become a voter
	Leaving bool   // it goes once the table can do without it
}

// Replica returns the replica that node holds: of two the newer, since the older
// one is gone with its disk.
func (t *Table) Replica(node string) (Replica, bool) {
	for _, r := range slices.Backward(t.Replicas) {
		if r.Node == node {
			return r, true
		}
	}
	return Replica{}, false
}

// Stays returns how many replicas the table has when those that leave are gone.
func (t *Table) Stays() int {
	n := 0
	for _, r := range t.Replicas {
		if !r.Leaving {
			n++
		}
	}
	return n
}

// Moving reports whether replicas are on their way in or out.
func (t *Table) Moving() bool {
	return slices.ContainsFunc(t.Replicas, func(r Replica) bool { return r.Leaving || !r.Voter })
}

// AppendTable appends the stored form of t.
func AppendTable(dst []byte, t *Table) []byte {
	dst = append(dst, recordVersion)
	dst = AppendUvarint(dst, uint64(t.ID))
	dst = AppendString(dst, t.Name)
	dst = AppendUvarint(dst, uint64(t.Wanted))
	dst = appendIDs(dst, t.First)
	dst = AppendUvarint(dst, t.Settled)
	dst = AppendUvarint(dst, uint64(len(t.Replicas)))
	for _, r := range t.Replicas {
		dst = AppendString(dst, r.Node)
		dst = AppendUvarint(dst, r.ID)
		dst = AppendBool(dst, r.Voter)
		dst = AppendBool(dst, r.Leaving)
	}
	return dst
}

// DecodeTable reads the form of AppendTable.
func DecodeTable(b []byte) (Table, error) {
	r := NewReader(b)
	if err := checkVersion(r); err != nil {
		return Table{}, fmt.Errorf("table: %w", err)
	}
	t := Table{ID: api.TableID(r.Uvarint("id")), Name: r.String("name", api.MaxTable), Wanted: readWanted(r)}
	t.First = r.ids("first replica")
	t.Settled = r.Uvarint("settled position")
	t.Replicas = make([]Replica, r.Count("replicas", 4))
	for i := range t.Replicas {
		t.Replicas[i] = Replica{
			Node:    r.String("replica node", api.MaxNode),
			ID:      r.Uvarint("replica id"),
			Voter:   r.Bool("replica voter"),
			Leaving: r.Bool("replica leaving"),
		}
	}
	if err := r.Done(); err != nil {
		return Table{}, fmt.Errorf("table: %w", err)
	}
	return t, nil
}

// MetaKind says what a command of the meta group does.
type MetaKind uint8

// The kinds. Their numbers are in the log: append only.
const (
	MetaGrantLease MetaKind = iota + 1
	MetaDrainLease
	MetaExpireLease
	MetaWithdrawLease
	MetaCreateTable
	MetaDropTable
	MetaAdmitNode
	MetaReplaceDisk
	MetaMoveReplica
	MetaSettleTable
	MetaChangeRoll
	MetaRevoke
	MetaRotate
	MetaNoteDisk
	MetaRaiseLevel
)

// String returns the kind's name, as in logs.
func (k MetaKind) String() string {
	switch k {
	case MetaGrantLease:
		return "grant-lease"
	case MetaDrainLease:
		return "drain-lease"
	case MetaExpireLease:
		return "expire-lease"
	case MetaWithdrawLease:
		return "withdraw-lease"
	case MetaCreateTable:
		return "create-table"
	case MetaDropTable:
		return "drop-table"
	case MetaAdmitNode:
		return "admit-node"
	case MetaReplaceDisk:
		return "replace-disk"
	case MetaMoveReplica:
		return "move-replica"
	case MetaSettleTable:
		return "settle-table"
	case MetaChangeRoll:
		return "change-roll"
	case MetaRevoke:
		return "revoke"
	case MetaRotate:
		return "rotate"
	case MetaNoteDisk:
		return "note-disk"
	case MetaRaiseLevel:
		return "raise-level"
	}
	return "kind" + strconv.Itoa(int(k))
}

// MetaCommand is one change of the meta group as its log holds it. Applying one
// twice does no more than applying it once.
type MetaCommand struct {
	Kind MetaKind
	ID   api.RequestID // matches the answer to who waits for it

	Lease       Lease           // grant
	Incarnation api.Incarnation // drain, expire, withdraw
	Draining    bool            // drain: the wanted mark
	Name        string          // create, drop: of the table
	Wanted      int             // create: replicas asked for; 0: the default
	Nodes       []string        // create: who holds the replicas
	Table       api.TableID     // drop, move, settle; settle may name the meta group

	Joiner   Founder  // admit: who comes, with which disk
	Known    bool     // admit: only a node whose id is a member's
	Node     string   // replace: whose disk is gone
	From, To string   // move: nodes
	Index    uint64   // settle: position of the group's log
	Voters   []uint64 // settle: the configuration applied there
	Learners []uint64 // settle, likewise

	Roll       RollCommand // change-roll
	Revocation Revocation  // revoke
	Rotation   Rotation    // rotate: as it shall be
	Seen       Sighting    // note: how far a disk has come
	Level      uint64      // raise-level
}

// AppendMetaCommand appends the stored form of c: the fields of its kind alone.
func AppendMetaCommand(dst []byte, c *MetaCommand) []byte {
	dst = append(dst, byte(c.Kind), recordVersion)
	dst = append(dst, c.ID[:]...)
	switch c.Kind {
	case MetaGrantLease:
		dst = appendLease(dst, &c.Lease)
	case MetaDrainLease:
		dst = AppendBool(AppendIncarnation(dst, c.Incarnation), c.Draining)
	case MetaExpireLease, MetaWithdrawLease:
		dst = AppendIncarnation(dst, c.Incarnation)
	case MetaCreateTable:
		dst = AppendString(dst, c.Name)
		dst = AppendUvarint(dst, uint64(c.Wanted))
		dst = AppendUvarint(dst, uint64(len(c.Nodes)))
		for _, n := range c.Nodes {
			dst = AppendString(dst, n)
		}
	case MetaDropTable:
		dst = AppendString(dst, c.Name)
		dst = AppendUvarint(dst, uint64(c.Table))
	case MetaAdmitNode, MetaReplaceDisk, MetaMoveReplica, MetaSettleTable:
		dst = appendReshape(dst, c)
	case MetaChangeRoll:
		dst = appendRollCommand(dst, &c.Roll)
	case MetaRevoke:
		dst = appendRevocation(dst, &c.Revocation)
	case MetaRotate:
		dst = appendRotation(dst, &c.Rotation)
	case MetaNoteDisk:
		dst = appendSighting(dst, &c.Seen)
	case MetaRaiseLevel:
		dst = AppendUvarint(dst, c.Level)
	}
	return dst
}

// DecodeMetaCommand reads the form of AppendMetaCommand. The error names the
// field that is wrong, or wraps ErrNewer.
func DecodeMetaCommand(b []byte) (MetaCommand, error) {
	r := NewReader(b)
	c := MetaCommand{Kind: MetaKind(r.Byte("kind"))}
	if err := checkVersion(r); err != nil {
		return MetaCommand{}, fmt.Errorf("meta command: %w", err)
	}
	c.ID = r.Array16("request id")
	switch c.Kind {
	case MetaGrantLease:
		c.Lease = readLease(r)
	case MetaDrainLease:
		c.Incarnation = r.Incarnation("incarnation")
		c.Draining = r.Bool("draining")
	case MetaExpireLease, MetaWithdrawLease:
		c.Incarnation = r.Incarnation("incarnation")
	case MetaCreateTable:
		c.Name = r.String("name", api.MaxTable)
		c.Wanted = readWanted(r)
		c.Nodes = make([]string, r.Count("nodes", 1))
		for i := range c.Nodes {
			c.Nodes[i] = r.String("node", api.MaxNode)
		}
	case MetaDropTable:
		c.Name = r.String("name", api.MaxTable)
		c.Table = api.TableID(r.Uvarint("table"))
	case MetaAdmitNode, MetaReplaceDisk, MetaMoveReplica, MetaSettleTable:
		readReshape(r, &c)
	case MetaChangeRoll:
		c.Roll = readRollCommand(r)
	case MetaRevoke:
		c.Revocation = readRevocation(r)
	case MetaRotate:
		c.Rotation = readRotation(r)
	case MetaNoteDisk:
		c.Seen = readSighting(r)
	case MetaRaiseLevel:
		c.Level = r.Uvarint("level")
	default:
		return MetaCommand{}, fmt.Errorf("meta command: kind %d: %w", c.Kind, ErrNewer)
	}
	if err := r.Done(); err != nil {
		return MetaCommand{}, fmt.Errorf("meta command: %s: %w", c.Kind, err)
	}
	return c, nil
}

// MetaAnswer is what came of a MetaCommand.
type MetaAnswer struct {
	Code    api.Code // "": what was asked for is so now
	Message string   // of a refusal, public
	Changed bool     // this command made it so; false: it was so before
	Table   api.TableID
	Replica uint64 // admit: raft id in the meta group
	Roll    uint64 // change-roll: the roll, and its epoch now
	Epoch   uint64
}

// Err returns the refusal as an *api.Error, or nil.
func (a *MetaAnswer) Err() error {
	if a.Code == "" {
		return nil
	}
	e := &api.Error{Code: a.Code, Message: a.Message}
	if a.Code == api.CodeNodeNotFound {
		e.Hint = api.NodesHint // hints are not sent
	}
	return e
}

// AppendMetaAnswer appends the sent form of a.
func AppendMetaAnswer(dst []byte, a *MetaAnswer) []byte {
	dst = append(dst, recordVersion)
	dst = AppendString(dst, string(a.Code))
	dst = AppendString(dst, a.Message)
	dst = AppendBool(dst, a.Changed)
	dst = AppendUvarint(dst, uint64(a.Table))
	dst = AppendUvarint(dst, a.Replica)
	return AppendUvarint(AppendUvarint(dst, a.Roll), a.Epoch)
}

// DecodeMetaAnswer reads the form of AppendMetaAnswer.
func DecodeMetaAnswer(b []byte) (MetaAnswer, error) {
	r := NewReader(b)
	if err := checkVersion(r); err != nil {
		return MetaAnswer{}, fmt.Errorf("meta answer: %w", err)
	}
	a := MetaAnswer{
		Code:    api.Code(r.String("code", maxText)),
		Message: r.String("message", maxText),
		Changed: r.Bool("changed"),
		Table:   api.TableID(r.Uvarint("table")),
		Replica: r.Uvarint("replica"),
		Roll:    r.Uvarint("roll"),
		Epoch:   r.Uvarint("epoch"),
	}
	if err := r.Done(); err != nil {
		return MetaAnswer{}, fmt.Errorf("meta answer: %w", err)
	}
	return a, nil
}

// checkVersion reads a version byte and refuses one that is not known here.
func checkVersion(r *Reader) error {
	v := r.Byte("version")
	switch {
	case r.Err() != nil:
		return r.Err()
	case v != recordVersion:
		return fmt.Errorf("version %d: %w, which knows %d", v, ErrNewer, recordVersion)
	}
	return nil
}

func readWanted(r *Reader) int {
	n := r.Uvarint("wanted replicas")
	if n > api.MaxReplicas {
		r.Fail("wanted replicas", fmt.Sprintf("%d, the limit is %d", n, api.MaxReplicas))
		return 0
	}
	return int(n)
}

package meta

import (
	"cmp"
	"fmt"
	"slices"

	"tidal/node/api"
	"tidal/node/internal/wire"
)

// View is the meta group's state at one moment. It never changes, and neither may
// what it refers to: it is read by many at once.
type View struct {
	Index       uint64         // of the last entry that changed it since it was loaded, or 0
	Formation   wire.Formation // ClusterID is zero before the cluster forms
	Members     []wire.Member  // in the order of their nodes
	Leases      []wire.Lease   // in the order of their nodes
	Tables      []*wire.Table  // in the order of their ids
	NextTable   uint64         // id of the next table
	NextReplica uint64         // id of the next replica of any group
	Rolls       []*wire.Roll   // the last ones, in the order of their ids
	Level       uint64         // feature level of what the cluster writes; 0 before it forms

	Revoked  []wire.Revocation // in the order of their serials
	Rotation wire.Rotation     // the one under way, or the last; zero: there never was one

	names []*wire.Table // in the order of their names
	dead  []deadDisk    // in the order of their ids, as text

	seen []wire.Sighting // in the order of their nodes
}

// Member returns the member with that node id.
func (v *View) Member(node string) (wire.Member, bool) {
	return find(v.Members, node, memberNode)
}

// Lease returns the lease of a node.
func (v *View) Lease(node string) (wire.Lease, bool) {
	return find(v.Leases, node, leaseNode)
}

// Table returns the table with that id.
func (v *View) Table(id api.TableID) (*wire.Table, bool) {
	return find(v.Tables, id, tableID)
}

// TableNamed returns the table with that name.
func (v *View) TableNamed(name string) (*wire.Table, bool) {
	return find(v.names, name, tableName)
}

func memberNode(m wire.Member) string   { return m.Node }
func leaseNode(l wire.Lease) string     { return l.Incarnation.Node }
func tableID(t *wire.Table) api.TableID { return t.ID }
func tableName(t *wire.Table) string    { return t.Name }

func (v *View) putMember(m wire.Member) Change {
	v.Members = put(v.Members, m, memberNode)
	return Change{Key: []byte(prefixMember + m.Node), Value: wire.AppendMember(nil, &m)}
}

func (v *View) putLease(l wire.Lease) Change {
	v.Leases = put(v.Leases, l, leaseNode)
	return Change{Key: []byte(prefixLease + l.Incarnation.Node), Value: wire.AppendLease(nil, &l)}
}

func (v *View) dropLease(node string) Change {
	v.Leases = drop(v.Leases, node, leaseNode)
	return Change{Key: []byte(prefixLease + node)}
}

func (v *View) putTable(t *wire.Table) Change {
	v.Tables = put(v.Tables, t, tableID)
	v.names = put(v.names, t, tableName)
	return Change{Key: []byte(prefixTable + t.ID.String()), Value: wire.AppendTable(nil, t)}
}

func (v *View) dropTable(t *wire.Table) Change {
	v.Tables = drop(v.Tables, t.ID, tableID)
	v.names = drop(v.names, t.Name, tableName)
	return Change{Key: []byte(prefixTable + t.ID.String())}
}

// deadDisk is a disk that was replaced.
type deadDisk struct {
	id   string // in hex
	node string // whose it was
}

// deadVersion is the first byte of the record of a dead disk.
const deadVersion = 1

func deadID(d deadDisk) string { return d.id }

// Dead reports whether a disk was replaced: it never comes back.
func (v *View) Dead(disk api.DiskID) bool {
	_, found := find(v.dead, disk.String(), deadID)
	return found
}

func (v *View) putDead(disk api.DiskID, node string) Change {
	v.dead = put(v.dead, deadDisk{disk.String(), node}, deadID)
	return Change{Key: []byte(prefixDead + disk.String()), Value: wire.AppendString([]byte{deadVersion}, node)}
}

func (v *View) loadDead(id string, value []byte) error {
	r := wire.NewReader(value)
	if version := r.Byte("version"); r.Err() == nil && version != deadVersion {
		return fmt.Errorf("version %d: %w", version, wire.ErrNewer)
	}
	node := r.String("node", api.MaxNode)
	v.dead = put(v.dead, deadDisk{id, node}, deadID)
	return r.Done()
}

// The lists are in the order of a key. A change makes a new one, since views
// share them.

func search[T any, K cmp.Ordered](list []T, key K, keyOf func(T) K) (int, bool) {
	return slices.BinarySearchFunc(list, key, func(item T, key K) int { return cmp.Compare(keyOf(item), key) })
}

func find[T any, K cmp.Ordered](list []T, key K, keyOf func(T) K) (item T, found bool) {
	i, found := search(list, key, keyOf)
	if found {
		item = list[i]
	}
	return item, found
}

func put[T any, K cmp.Ordered](list []T, item T, keyOf func(T) K) []T {
	i, found := search(list, keyOf(item), keyOf)
	rest := i
	if found {
		rest++
	}
	out := append(make([]T, 0, len(list)+1), list[:i]...)
	return append(append(out, item), list[rest:]...)
}

func drop[T any, K cmp.Ordered](list []T, key K, keyOf func(T) K) []T {
	i, found := search(list, key, keyOf)
	if !found {
		return list
	}
	return append(append(make([]T, 0, len(list)-1), list[:i]...), list[i+1:]...)
}
